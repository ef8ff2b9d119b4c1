//! Calls to the FUSE device that the library keeps to itself.
//!
//! It must never decide anything; every function is one call.

use std::os::fd::{AsRawFd, BorrowedFd};

use fuser::{BackingId, ReplyCreate, ReplyOpen};
use rustix::io::Errno;

/// `FUSE_DEV_IOC_BACKING_CLOSE`: `_IOW(229, 2, uint32_t)`.
const BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// Ends the registration of a file.
pub(super) fn close_backing(device: BorrowedFd<'_>, backing: u32) -> Result<(), Errno> {
    // SAFETY: the request reads one `u32`, which outlives the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BACKING_CLOSE, &raw const backing) };
    if result < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}

/// Names a registered file to an open's reply. Dropping the value would end the registration: the
/// caller takes the number back with `into_raw`.
pub(super) fn backing_of_open(reply: &ReplyOpen, backing: u32) -> BackingId {
    // SAFETY: the number is registered on this connection and stays so while the inode has opens,
    // which this one is counted among.
    unsafe { reply.wrap_backing(backing) }
}

/// The same for the reply to a `CREATE`.
pub(super) fn backing_of_create(reply: &ReplyCreate, backing: u32) -> BackingId {
    // SAFETY: as above.
    unsafe { reply.wrap_backing(backing) }
}
