//! What can be seen of the objects of a sequence between two calls.
//!
//! Looking must change nothing that is compared: no list is read here, no file opened.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::execute::Place;
use super::generate::SLOTS;
use super::operation::{Operation, Path, Step, Target};

/// Seconds and nanoseconds.
pub type Time = (i64, i64);

/// The attributes of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of `stat`")]
pub struct Attributes {
    pub inode: u64,
    pub mode: u32,
    pub links: u64,
    pub uid: u32,
    pub gid: u32,
    pub size: i64,
    pub blocks: i64,
    pub block_size: i64,
    pub device: u64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
}

impl Attributes {
    /// Of what a descriptor is open on.
    ///
    /// # Errors
    ///
    /// What `fstat` says.
    pub fn of_open(file: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::fstat(file).map(Self::new)
    }

    /// Of what a path names.
    ///
    /// # Errors
    ///
    /// What `fstatat` says.
    pub fn of_path(at: impl AsFd, path: &Path, flags: AtFlags) -> Result<Self, Errno> {
        rustix::fs::statat(at, path.0.as_slice(), flags).map(Self::new)
    }

    fn new(stat: Stat) -> Self {
        let time = |seconds, nanoseconds: u64| (seconds, nanoseconds.cast_signed());
        Self {
            inode: stat.st_ino,
            mode: stat.st_mode,
            links: stat.st_nlink,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size,
            blocks: stat.st_blocks,
            block_size: stat.st_blksize,
            device: stat.st_rdev,
            accessed: time(stat.st_atime, stat.st_atime_nsec),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// The type of the object.
    #[must_use]
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "inode {} mode {:o} links {} owner {}:{} size {} blocks {}*{} device {:x} \
             accessed {:?} modified {:?} changed {:?}",
            self.inode,
            self.mode,
            self.links,
            self.uid,
            self.gid,
            self.size,
            self.blocks,
            self.block_size,
            self.device,
            self.accessed,
            self.modified,
            self.changed
        )
    }
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    /// A path, without following a symlink at its end.
    Path(Path),
    /// An open descriptor.
    Open(usize),
}

/// What was seen at each spot.
pub type Observation = BTreeMap<Spot, Result<Attributes, Errno>>;

/// Looks at every spot.
#[must_use]
pub fn observe(place: &Place, spots: &[Spot]) -> Observation {
    let look = |spot: &Spot| match spot {
        Spot::Path(path) => place.attributes(&Target::Itself(path.clone())),
        Spot::Open(slot) => place.attributes(&Target::Open(*slot)),
    };
    spots.iter().map(|spot| (spot.clone(), look(spot))).collect()
}

/// All spots that these steps name, and the directory they are in.
#[must_use]
pub fn spots(steps: &[Step]) -> Vec<Spot> {
    let mut spots: Vec<Spot> = (0..SLOTS).map(Spot::Open).collect();
    spots.push(Spot::Path(".".into()));
    for step in steps {
        spots.extend(paths(&step.operation).into_iter().flatten().cloned().map(Spot::Path));
    }
    spots.sort();
    spots.dedup();
    spots
}

/// The paths that an operation names.
#[must_use]
pub fn paths(operation: &Operation) -> [Option<&Path>; 2] {
    use Operation as O;
    match operation {
        O::Open { path, .. }
        | O::Truncate { path, .. }
        | O::ReadLink { path }
        | O::Unlink { path }
        | O::MakeDirectory { path, .. }
        | O::RemoveDirectory { path }
        | O::MakeNode { path, .. }
        | O::ReadDirectory { path }
        | O::StatFs { path }
        | O::Access { path, .. }
        | O::Symlink { path, .. }
        | O::LinkOpen { to: path, .. } => [Some(path), None],
        O::Rename { from, to, .. } | O::Link { from, to, .. } => [Some(from), Some(to)],
        O::ChangeMode { target, .. }
        | O::ChangeOwner { target, .. }
        | O::SetTimes { target, .. }
        | O::SetXattr { target, .. }
        | O::GetXattr { target, .. }
        | O::ListXattr { target, .. }
        | O::RemoveXattr { target, .. }
        | O::Stat { target } => [target.path(), None],
        O::Close { .. }
        | O::Read { .. }
        | O::ReadAt { .. }
        | O::Write { .. }
        | O::WriteAt { .. }
        | O::Seek { .. }
        | O::TruncateOpen { .. }
        | O::Allocate { .. }
        | O::CopyRange { .. }
        | O::Sync { .. }
        | O::Map { .. }
        | O::MapRead { .. }
        | O::MapWrite { .. }
        | O::MapSync { .. }
        | O::Unmap { .. }
        | O::SetUmask { .. }
        | O::ForgetCaches => [None, None],
    }
}
