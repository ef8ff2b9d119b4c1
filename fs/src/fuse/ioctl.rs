//! The few `ioctl` requests that are for a file and not for a device.

use rustix::io::Errno;

use crate::error::Error;
use crate::node::Node;
use crate::tempfs::TempFs;

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;

/// The flags that were asked for, or nothing where some were set.
pub(super) fn answer(
    fs: &TempFs,
    node: Node,
    command: u32,
    data: &[u8],
) -> Result<Option<u32>, Error> {
    match (command, data.first_chunk()) {
        (GET_FLAGS, _) => fs.inode_flags(node).map(Some),
        (SET_FLAGS, Some(flags)) => {
            fs.set_inode_flags(node, u32::from_ne_bytes(*flags)).map(|()| None)
        }
        _ => Err(Errno::NOTTY.into()),
    }
}
