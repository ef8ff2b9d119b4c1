//! Between the words of the protocol's library and those of the filesystem.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, INodeNo, Request, TimeOrNow};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::attributes::{Attributes, FileTime};
use crate::error::Error;
use crate::node::Node;
use crate::tempfs::{Caller, Position, TimeChange};

/// How long the kernel may believe what it is told: every change comes through it.
pub(super) const FOREVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

pub(super) fn node(number: INodeNo) -> Node {
    Node::from_raw(number.0)
}

pub(super) fn number(node: Node) -> INodeNo {
    INodeNo(node.raw())
}

pub(super) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), thread: request.pid() }
}

pub(super) fn errno(error: Error) -> fuser::Errno {
    raw_errno(error.errno())
}

pub(super) fn raw_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

pub(super) fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32)
}

/// Where a write through a file that is open in this way goes.
pub(super) fn position(flags: OFlags, offset: u64) -> Position {
    if flags.contains(OFlags::APPEND) { Position::End(offset) } else { Position::At(offset) }
}

/// From where on what is sought: data, or else a hole.
pub(super) fn sought(offset: i64, whence: i32) -> Result<(u64, bool), Error> {
    match (u64::try_from(offset), whence) {
        (Ok(offset), libc::SEEK_DATA) => Ok((offset, true)),
        (Ok(offset), libc::SEEK_HOLE) => Ok((offset, false)),
        (Err(_), _) => Err(Errno::NXIO.into()),
        _ => Err(Error::Invalid),
    }
}

pub(super) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::RegularFile | FileType::Unknown => fuser::FileType::RegularFile,
    }
}

pub(super) fn attributes(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: number(attributes.node),
        size: attributes.size,
        blocks: attributes.blocks,
        atime: time(attributes.accessed),
        mtime: time(attributes.modified),
        ctime: time(attributes.changed),
        crtime: UNIX_EPOCH,
        kind: kind(attributes.kind),
        perm: attributes.permissions,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: attributes.block_size,
        flags: 0,
    }
}

/// The answer that there is nothing by a name, which the kernel may remember.
pub(super) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn time(time: FileTime) -> SystemTime {
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

pub(super) fn time_change(change: TimeOrNow) -> TimeChange {
    match change {
        TimeOrNow::Now => TimeChange::Now,
        TimeOrNow::SpecificTime(time) => TimeChange::At(file_time(time)),
    }
}

/// The library takes a time before 1970 for seconds *and* nanoseconds before it, where the kernel
/// sends seconds before and nanoseconds after. Undone the same way, what the kernel sent comes out.
fn file_time(time: SystemTime) -> FileTime {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => FileTime {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(before) => FileTime {
            seconds: 0_i64.saturating_sub_unsigned(before.duration().as_secs()),
            nanoseconds: before.duration().subsec_nanos(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_come_out_as_the_kernel_sent_them() {
        // What the library makes of `-1 s + 250 ms`.
        let told = UNIX_EPOCH - Duration::new(1, 250_000_000);
        assert_eq!(file_time(told), FileTime { seconds: -1, nanoseconds: 250_000_000 });
    }

    #[test]
    fn times_are_told_as_the_store_has_them() {
        let early = FileTime { seconds: -2, nanoseconds: 250_000_000 };
        assert_eq!(time(early), UNIX_EPOCH - Duration::new(1, 750_000_000));
        let late = FileTime { seconds: 1 << 33, nanoseconds: 1 };
        assert_eq!(time(late), UNIX_EPOCH + Duration::new(1 << 33, 1));
    }
}
