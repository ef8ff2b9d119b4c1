//! The filesystem, free of any protocol: each operation is done on a store with calls relative to
//! a descriptor, so that the store's own filesystem brings the rules of POSIX along.
//!
//! It must never decide by a name what a directory is: that is `structure`'s to know, by node.
//! Permissions were checked by the kernel (`default_permissions`) before a request comes here.

mod attributes;
mod commons;
mod create;
mod data;
mod directory;
mod files;
mod identity;
mod kernel;
mod lookup;
mod open;
mod remove;
mod rename;
mod witness;
mod xattr;

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

pub use self::attributes::{Changes, TimeChange};
pub use self::commons::{Commons, Options};
pub use self::create::NewFile;
pub use self::data::Position;
pub use self::directory::{DirectoryEntry, Listing};
use self::files::OpenFiles;
pub use self::kernel::Kernel;
pub(crate) use self::kernel::{Attendant, expect_unknown};
pub use self::lookup::Found;
pub use self::open::{OpenFile, Pages};
pub use self::witness::{Attempt, Refusal, Witness};
use crate::error::Error;
use crate::inode_table::InodeTable;
use crate::node::Node;
use crate::store::Tree;
use crate::structure::Structure;

/// Who asked for an operation, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The *thread* that asked, as this process sees it; zero if it can't be seen from here.
    pub thread: u32,
}

/// The filesystem as one connection to the kernel sees it.
///
/// Lock order: see [`Commons`].
pub struct TempFs {
    commons: Arc<Commons>,
    table: InodeTable,
    files: OpenFiles,
    kernel: OnceLock<Arc<dyn Kernel>>,
    /// Whether the kernel has been told what the root is.
    root_told: AtomicBool,
    /// Files that are open for writing.
    writers: AtomicUsize,
}

impl TempFs {
    /// An empty file that a connection can keep the records of its inodes in.
    ///
    /// # Errors
    /// Where the kernel has no memory for it.
    pub fn records() -> Result<OwnedFd, Errno> {
        InodeTable::file()
    }

    /// The filesystem for a connection that has not begun, whose inode records live in the file it
    /// is given.
    ///
    /// # Errors
    /// Where the records can't be mapped.
    pub fn new(records: impl AsFd, commons: Arc<Commons>) -> Result<Self, Errno> {
        let descriptors = commons.budget();
        Ok(Self {
            commons,
            table: InodeTable::new(records, descriptors)?,
            files: OpenFiles::new(descriptors / 8),
            kernel: OnceLock::new(),
            root_told: AtomicBool::new(false),
            writers: AtomicUsize::new(0),
        })
    }

    /// Gives the filesystem the connection that it is served on; the first one stays.
    pub fn connect(&self, kernel: Arc<dyn Kernel>) {
        let _ = self.kernel.set(kernel);
    }

    /// The connection, where there is one.
    pub(crate) fn kernel(&self) -> Option<&dyn Kernel> {
        self.kernel.get().map(AsRef::as_ref)
    }

    pub(crate) const fn table(&self) -> &InodeTable {
        &self.table
    }

    fn structure(&self) -> &Structure {
        self.commons.structure()
    }

    /// Whether the kernel may believe what it is told until it changes it itself.
    #[must_use]
    pub fn may_be_remembered(&self) -> bool {
        !self.commons.are_several()
    }

    /// The kernel has been told what the root is.
    pub fn tell_root(&self) {
        self.root_told.store(true, Ordering::Release);
    }

    /// Whether the kernel has been told what a directory is, so that it may be told that this has
    /// changed. Before the first answer about the root that would have it drop the answer that it
    /// waits for, and take the root for what the mount began with: closed to everybody.
    pub(crate) fn may_doubt(&self, directory: Node) -> bool {
        directory != Node::ROOT || self.root_told.load(Ordering::Acquire)
    }

    /// Inodes that the kernel knows.
    #[must_use]
    pub fn known_inodes(&self) -> usize {
        self.table.len()
    }

    fn tree(&self, node: Node) -> Result<Arc<Tree>, Error> {
        self.commons.tree_of(node.generation()).ok_or(Error::Forgotten)
    }

    /// A descriptor that names an inode of a tree.
    fn path(&self, tree: &Tree, node: Node) -> Result<Arc<OwnedFd>, Error> {
        self.table.path(node, tree.root())
    }

    /// A tree and the descriptor of a directory in it that something is made in or removed from.
    fn place(&self, parent: Node, name: &OsStr) -> Result<(Arc<Tree>, Arc<OwnedFd>), Error> {
        check_name(name)?;
        let tree = self.tree(parent)?;
        let directory = self.path(&tree, parent)?;
        Ok((tree, directory))
    }

    /// Closes what is registered for an inode.
    fn unregister(&self, backing: Option<u32>) {
        if let (Some(backing), Some(kernel)) = (backing, self.kernel()) {
            kernel.unregister(backing);
        }
    }
}

impl std::fmt::Debug for TempFs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TempFs")
            .field("commons", &self.commons)
            .field("inodes", &self.table.len())
            .finish_non_exhaustive()
    }
}

/// Refuses names that would lead elsewhere than to a child. The kernel sends none.
fn check_name(name: &OsStr) -> Result<(), Error> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// A name as the kernel's calls want it.
fn c_name(name: &OsStr) -> Result<CString, Errno> {
    CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)
}

/// A path to an open descriptor, for calls that take no descriptor of this kind.
fn link_to(descriptor: impl AsFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests;
