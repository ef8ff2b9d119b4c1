//! What rustix has no safe call for: namespaces, signals as a descriptor, inherited descriptors.
//!
//! The only place of this package with `unsafe`; it decides nothing.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Puts the process into a user namespace and a mount namespace of its own.
///
/// The kernel refuses it to a process that has threads.
pub(crate) fn enter_new_namespaces() -> rustix::io::Result<()> {
    // SAFETY: the flags neither give up the file descriptors nor anything else that Rust's
    // guarantees rest on; they change how the process is seen and what mounts it sees.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
}

/// Gives the calling thread an umask of its own.
#[cfg(test)]
pub(crate) fn separate_umask() -> rustix::io::Result<()> {
    // SAFETY: the thread gets a copy of umask, root and current directory; nothing is given up.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}

/// Takes over a descriptor that whoever started this process has left for it.
///
/// It isn't handed on to further programs.
pub(crate) fn inherited(descriptor: RawFd) -> rustix::io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the borrow lasts for one call, which answers EBADF where nothing is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and its number came from outside: nothing in here has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The signals that ask the daemon to stop.
const STOP_SIGNALS: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Requests to stop, as a descriptor that can be waited for.
#[derive(Debug)]
pub(crate) struct StopSignals {
    signals: File,
}

impl StopSignals {
    /// From here on the signals end nothing by themselves; threads that start later inherit that.
    pub(crate) fn block() -> rustix::io::Result<Self> {
        let set = stop_set();
        let mask = &raw const set;
        // SAFETY: the set is initialised, and where the old mask goes may be null.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, mask, ptr::null_mut()) };
        if error != 0 {
            return Err(Errno::from_raw_os_error(error));
        }
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let descriptor = unsafe { libc::signalfd(-1, mask, flags) };
        if descriptor < 0 {
            return Err(last_error());
        }
        // SAFETY: the call has just made it, for us alone.
        let signals = unsafe { File::from_raw_fd(descriptor) };
        Ok(Self { signals })
    }

    /// The signal that has come, if one has.
    pub(crate) fn take(&self) -> Option<i32> {
        let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
        // The number is the first field, and the kernel never writes half a record.
        match (&self.signals).read(&mut record) {
            Ok(length) if length == record.len() => {
                let [a, b, c, d, ..] = record;
                i32::try_from(u32::from_ne_bytes([a, b, c, d])).ok()
            }
            _ => None,
        }
    }
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

fn stop_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set that it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in STOP_SIGNALS {
        // SAFETY: the set is initialised, and the signals exist.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: initialised above.
    unsafe { set.assume_init() }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
