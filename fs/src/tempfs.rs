//! The filesystem, free of any protocol: each operation is done on a store with calls relative to
//! a descriptor, so that the store's own filesystem brings the rules of POSIX along.
//!
//! It must never decide by a name what a directory is: that is `structure`'s to know, by node.
//! Permissions were checked by the kernel (`default_permissions`) before a request comes here.

mod attributes;
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

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use dashmap::DashMap;
use rustix::io::Errno;

pub use self::attributes::{Changes, TimeChange};
pub use self::create::NewFile;
pub use self::directory::{DirectoryEntry, Listing};
use self::files::OpenFiles;
pub use self::kernel::Kernel;
pub(crate) use self::kernel::{Attendant, expect_unknown};
pub use self::lookup::Found;
pub use self::open::OpenFile;
pub use self::witness::{Attempt, Refusal, Witness};
use crate::clock::WallClock;
use crate::error::Error;
use crate::inode_table::InodeTable;
use crate::node::{GenerationKey, Node};
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

/// What this process may do, and how much it may hold.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Owner of the root directory: whoever runs the daemon.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Whether files are made for whoever asks. Needs `CAP_SETUID`, `CAP_SETGID` and the
    /// capabilities over files; without it there is one user.
    pub many_users: bool,
    /// Descriptors that may be held for inodes.
    pub descriptors: usize,
}

/// The filesystem.
///
/// Lock order: `trees` (a shard), then the table's, then the structure's; `kernel` and `draining`
/// are read and let go before any of them.
pub struct TempFs {
    table: InodeTable,
    trees: DashMap<GenerationKey, Arc<Tree>>,
    structure: Structure,
    files: OpenFiles,
    kernel: RwLock<Option<Arc<dyn Kernel>>>,
    /// Whether what is written lasts, so that synchronising it means something.
    durable: AtomicBool,
    attendant: OnceLock<Arc<dyn Attendant>>,
    witness: OnceLock<Arc<dyn Witness>>,
    draining: RwLock<HashSet<GenerationKey>>,
    options: Options,
}

impl TempFs {
    /// An empty file that a filesystem can keep the records of its inodes in.
    ///
    /// # Errors
    /// Where the kernel has no memory for it.
    pub fn records() -> Result<OwnedFd, Errno> {
        InodeTable::file()
    }

    /// A filesystem without sessions, whose inode records live in the file it is given.
    ///
    /// # Errors
    /// Where the records can't be mapped.
    pub fn new(
        records: impl AsFd,
        options: Options,
        clock: Arc<dyn WallClock>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            table: InodeTable::new(records, options.descriptors)?,
            trees: DashMap::new(),
            structure: Structure::new(options.uid, options.gid, clock),
            files: OpenFiles::new(options.descriptors / 8),
            kernel: RwLock::new(None),
            durable: AtomicBool::new(true),
            attendant: OnceLock::new(),
            witness: OnceLock::new(),
            draining: RwLock::default(),
            options,
        })
    }

    /// Gives the filesystem the connection that it is served on.
    pub fn connect(&self, kernel: Arc<dyn Kernel>) {
        *self.kernel.write().unwrap_or_else(PoisonError::into_inner) = Some(kernel);
    }

    /// Says whether what is written to the store lasts.
    pub(crate) fn set_durable(&self, durable: bool) {
        self.durable.store(durable, Ordering::Release);
    }

    /// The connection, where there is one.
    pub(crate) fn kernel(&self) -> Option<Arc<dyn Kernel>> {
        self.kernel.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the filesystem its attendant; the first one stays.
    pub(crate) fn attend(&self, attendant: Arc<dyn Attendant>) {
        let _ = self.attendant.set(attendant);
    }

    /// Has the attendant told of inodes of a generation that the kernel forgets, or no longer.
    pub(crate) fn watch_forgets(&self, key: GenerationKey, watch: bool) {
        let mut draining = self.draining.write().unwrap_or_else(PoisonError::into_inner);
        if watch {
            draining.insert(key);
        } else {
            draining.remove(&key);
        }
    }

    fn is_draining(&self, key: GenerationKey) -> bool {
        self.draining.read().unwrap_or_else(PoisonError::into_inner).contains(&key)
    }

    pub(crate) fn structure(&self) -> &Structure {
        &self.structure
    }

    pub(crate) fn table(&self) -> &InodeTable {
        &self.table
    }

    /// Brings a generation's tree in.
    pub(crate) fn plant(&self, tree: Tree) -> Arc<Tree> {
        let tree = Arc::new(tree);
        self.trees.insert(tree.key(), Arc::clone(&tree));
        tree
    }

    /// Takes a generation's tree out.
    pub(crate) fn uproot(&self, key: GenerationKey) -> Option<Arc<Tree>> {
        self.trees.remove(&key).map(|(_, tree)| tree)
    }

    /// The tree of a generation.
    pub(crate) fn tree_of(&self, key: GenerationKey) -> Option<Arc<Tree>> {
        self.trees.get(&key).map(|tree| Arc::clone(&tree))
    }

    /// Inodes that the kernel knows.
    #[must_use]
    pub fn known_inodes(&self) -> usize {
        self.table.len()
    }

    fn tree(&self, node: Node) -> Result<Arc<Tree>, Error> {
        self.tree_of(node.generation()).ok_or(Error::Forgotten)
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
            .field("generations", &self.trees.len())
            .field("inodes", &self.table.len())
            .field("options", &self.options)
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
