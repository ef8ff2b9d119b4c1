//! The system calls of the tests that no safe wrapper offers: mappings, the memory behind them, and
//! a mount namespace for one thread.
//!
//! Memory that is shared with a file is never borrowed here: the kernel copies it, so that a file
//! which got shorter answers with an error and not with a signal.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

/// A shared, writable or at least readable mapping of a file from its start.
#[derive(Debug)]
pub struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Mapping {
    /// Maps the file, for writing where it is open for that.
    ///
    /// # Errors
    ///
    /// What `mmap` says.
    pub fn new(file: impl AsFd, length: usize, writable: bool) -> Result<Self, Errno> {
        let protection =
            if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses the place, so nothing that exists is overwritten; the memory
        // is only handed to the kernel by its address, never borrowed.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0)
        }?;
        Ok(Self { start, length })
    }

    /// Reads what the mapping shows.
    ///
    /// # Errors
    ///
    /// `EFAULT` where the file has no such page, or the range is no part of the mapping.
    pub fn read(&self, offset: usize, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; length];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
        let remote = self.range(offset, length)?;
        // SAFETY: `local` is the vector above; `remote` lies in this mapping, and the kernel checks
        // each of its pages.
        let copied = unsafe {
            libc::process_vm_readv(process_id(), &raw const local, 1, &raw const remote, 1, 0)
        };
        bytes.truncate(usize::try_from(copied).map_err(|_| last_error())?);
        Ok(bytes)
    }

    /// Writes into the mapping, and says how many bytes found a page.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<usize, Errno> {
        let local =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = self.range(offset, bytes.len())?;
        // SAFETY: `local` is only read from; `remote` lies in this mapping, of which nobody holds a
        // reference, and the kernel checks each of its pages.
        let copied = unsafe {
            libc::process_vm_writev(process_id(), &raw const local, 1, &raw const remote, 1, 0)
        };
        usize::try_from(copied).map_err(|_| last_error())
    }

    /// Waits until what was written is in the file.
    ///
    /// # Errors
    ///
    /// What `msync` says.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the range is exactly this mapping.
        unsafe { rustix::mm::msync(self.start, self.length, MsyncFlags::SYNC) }?;
        Ok(())
    }

    fn range(&self, offset: usize, length: usize) -> Result<libc::iovec, Errno> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(Errno::FAULT);
        }
        Ok(libc::iovec { iov_base: self.start.wrapping_byte_add(offset), iov_len: length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly this mapping, to which no reference exists. It can't fail
        // for a range that was mapped.
        let _ = unsafe { rustix::mm::munmap(self.start, self.length) };
    }
}

/// Gives the calling thread a mount namespace, and a working directory and umask, of its own.
///
/// # Errors
///
/// What `unshare` says; an ordinary user may not.
pub fn leave_mount_namespace() -> Result<(), Errno> {
    // SAFETY: the descriptor table, which is what can be unsound to unshare, stays shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    Ok(())
}

/// Sets the umask of the process and gives the one before.
pub fn set_umask(mask: u32) -> u32 {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask)).as_raw_mode()
}

fn process_id() -> libc::pid_t {
    std::process::id().cast_signed()
}

/// `truncate` by path.
///
/// # Errors
///
/// What the system call says; a path with a NUL is `EINVAL`.
pub fn truncate(path: &[u8], length: u64) -> Result<(), Errno> {
    let path = std::ffi::CString::new(path).map_err(|_| Errno::INVAL)?;
    // SAFETY: the path is a string that ends with NUL and lives for the whole call.
    let result = unsafe { libc::truncate(path.as_ptr(), length.cast_signed()) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
