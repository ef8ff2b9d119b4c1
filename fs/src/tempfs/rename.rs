//! Moving names.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;

use super::lookup::stat;
use super::{Attempt, Caller, TempFs};
use crate::error::Error;
use crate::node::Node;
use std::os::fd::AsFd;

impl TempFs {
    /// Moves a name, over another one, to a free one (`NOREPLACE`), or against another one
    /// (`EXCHANGE`).
    ///
    /// # Errors
    /// The store's; `EBUSY` where a structural directory would be moved or replaced, `EXDEV`
    /// between generations.
    pub fn rename(
        &self,
        caller: &Caller,
        (old_parent, old_name): (Node, &OsStr),
        (new_parent, new_name): (Node, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Error> {
        // Names that an overlay would leave behind are of no use here.
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(Error::Invalid);
        }
        if old_parent.is_above_generations() {
            return Err(self.refuse_above(caller, Attempt::Rename, old_parent, old_name));
        }
        if new_parent.is_above_generations() {
            return Err(match self.structure().child(new_parent, new_name) {
                Some(_) => self.refuse(caller, Attempt::Replace, new_parent, new_name),
                None => Error::AboveGenerations,
            });
        }
        if old_parent.generation() != new_parent.generation() {
            return Err(Error::OtherGeneration);
        }
        let (tree, old_directory) = self.place(old_parent, old_name)?;
        let new_directory = if new_parent == old_parent {
            Arc::clone(&old_directory)
        } else {
            self.place(new_parent, new_name)?.1
        };
        let source = stat(old_directory.as_fd(), old_name)?.stx_ino;
        // Only a generation's own directory has structural ones in it.
        if old_parent == tree.root_node()
            && tree.node(source).is_some_and(|node| self.structure().is_structural(node))
        {
            return Err(self.refuse(caller, Attempt::Rename, old_parent, old_name));
        }
        let victim = match self.victim(&tree, new_parent, &new_directory, new_name) {
            Ok(Some(victim)) => Some(victim),
            Ok(None) => return Err(self.refuse(caller, Attempt::Replace, new_parent, new_name)),
            Err(Error::Store(Errno::NOENT)) => None,
            Err(error) => return Err(error),
        };
        let same = victim.as_ref().is_some_and(|victim| victim.is_inode(source));
        renameat_with(&old_directory, old_name, &new_directory, new_name, flags)?;
        // Two names of one inode: both stay. Exchanged names: nothing is lost.
        if same || flags.contains(RenameFlags::EXCHANGE) {
            return Ok(());
        }
        self.note_absence(&tree, old_parent, old_name);
        if let Some(victim) = victim {
            self.bury(victim);
        }
        Ok(())
    }
}
