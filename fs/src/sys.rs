//! System calls that have no safe wrapper in a library: file handles and the identity that a
//! thread creates files with.
//!
//! It must never decide anything; every function is one call to the kernel.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

/// Bytes that a handle may have. Twelve are enough for tmpfs, eight for ext4, forty for btrfs.
pub(crate) const HANDLE_BYTES: usize = 64;

/// What names an inode of a filesystem for as long as it lives, however it is moved or linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileHandle {
    pub(crate) kind: i32,
    pub(crate) length: u32,
    pub(crate) bytes: [u8; HANDLE_BYTES],
}

/// `struct file_handle` with room for its bytes.
#[repr(C)]
struct RawHandle {
    length: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES],
}

fn result(value: libc::c_int) -> Result<libc::c_int, Errno> {
    if value < 0 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(value)
    }
}

/// `name_to_handle_at(2)`; an empty name with [`AtFlags::EMPTY_PATH`] asks for the descriptor's own.
pub(crate) fn name_to_handle(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: AtFlags,
) -> Result<FileHandle, Errno> {
    let mut raw = RawHandle { length: HANDLE_BYTES as u32, kind: 0, bytes: [0; HANDLE_BYTES] };
    let mut mount = 0;
    // SAFETY: `raw` begins as `struct file_handle` does and has as many bytes behind it as its
    // `length` says; the name ends with a zero; both outlive the call.
    result(unsafe {
        libc::name_to_handle_at(
            directory.as_raw_fd(),
            name.as_ptr(),
            std::ptr::from_mut(&mut raw).cast(),
            &raw mut mount,
            flags.bits() as libc::c_int,
        )
    })?;
    Ok(FileHandle { kind: raw.kind, length: raw.length, bytes: raw.bytes })
}

/// `open_by_handle_at(2)`; `mount` is any descriptor of the filesystem except a detached mount's own.
pub(crate) fn open_by_handle(
    mount: BorrowedFd<'_>,
    handle: &FileHandle,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let mut raw = RawHandle { length: handle.length, kind: handle.kind, bytes: handle.bytes };
    // SAFETY: `raw` is a `struct file_handle` with its bytes behind it and outlives the call.
    let descriptor = result(unsafe {
        libc::open_by_handle_at(
            mount.as_raw_fd(),
            std::ptr::from_mut(&mut raw).cast(),
            (flags | OFlags::CLOEXEC).bits() as libc::c_int,
        )
    })?;
    // SAFETY: the kernel has just made this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// `truncate(2)`, which unlike `ftruncate(2)` leaves the times of a file alone whose size stays.
pub(crate) fn truncate(path: &str, size: u64) -> Result<(), Errno> {
    let path = std::ffi::CString::new(path).map_err(|_| Errno::INVAL)?;
    let size = libc::off_t::try_from(size).map_err(|_| Errno::FBIG)?;
    // SAFETY: the path ends with a zero and outlives the call.
    result(unsafe { libc::truncate(path.as_ptr(), size) }).map(drop)
}

/// Gives this thread a umask and working directory of its own.
pub(crate) fn unshare_file_system_attributes() -> Result<(), Errno> {
    // SAFETY: `CLONE_FS` changes no descriptor and no memory that another thread sees.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }
}

/// Sets the owner of what this thread creates. The kernel reports no error; the caller must hold
/// `CAP_SETUID` and `CAP_SETGID`.
pub(crate) fn set_file_system_owner(uid: u32, gid: u32) {
    // SAFETY: both calls take numbers and change the credentials of this thread alone.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
}
