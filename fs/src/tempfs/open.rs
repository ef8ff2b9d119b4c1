//! Opening and releasing files.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{OFlags, ftruncate};

use super::files::Access;
use super::{Caller, Kernel, TempFs};
use crate::error::Error;
use crate::inode_table::Opened;
use crate::node::Node;
use crate::store::Tree;

/// In a handle, that the file is open for writing.
const WRITES: u64 = 1 << 32;

/// A file that the kernel has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// What the release brings along.
    pub handle: u64,
    /// The registered file that the kernel reads and writes by itself, or `None` where data goes
    /// through the page cache and this process.
    pub backing: Option<u32>,
    /// What becomes of the pages that the kernel has of a file that isn't passed through.
    pub pages: Pages,
}

/// What the kernel may do with pages of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Keep those from an earlier open: every change came through it.
    Kept,
    /// Read them anew: where some files are passed through, one that isn't may have been before,
    /// and its pages be older than its contents.
    Fresh,
    /// Have none: the file can be changed through another connection at any time.
    Bypassed,
}

impl TempFs {
    /// Opens a regular file, emptying it first where the flags say so.
    ///
    /// # Errors
    /// The store's.
    pub fn open(&self, caller: &Caller, node: Node, flags: OFlags) -> Result<OpenFile, Error> {
        let tree = self.tree(node)?;
        let opened = match self.table.opened(node, None, |file| self.register(file))? {
            Some(opened) => opened,
            None => {
                let path = self.path(&tree, node)?;
                self.table
                    .opened(node, Some(path.as_fd()), |file| self.register(file))?
                    .ok_or(Error::Forgotten)?
            }
        };
        let writes = flags & OFlags::ACCMODE != OFlags::RDONLY;
        let opened = self.open_file_of(node, opened, writes);
        match self.prepare(caller, &tree, node, flags, opened.backing.is_none()) {
            Ok(()) => Ok(opened),
            Err(error) => {
                self.release(node, opened.handle);
                Err(error)
            }
        }
    }

    /// What an open does to the file, and what it needs here where its data come through here.
    fn prepare(
        &self,
        caller: &Caller,
        tree: &Tree,
        node: Node,
        flags: OFlags,
        here: bool,
    ) -> Result<(), Error> {
        let access = match flags & OFlags::ACCMODE {
            OFlags::RDONLY => Access::Read,
            _ => Access::Write,
        };
        if flags.contains(OFlags::TRUNC) {
            ftruncate(self.file(tree, node, Access::Write)?, 0)?;
            self.commons.changed(node);
            if caller.uid != 0 {
                self.drop_privileges(caller, &*self.path(tree, node)?)?;
            }
        } else if here {
            self.file(tree, node, access)?;
        }
        Ok(())
    }

    /// Opens a file that has just been made, whose descriptor can do what its mode may forbid.
    pub(super) fn open_new(&self, node: Node, file: OwnedFd) -> Result<OpenFile, Error> {
        let opened = self
            .table
            .opened(node, Some(file.as_fd()), |file| self.register(file))?
            .ok_or(Error::Forgotten)?;
        if opened.backing.is_none() {
            self.files.keep(node, file);
        }
        Ok(self.open_file_of(node, opened, true))
    }

    fn open_file_of(&self, node: Node, opened: Opened, writes: bool) -> OpenFile {
        if writes {
            self.writers.fetch_add(1, Ordering::AcqRel);
            if self.tree(node).is_ok_and(|tree| tree.begins_to_be_written()) {
                self.commons.written();
            }
        }
        OpenFile {
            handle: u64::from(opened.incarnation) | if writes { WRITES } else { 0 },
            backing: opened.backing,
            pages: if !self.may_be_remembered() {
                Pages::Bypassed
            } else if self.kernel().is_some_and(Kernel::registers) {
                Pages::Fresh
            } else {
                Pages::Kept
            },
        }
    }

    fn register(&self, file: BorrowedFd<'_>) -> Option<u32> {
        self.kernel()?.register(file).ok()
    }

    /// Ends an open.
    pub fn release(&self, node: Node, handle: u64) {
        let Ok(incarnation) = u32::try_from(handle & !WRITES) else { return };
        if handle & WRITES != 0 {
            let one_less = |writers: usize| writers.checked_sub(1);
            // A connection that was taken over began to count late.
            let _ = self.writers.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
        }
        let backing = self.table.released(node, incarnation);
        if self.table.opens(node) == 0 {
            self.files.released(node, self.table.is_unlinked(node));
        }
        self.unregister(backing);
    }
}
