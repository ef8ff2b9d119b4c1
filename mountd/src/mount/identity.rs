//! Which mount is which, as the kernel's table of mounts and held descriptors tell.
//!
//! A mount must never be taken for our own by its path.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, makedev, statx};
use rustix::io::Errno;

/// The type and the source of our mounts in the kernel's table.
pub(crate) const FSTYPE: &str = "fuse.holdfast";
pub(crate) const SOURCE: &str = "holdfast";

/// `STATX_MNT_ID_UNIQUE`, of Linux 6.8.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Which mount something is on.
///
/// The unique number is never used again before the next boot. Where the kernel has none, the
/// other one and the device must do: both may be used again once the mount and its filesystem are
/// gone, so whoever keeps an identity there keeps the connection to the filesystem open too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The number in the table of mounts.
    pub(crate) id: u64,
    /// The number that is never used again, where the kernel has one.
    unique: Option<u64>,
    /// The device of the filesystem, as `st_dev`.
    pub(crate) device: u64,
}

impl Identity {
    /// Whether its number is never used again.
    pub(crate) const fn is_unique(&self) -> bool {
        self.unique.is_some()
    }

    /// Which mount a descriptor is on. Nothing is asked of the filesystem, so it doesn't matter
    /// whether anybody serves it.
    pub(crate) fn of(descriptor: BorrowedFd<'_>) -> Result<Self, Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        // Another user's filesystem of FUSE tells us nothing that is asked for; the number of the
        // mount is told in any case.
        let facts = statx(descriptor, "", flags, StatxFlags::empty())?;
        let unique = match statx(descriptor, "", flags, MNT_ID_UNIQUE) {
            Err(Errno::ACCESS) => None,
            unique => Some(unique?),
        };
        let has = |bit: StatxFlags, mask: u32| mask & bit.bits() != 0;
        if !has(StatxFlags::MNT_ID, facts.stx_mask) {
            return Err(Errno::NOSYS);
        }
        Ok(Self {
            id: facts.stx_mnt_id,
            unique: unique
                .filter(|facts| has(MNT_ID_UNIQUE, facts.stx_mask))
                .map(|facts| facts.stx_mnt_id),
            device: makedev(facts.stx_dev_major, facts.stx_dev_minor),
        })
    }
}

/// A line of the kernel's table of mounts, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) device: u64,
    pub(crate) mountpoint: PathBuf,
    pub(crate) fstype: String,
    pub(crate) source: String,
    pub(crate) super_options: String,
}

impl Entry {
    /// Whether a daemon of this kind made the mount.
    pub(crate) fn is_holdfast(&self) -> bool {
        self.fstype == FSTYPE && self.source == SOURCE
    }

    /// Whether a daemon of this user made the mount. The kernel lets nobody name another user
    /// there.
    pub(crate) fn is_holdfast_of(&self, uid: u32) -> bool {
        self.holdfast_owner() == Some(uid)
    }

    /// Whose daemon made the mount; `None` where it is of another kind.
    pub(crate) fn holdfast_owner(&self) -> Option<u32> {
        if !self.is_holdfast() {
            return None;
        }
        let mut options = self.super_options.split(',');
        options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }
}

/// The mounts that this process sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
}

impl Table {
    /// Reads the kernel's table.
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read("/proc/self/mountinfo")?))
    }

    fn parse(text: &[u8]) -> Self {
        // A line that can't be understood is of a kind that we don't look for.
        Self { entries: text.split(|byte| *byte == b'\n').filter_map(parse_line).collect() }
    }

    /// The mount with this number.
    pub(crate) fn by_id(&self, id: u64) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// The mounts at a path and below it, by the names that they have in the table.
    pub(crate) fn at_or_below(&self, path: &Path) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.mountpoint.starts_with(path))
    }

    /// The mount that a path without links is on. Of those on one another the last one is seen.
    pub(crate) fn containing(&self, path: &Path) -> Option<&Entry> {
        let length = |entry: &&Entry| entry.mountpoint.as_os_str().len();
        self.entries.iter().filter(|entry| path.starts_with(&entry.mountpoint)).max_by_key(length)
    }

    /// The mounts that are mounted on this one or in it, and on or in these.
    pub(crate) fn above(&self, id: u64) -> Vec<&Entry> {
        let mut found: Vec<&Entry> = Vec::new();
        let mut wanted = vec![id];
        while let Some(parent) = wanted.pop() {
            for entry in &self.entries {
                if entry.parent == parent && entry.id != parent {
                    found.push(entry);
                    wanted.push(entry.id);
                }
            }
        }
        found
    }
}

