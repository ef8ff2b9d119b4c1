//! What `stat` tells about an inode, free of any protocol.
//!
//! It must never be kept beyond the reply it was read for: the store is where attributes live.

use rustix::fs::{FileType, RawMode, Statx};

use crate::node::Node;

/// A time of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds after the second.
    pub nanoseconds: u32,
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode.
    pub node: Node,
    /// What it is.
    pub kind: FileType,
    /// Permissions, with set-id and sticky bits.
    pub permissions: u16,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// The unit that the store reads and writes best.
    pub block_size: u32,
    /// Names of the inode.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The device, where it is one, as the kernel encodes it in 32 bits.
    pub device: u32,
    /// Last access.
    pub accessed: FileTime,
    /// Last change of the contents.
    pub modified: FileTime,
    /// Last change of the inode.
    pub changed: FileTime,
}

impl Attributes {
    /// The attributes in an answer of `statx`.
    pub(crate) fn from_statx(node: Node, statx: &Statx) -> Self {
        let time = |time: &rustix::fs::StatxTimestamp| FileTime {
            seconds: time.tv_sec,
            nanoseconds: time.tv_nsec,
        };
        Self {
            node,
            kind: FileType::from_raw_mode(RawMode::from(statx.stx_mode)),
            permissions: statx.stx_mode & 0o7777,
            size: statx.stx_size,
            blocks: statx.stx_blocks,
            block_size: statx.stx_blksize,
            links: statx.stx_nlink,
            uid: statx.stx_uid,
            gid: statx.stx_gid,
            device: encode_device(statx.stx_rdev_major, statx.stx_rdev_minor),
            accessed: time(&statx.stx_atime),
            modified: time(&statx.stx_mtime),
            changed: time(&statx.stx_ctime),
        }
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// A device number in the 32 bits that the kernel's interfaces give it.
pub(crate) const fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The major and minor number in those 32 bits.
pub(crate) const fn decode_device(device: u32) -> (u32, u32) {
    ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xf_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_their_encoding() {
        for (major, minor) in [(0, 0), (1, 3), (10, 229), (0xfff, 0xf_ffff), (8, 0x1ff)] {
            assert_eq!(decode_device(encode_device(major, minor)), (major, minor));
        }
    }
}
