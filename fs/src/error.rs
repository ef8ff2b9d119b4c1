//! Why an operation of the filesystem failed, and the one place where that becomes an errno.
//!
//! It must never carry a path: what fails here is answered to the program that asked.

use rustix::io::Errno;
use thiserror::Error;

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The store's own answer.
    #[error("the store answered {0}")]
    Store(#[from] Errno),
    /// Only the daemon makes or removes this directory; programs see it as they see a mountpoint.
    #[error("a structural directory is in use by the namespace")]
    Structural,
    /// Nothing can be made or changed in a directory above the generations.
    #[error("only the daemon changes a directory above the generations")]
    AboveGenerations,
    /// The two names are not in one generation.
    #[error("generations can't be linked or renamed into one another")]
    OtherGeneration,
    /// The name isn't there.
    #[error("no such name")]
    NoEntry,
    /// The kernel named an inode of which there is no record.
    #[error("no record of the inode")]
    Forgotten,
    /// A device that was not made by root.
    #[error("only root makes devices")]
    Device,
    /// An argument that no store accepts.
    #[error("invalid argument")]
    Invalid,
}

impl Error {
    /// What the program is told.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Store(errno) => errno,
            Self::Structural => Errno::BUSY,
            Self::AboveGenerations | Self::Device => Errno::PERM,
            Self::OtherGeneration => Errno::XDEV,
            Self::NoEntry => Errno::NOENT,
            Self::Forgotten => Errno::STALE,
            Self::Invalid => Errno::INVAL,
        }
    }
}