/// `36 35 98:0 /root /mnt opts tags… - fstype source super`
fn parse_line(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = text(fields.next()?)?;
    let (major, minor) = device.split_once(':')?;
    let _root = fields.next()?;
    let mountpoint = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    Some(Entry {
        id,
        parent,
        device: makedev(major.parse().ok()?, minor.parse().ok()?),
        mountpoint,
        fstype: text(rest.next()?)?,
        source: text(rest.next()?)?,
        super_options: text(rest.next()?)?,
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> Option<String> {
    Some(String::from_utf8_lossy(&unescape(field)).into_owned())
}

/// The kernel writes space, tab, newline and backslash as `\040` and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let digit = |byte: u8| matches!(byte, b'0'..=b'7').then(|| u32::from(byte - b'0'));
        let escaped = match (first, tail) {
            (b'\\', [a, b, c, ..]) => match (digit(*a), digit(*b), digit(*c)) {
                (Some(a), Some(b), Some(c)) => u8::try_from(a * 64 + b * 8 + c).ok(),
                _ => None,
            },
            _ => None,
        };
        plain.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    const TABLE: &[u8] = b"\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:5 / /proc rw - proc proc rw
40 21 0:60 / /tmp/mecatl-7 rw,nosuid,nodev master:1 propagate_from:2 - fuse.holdfast holdfast rw,user_id=7,group_id=7,default_permissions
41 40 0:61 / /tmp/mecatl-7 rw - tmpfs none rw
42 41 0:62 / /tmp/mecatl-7/a\\040b\\134 rw - tmpfs none rw
nonsense
43 21 0:63 / /x rw - fuse.holdfast holdfast rw,user_id=77,group_id=7
";

    #[test]
    fn lines_are_understood() {
        let table = Table::parse(TABLE);
        assert_eq!(table.entries.len(), 6);
        let ours = table.by_id(40).expect("listed");
        assert_eq!(ours.mountpoint, PathBuf::from("/tmp/mecatl-7"));
        assert_eq!((ours.fstype.as_str(), ours.source.as_str()), (FSTYPE, SOURCE));
        assert_eq!(ours.device, makedev(0, 60));
        let odd = table.by_id(42).expect("listed");
        assert_eq!(odd.mountpoint, PathBuf::from("/tmp/mecatl-7/a b\\"));
    }

    #[test]
    fn ours_is_told_by_type_source_and_user() {
        let table = Table::parse(TABLE);
        assert!(table.by_id(40).expect("listed").is_holdfast_of(7));
        assert!(!table.by_id(40).expect("listed").is_holdfast_of(0));
        assert!(!table.by_id(43).expect("listed").is_holdfast_of(7));
        assert!(!table.by_id(41).expect("listed").is_holdfast_of(7));
    }

    #[test]
    fn what_is_on_a_mount_is_found_at_any_depth() {
        let table = Table::parse(TABLE);
        let ids = |id| table.above(id).iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(40), [41, 42]);
        assert!(ids(42).is_empty());
    }

    #[test]
    fn mounts_are_found_by_path() {
        let table = Table::parse(TABLE);
        let below = |path: &str| -> Vec<u64> {
            table.at_or_below(Path::new(path)).map(|entry| entry.id).collect()
        };
        assert_eq!(below("/tmp/mecatl-7"), [40, 41, 42]);
        assert_eq!(below("/tmp/mecatl"), [0; 0]);
        let on = |path: &str| table.containing(Path::new(path)).map(|entry| entry.id);
        assert_eq!(on("/tmp/mecatl-7/a"), Some(41), "the upper one");
        assert_eq!(on("/tmp/mecatl-77"), Some(21));
    }

    #[test]
    fn the_kernels_own_table_and_descriptors_agree() {
        let table = Table::read().expect("readable");
        let proc = fs::File::open("/proc").expect("readable");
        let identity = Identity::of(proc.as_fd()).expect("a mount has a number");
        let entry = table.by_id(identity.id).expect("listed");
        assert_eq!(entry.fstype, "proc");
        assert_eq!(entry.device, identity.device);
    }
}
