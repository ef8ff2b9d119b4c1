//! Taking names away, and what becomes of inodes without a name.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, unlinkat};

use super::lookup::{path_of, stat};
use super::{Attempt, Caller, TempFs};
use crate::attributes::Attributes;
use crate::error::Error;
use crate::node::Node;
use crate::store::Tree;

/// An inode that is about to lose a name.
///
/// What is known of it here stays true until the name is gone: the kernel holds the locks of the
/// directory and of the inode over the whole request, so nothing can be linked or renamed meanwhile
/// through the same connection. Through another one it can, and an inode whose last two names go at
/// once by way of two connections is then not kept beyond that where it was reached by a handle.
pub(super) struct Victim {
    node: Option<Node>,
    inode: u64,
    path: OwnedFd,
    last_name: bool,
}

impl Victim {
    /// Whether it is the inode with this number.
    pub(super) const fn is_inode(&self, inode: u64) -> bool {
        self.inode == inode
    }
}

impl TempFs {
    /// Removes the name of something that isn't a directory.
    ///
    /// # Errors
    /// The store's; `EBUSY` where the directory is structural.
    pub fn unlink(&self, caller: &Caller, parent: Node, name: &OsStr) -> Result<(), Error> {
        self.remove(caller, parent, name, AtFlags::empty())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The store's; `EBUSY` where the directory is structural.
    pub fn remove_directory(
        &self,
        caller: &Caller,
        parent: Node,
        name: &OsStr,
    ) -> Result<(), Error> {
        self.remove(caller, parent, name, AtFlags::REMOVEDIR)
    }

    fn remove(
        &self,
        caller: &Caller,
        parent: Node,
        name: &OsStr,
        flags: AtFlags,
    ) -> Result<(), Error> {
        if parent.is_above_generations() {
            return Err(self.refuse_above(caller, Attempt::Remove, parent, name));
        }
        let (tree, directory) = self.place(parent, name)?;
        let Some(victim) = self.victim(&tree, parent, &directory, name)? else {
            return Err(self.refuse(caller, Attempt::Remove, parent, name));
        };
        unlinkat(&directory, name, flags)?;
        self.note_absence(&tree, parent, name);
        self.bury(victim);
        Ok(())
    }

    /// What stands above the generations can't be removed, and nothing else is there.
    pub(super) fn refuse_above(
        &self,
        caller: &Caller,
        attempt: Attempt,
        parent: Node,
        name: &OsStr,
    ) -> Error {
        if self.structure().child(parent, name).is_some() {
            self.refuse(caller, attempt, parent, name)
        } else {
            Error::NoEntry
        }
    }

    /// What a name is about to be taken from; `None` for a structural directory.
    pub(super) fn victim(
        &self,
        tree: &Tree,
        parent: Node,
        directory: &OwnedFd,
        name: &OsStr,
    ) -> Result<Option<Victim>, Error> {
        let path = path_of(directory.as_fd(), name)?;
        let statx = stat(path.as_fd(), OsStr::new(""))?;
        let node = tree.node(statx.stx_ino);
        if parent == tree.root_node()
            && node.is_some_and(|node| self.structure().is_structural(node))
        {
            return Ok(None);
        }
        let attributes = Attributes::from_statx(parent, &statx);
        let last_name = attributes.is_directory() || attributes.links <= 1;
        Ok(Some(Victim { node, inode: statx.stx_ino, path, last_name }))
    }

    /// Sees to an inode that has lost a name: without any name it is kept for as long as the
    /// kernel knows it, and what is registered for it ends with its last open.
    pub(super) fn bury(&self, victim: Victim) {
        let Some(node) = victim.node.filter(|_| victim.last_name) else { return };
        let path = Arc::new(victim.path);
        if self.commons.are_several() {
            for connection in self.commons.connections() {
                connection.bury_here(node, Arc::clone(&path));
            }
        } else {
            self.bury_here(node, path);
        }
        self.relieve();
    }

    fn bury_here(&self, node: Node, path: Arc<OwnedFd>) {
        self.table.keep_unlinked(node, path);
        if self.table.opens(node) == 0 {
            self.files.forget(node);
        }
        let backing = self.table.close_if_idle(node);
        self.unregister(backing);
    }
}
