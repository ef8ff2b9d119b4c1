//! Where generations keep their files: a tree beneath a descriptor, whatever made it.
//!
//! The kinds differ in how a tree is made, limited and discarded; what is done to the files in it
//! never differs. No path leads to a tree, and none must ever be needed after it was made.

mod absent;
mod dir;
mod discard;
mod survey;
mod tmpfs;
mod tree;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::fstat;
use rustix::io::Errno;
use thiserror::Error;

pub(crate) use self::absent::Absence;
pub(crate) use self::survey::Survey;
pub use self::tree::Tree;
use crate::node::GenerationKey;
use crate::registry::Usage;

/// What a generation may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub size: Option<u64>,
    /// Inodes.
    pub inodes: Option<u64>,
}

impl Limits {
    /// Whether there is no limit at all.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.size.is_none() && self.inodes.is_none()
    }
}

/// To whom the directory of a generation belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permissions, with the sticky bit.
    pub permissions: u16,
}

/// Why a store could not do what it was asked for.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The kernel refused a step.
    #[error("{step}: {errno}")]
    Refused {
        /// What was being done.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The limits are ones that the store can't have.
    #[error("the store can't have these limits")]
    Unfit,
    /// This kind of store can't hold a session to a limit.
    #[error("this store has no way to limit a session")]
    NoLimits,
    /// The inode number of the tree's root has no room in a node.
    #[error("inode number {0} is too large for this store")]
    InodeTooLarge(u64),
}

/// Names what was being done when the kernel refused.
fn refused(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| StoreError::Refused { step, errno }
}

/// A kind of store.
#[derive(Debug)]
pub struct Store(Kind);

#[derive(Debug)]
enum Kind {
    /// A detached tmpfs for each generation.
    Tmpfs,
    /// A directory for each generation, beneath one directory.
    Dir(OwnedFd),
}

impl Store {
    /// Memory: a detached tmpfs for each generation.
    #[must_use]
    pub const fn tmpfs() -> Self {
        Self(Kind::Tmpfs)
    }

    /// A directory that is already open; the caller has checked that it is its own.
    #[must_use]
    pub const fn beneath(directory: OwnedFd) -> Self {
        Self(Kind::Dir(directory))
    }

    /// The directory that everything is beneath, where there is one.
    #[must_use]
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Kind::Tmpfs => None,
            Kind::Dir(base) => Some(base.as_fd()),
        }
    }

    /// The first key that no generation of an earlier daemon has here.
    ///
    /// # Errors
    /// Where the directory can't be listed.
    pub fn first_free_key(&self) -> Result<GenerationKey, StoreError> {
        match &self.0 {
            Kind::Tmpfs => Ok(GenerationKey::FIRST),
            Kind::Dir(base) => dir::first_free_key(base),
        }
    }

    /// Makes the tree of a generation.
    ///
    /// # Errors
    /// Where the kernel refuses, or where the store can't hold it to its limits.
    pub fn make(
        &self,
        key: GenerationKey,
        limits: Limits,
        ownership: Ownership,
    ) -> Result<Tree, StoreError> {
        let home = match &self.0 {
            Kind::Tmpfs => tmpfs::make(limits)?,
            Kind::Dir(_) if !limits.is_unlimited() => return Err(StoreError::NoLimits),
            Kind::Dir(base) => dir::make(base, key)?,
        };
        Tree::plant(key, &home, ownership).inspect_err(|error| {
            // What is half made must not be in the way of the next try.
            drop(home);
            if let Err(left) = self.discard(key) {
                tracing::error!(%error, %left, "a generation that could not be made leaves files");
            }
        })
    }

    /// The tree of a generation that an earlier daemon made; `None` where there is none, or what is
    /// in its place is none of ours.
    ///
    /// # Errors
    /// Where that can't be told.
    pub fn open(&self, key: GenerationKey) -> Result<Option<Tree>, StoreError> {
        match &self.0 {
            // It went with its daemon.
            Kind::Tmpfs => Ok(None),
            Kind::Dir(base) => match dir::find(base, key)? {
                None => Ok(None),
                Some(home) => Tree::find(key, &home),
            },
        }
    }

    /// To whom a generation's files belong that an earlier daemon made, and what is in it; `None`
    /// where it is none of ours.
    ///
    /// # Errors
    /// Where that can't be told.
    pub(crate) fn look(&self, key: GenerationKey) -> Result<Option<(u32, Usage)>, StoreError> {
        let home = match &self.0 {
            Kind::Tmpfs => None,
            Kind::Dir(base) => dir::find(base, key)?,
        };
        let Some(home) = home else { return Ok(None) };
        let looking = refused("looking at what is in the generation");
        let owner = match Tree::find(key, &home)? {
            Some(tree) => fstat(tree.root()).map_err(&looking)?.st_uid,
            None => fstat(&home).map_err(&looking)?.st_uid,
        };
        let survey = Survey::of(home, |_| ()).map_err(looking)?;
        Ok(Some((owner, survey.usage)))
    }

    /// The keys of all generations that are there, whoever made them.
    ///
    /// # Errors
    /// Where the directory can't be listed.
    pub fn keys(&self) -> Result<Vec<GenerationKey>, StoreError> {
        match &self.0 {
            Kind::Tmpfs => Ok(Vec::new()),
            Kind::Dir(base) => dir::keys(base),
        }
    }

    /// Gives a generation other limits while it is in use.
    ///
    /// # Errors
    /// Where the kernel refuses (a size below what is used, too), or where there are no limits.
    pub fn resize(&self, tree: &Tree, limits: Limits) -> Result<(), StoreError> {
        match &self.0 {
            Kind::Tmpfs => tmpfs::resize(tree, limits),
            Kind::Dir(_) if limits.is_unlimited() => Ok(()),
            Kind::Dir(_) => Err(StoreError::NoLimits),
        }
    }

    /// Discards a tree that nobody uses. It takes as long as the tree is large, so it belongs on
    /// a thread that nobody waits for.
    ///
    /// # Errors
    /// Where something in it can't be removed; what is left stays where a later try finds it.
    pub fn discard(&self, key: GenerationKey) -> Result<(), StoreError> {
        match &self.0 {
            // Its last descriptor was its life.
            Kind::Tmpfs => Ok(()),
            Kind::Dir(base) => dir::discard(base, key),
        }
    }

    /// Whether a generation can be held to limits.
    #[must_use]
    pub const fn holds_limits(&self) -> bool {
        match self.0 {
            Kind::Tmpfs => true,
            Kind::Dir(_) => false,
        }
    }

    /// Whether data survives the machine, so that it is worth synchronising.
    #[must_use]
    pub const fn is_durable(&self) -> bool {
        match self.0 {
            Kind::Tmpfs => false,
            Kind::Dir(_) => true,
        }
    }
}

#[cfg(test)]
mod tests;
