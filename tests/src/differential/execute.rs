//! Carries one operation out in one place, and says what came of it.
//!
//! Two places must be treated exactly alike: nothing here may ask which one it is.

mod attributes;
mod files;
mod names;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::generate::{MAPS, SLOTS};
use super::observe::Attributes;
use super::operation::{Operation, Path};
use crate::sys::Mapping;

/// What a call answered.
pub type Outcome = Result<Value, Errno>;

/// What a call answered where it did not fail.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// Nothing but success.
    Done,
    /// A count, an offset, or a set of flags.
    Number(u64),
    /// Bytes that were read.
    Bytes(Vec<u8>),
    /// Names, each with its inode number and type where there is one; in no order.
    Names(Vec<Entry>),
    /// Attributes of an object.
    Attributes(Attributes),
}

/// One name in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name.
    pub name: Path,
    /// The number in the list, and the type beside it.
    pub inode: Option<(u64, u8)>,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Bytes(bytes) if bytes.len() <= 64 => {
                write!(f, "\"{}\" ({})", bytes.escape_ascii(), bytes.len())
            }
            Self::Bytes(bytes) => {
                let sum = bytes
                    .iter()
                    .fold(0u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte));
                write!(f, "\"{}…\" ({}, {sum:x})", bytes[..32].escape_ascii(), bytes.len())
            }
            Self::Names(names) => names.fmt(f),
            Self::Attributes(attributes) => attributes.fmt(f),
        }
    }
}

/// A mapping, and what it is one of.
#[derive(Debug)]
struct Mapped {
    mapping: Mapping,
    file: OwnedFd,
}

/// One of the two places: a directory, and what is open in it.
#[derive(Debug)]
pub struct Place {
    /// The directory by its path, for the calls that take nothing else.
    path: PathBuf,
    directory: OwnedFd,
    slots: [Option<OwnedFd>; SLOTS],
    maps: [Option<Mapped>; MAPS],
}

impl Place {
    /// The place at this directory.
    ///
    /// # Errors
    ///
    /// Where it can't be opened.
    pub fn at(path: PathBuf) -> anyhow::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty())
            .with_context(|| format!("{} can't be opened", path.display()))?;
        Ok(Self { path, directory, slots: Default::default(), maps: Default::default() })
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// What is open at this place of the table.
    ///
    /// # Errors
    ///
    /// `EBADF` where nothing is.
    pub fn open_file(&self, slot: usize) -> Result<BorrowedFd<'_>, Errno> {
        self.slots[slot].as_ref().map(OwnedFd::as_fd).ok_or(Errno::BADF)
    }

    /// The attributes of what is mapped at this place of the table.
    ///
    /// # Errors
    ///
    /// `EBADF` where nothing is.
    pub fn mapped_file(&self, map: usize) -> Result<Attributes, Errno> {
        Attributes::of_open(&self.maps[map].as_ref().ok_or(Errno::BADF)?.file)
    }

    /// Closes what is open and unmaps what is mapped.
    pub fn let_go(&mut self) {
        self.slots = Default::default();
        self.maps = Default::default();
    }

    /// Closes one descriptor, as where the other place has none.
    pub fn close(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    /// Carries the operation out.
    ///
    /// # Errors
    ///
    /// What the system call says.
    pub fn execute(&mut self, operation: &Operation) -> Outcome {
        use Operation as O;
        match operation {
            O::Open { .. }
            | O::Close { .. }
            | O::Read { .. }
            | O::ReadAt { .. }
            | O::Write { .. }
            | O::WriteAt { .. }
            | O::Seek { .. }
            | O::Truncate { .. }
            | O::TruncateOpen { .. }
            | O::Allocate { .. }
            | O::CopyRange { .. }
            | O::Sync { .. }
            | O::Map { .. }
            | O::MapRead { .. }
            | O::MapWrite { .. }
            | O::MapSync { .. }
            | O::Unmap { .. } => self.execute_on_file(operation),
            O::Rename { .. }
            | O::Link { .. }
            | O::LinkOpen { .. }
            | O::Symlink { .. }
            | O::ReadLink { .. }
            | O::Unlink { .. }
            | O::MakeDirectory { .. }
            | O::RemoveDirectory { .. }
            | O::MakeNode { .. }
            | O::ReadDirectory { .. }
            | O::StatFs { .. }
            | O::Access { .. } => self.execute_on_names(operation),
            O::ChangeMode { .. }
            | O::ChangeOwner { .. }
            | O::SetTimes { .. }
            | O::SetXattr { .. }
            | O::GetXattr { .. }
            | O::ListXattr { .. }
            | O::RemoveXattr { .. }
            | O::Stat { .. } => self.execute_on_attributes(operation),
            // They concern both places at once, and are carried out before each.
            O::SetUmask { .. } | O::ForgetCaches => Ok(Value::Done),
        }
    }

    /// The path for calls that know no directory descriptor.
    fn full_path(&self, path: &Path) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt as _;
        if path.0.is_empty() {
            return Vec::new();
        }
        Path(self.path.as_os_str().as_bytes().to_vec()).join(&path.0).0
    }
}

fn done(result: Result<(), Errno>) -> Outcome {
    result.map(|()| Value::Done)
}

fn number(result: Result<usize, Errno>) -> Outcome {
    result.map(|number| Value::Number(number as u64))
}
