//! Descriptors that file data goes through where the kernel doesn't move it by itself, and that
//! holes, ranges and sizes are asked of.
//!
//! It must never hold one for an inode that is forgotten, or that has lost its name and its opens:
//! its space would not be free.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use dashmap::DashMap;
use quick_cache::sync::Cache;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::{TempFs, link_to};
use crate::error::Error;
use crate::node::Node;
use crate::store::Tree;

/// What a descriptor is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// The descriptors.
pub(super) struct OpenFiles {
    cache: Cache<u64, Arc<OwnedFd>>,
    /// Those that could not be opened again, since the file's mode forbids it to this process.
    kept: DashMap<u64, Arc<OwnedFd>>,
}

impl OpenFiles {
    pub(super) fn new(capacity: usize) -> Self {
        Self { cache: Cache::new(capacity.max(8)), kept: DashMap::new() }
    }

    fn get(&self, node: Node) -> Option<Arc<OwnedFd>> {
        if let Some(file) = self.kept.get(&node.raw()) {
            return Some(Arc::clone(&file));
        }
        self.cache.get(&node.raw())
    }

    /// Takes over the descriptor of a new file.
    pub(super) fn keep(&self, node: Node, file: OwnedFd) {
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        match open(again, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Ok(_) => {
                self.cache.insert(node.raw(), Arc::new(file));
            }
            Err(_) => {
                self.kept.insert(node.raw(), Arc::new(file));
            }
        }
    }

    /// The last open of a file has ended.
    pub(super) fn released(&self, node: Node, unlinked: bool) {
        self.kept.remove(&node.raw());
        if unlinked {
            self.cache.remove(&node.raw());
        }
    }

    pub(super) fn forget(&self, node: Node) {
        self.kept.remove(&node.raw());
        self.cache.remove(&node.raw());
    }
}

impl TempFs {
    /// A descriptor of a regular file or directory that can do what is asked, and more where the
    /// store lets it.
    pub(super) fn file(
        &self,
        tree: &Tree,
        node: Node,
        access: Access,
    ) -> Result<Arc<OwnedFd>, Error> {
        if let Some(file) = self.files.get(node) {
            return Ok(file);
        }
        match self.open_file(tree, node, OFlags::RDWR) {
            Ok(file) => {
                let file = Arc::new(file);
                self.files.cache.insert(node.raw(), Arc::clone(&file));
                Ok(file)
            }
            Err(Error::Store(Errno::ACCESS | Errno::ISDIR | Errno::PERM | Errno::TXTBSY)) => {
                let flags = match access {
                    Access::Read => OFlags::RDONLY,
                    Access::Write => OFlags::WRONLY,
                };
                Ok(Arc::new(self.open_file(tree, node, flags)?))
            }
            Err(error) => Err(error),
        }
    }

    fn open_file(&self, tree: &Tree, node: Node, flags: OFlags) -> Result<OwnedFd, Error> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        // An inode without a name is reached by the descriptor that is held for it.
        if let Ok(Some(file)) = self.table.open(node, tree.root(), flags) {
            return Ok(file);
        }
        let path = self.path(tree, node)?;
        Ok(open(link_to(path.as_fd()), flags, Mode::empty())?)
    }
}
