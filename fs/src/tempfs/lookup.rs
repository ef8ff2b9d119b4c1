//! Names to inodes, and the end of the kernel's interest in them.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat, statx};
use rustix::io::Errno;

use super::{Kernel, TempFs, c_name, check_name, expect_unknown};
use crate::attributes::Attributes;
use crate::error::Error;
use crate::inode_table::Reach;
use crate::node::Node;
use crate::store::{Absence, Tree};
use crate::sys::{FileHandle, name_to_handle};

/// How long a request waits for descriptors at the most.
const PATIENCE: Duration = Duration::from_millis(50);

/// What a name led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An inode. It counts as looked up once.
    Inode(Attributes),
    /// Nothing, and the kernel may remember that: every later change comes through it.
    Nothing,
}

impl TempFs {
    /// Looks a name up.
    ///
    /// # Errors
    /// The store's.
    pub fn lookup(&self, parent: Node, name: &OsStr) -> Result<Found, Error> {
        if parent.is_above_generations() {
            return self.lookup_structural(parent, name).map(Found::Inode);
        }
        let (tree, directory) = self.place(parent, name)?;
        match self.enter(&tree, directory.as_fd(), name) {
            Ok(attributes) => Ok(Found::Inode(attributes)),
            Err(Error::Store(Errno::NOENT)) => {
                let known = |parent| self.table.knows(parent);
                if self.may_be_remembered() && tree.absent().add(parent, name, known) {
                    Ok(Found::Nothing)
                } else {
                    Err(Error::NoEntry)
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Notes a name that has just lost what it led to: the kernel remembers it as one that isn't
    /// there, also where it never was told so. Where too many are noted, its generation goes when
    /// the kernel forgets the name by itself.
    pub(super) fn note_absence(&self, tree: &Tree, parent: Node, name: &OsStr) {
        tree.absent().add(parent, name, |parent| self.commons.knows(parent));
    }

    /// Has the kernel give up what it remembers of names that are not there, in a generation that
    /// is to go. A name that has come into being since is left alone: something may be mounted on
    /// it. Never from a thread that serves.
    pub(crate) fn forget_absences(
        &self,
        kernel: &dyn Kernel,
        tree: &Tree,
        names: &HashSet<Absence>,
    ) {
        for absence in names {
            if !self.table.knows(absence.parent) {
                continue;
            }
            let Ok(directory) = self.path(tree, absence.parent) else { continue };
            if stat(directory.as_fd(), &absence.name).err() == Some(Errno::NOENT) {
                expect_unknown(kernel.invalidate_name(absence.parent, &absence.name));
            }
        }
    }

    /// Names above the generations come and go without the kernel's doing, so it is never told
    /// that there is nothing: that would be remembered.
    fn lookup_structural(&self, parent: Node, name: &OsStr) -> Result<Attributes, Error> {
        let node = self.structure().child(parent, name).ok_or(Error::NoEntry)?;
        if node.is_above_generations() {
            let attributes = self.structure().attributes(node).ok_or(Error::NoEntry)?;
            self.table.remember(node, true, || Ok(None))?;
            return Ok(attributes);
        }
        let tree = self.tree(node).map_err(|_| Error::NoEntry)?;
        self.enter(&tree, tree.root(), OsStr::new(""))
    }

    /// The attributes of a name in a directory of a tree, counted as looked up once. The empty
    /// name is the directory itself.
    pub(super) fn enter(
        &self,
        tree: &Tree,
        directory: BorrowedFd<'_>,
        name: &OsStr,
    ) -> Result<Attributes, Error> {
        let statx = stat(directory, name)?;
        self.enter_known(tree, directory, name, &statx)
    }

    /// The same, for whoever has the attributes already.
    pub(super) fn enter_known(
        &self,
        tree: &Tree,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        statx: &Statx,
    ) -> Result<Attributes, Error> {
        let node = tree.node(statx.stx_ino).ok_or(Error::Store(Errno::OVERFLOW))?;
        if self.table.remember_again(node) {
            return Ok(Attributes::from_statx(node, statx));
        }
        let is_directory = Attributes::from_statx(node, statx).is_directory();
        self.table.remember(node, is_directory, || {
            Ok(Some(if tree.has_handles() {
                Reach::Handle(handle_of(directory, name)?)
            } else {
                Reach::Descriptor(path_of(directory, name)?)
            }))
        })?;
        self.relieve();
        Ok(Attributes::from_statx(node, statx))
    }

    /// Takes look-ups back that the kernel no longer needs.
    pub fn forget(&self, node: Node, count: u64) {
        if node == Node::ROOT {
            return;
        }
        let backing = self.table.forget(node, count);
        if !self.table.knows(node) {
            self.files.forget(node);
            if node.is_above_generations() {
                self.commons.forget(node);
            }
            if self.commons.is_draining(node.generation())
                && let Some(attendant) = self.commons.attendant()
            {
                attendant.forgotten();
            }
        }
        self.unregister(backing);
    }

    /// Has the kernel asked for forgets where descriptors are short, and where they are used up
    /// gives it a moment to answer: a program makes files faster than a busy machine lets go of
    /// them.
    pub(super) fn relieve(&self) {
        if self.table.is_over_budget()
            && let Some(attendant) = self.commons.attendant()
        {
            attendant.descriptors_short();
            self.table.wait_for_room(PATIENCE);
        }
    }
}

/// `statx` of a name that isn't followed; the empty name is the descriptor's own inode.
pub(super) fn stat(directory: BorrowedFd<'_>, name: &OsStr) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    statx(directory, name, flags, StatxFlags::BASIC_STATS)
}

/// The handle of a name; the empty name is the descriptor's own inode.
fn handle_of(directory: BorrowedFd<'_>, name: &OsStr) -> Result<FileHandle, Errno> {
    name_to_handle(directory, &c_name(name)?, AtFlags::EMPTY_PATH)
}

/// A descriptor that names an inode and does nothing else.
pub(super) fn path_of(
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<std::os::fd::OwnedFd, Errno> {
    if name.is_empty() {
        return rustix::io::fcntl_dupfd_cloexec(directory, 0);
    }
    debug_assert!(check_name(name).is_ok());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}
