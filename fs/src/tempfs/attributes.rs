//! Reading and changing the attributes of inodes.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, StatVfs, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmod,
    chownat, ftruncate, utimensat,
};

use super::files::Access;
use super::lookup::stat;
use super::{Caller, TempFs, link_to};
use crate::attributes::{Attributes, FileTime};
use crate::error::Error;
use crate::node::Node;
use crate::sys::truncate;

const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;

/// What a time is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// The present time.
    Now,
    /// A time of the caller's choice.
    At(FileTime),
}

/// Attributes to be changed. With none of them it is the kernel's request to take set-id bits and
/// file capabilities away, since someone without the right to keep them has written to the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permissions.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Whether the size is changed through an open file, which is a modification even where the
    /// size stays what it is.
    pub through_open_file: bool,
    /// Time of last access.
    pub accessed: Option<TimeChange>,
    /// Time of last change.
    pub modified: Option<TimeChange>,
}

impl Changes {
    fn is_nothing(&self) -> bool {
        *self == Self { through_open_file: self.through_open_file, ..Self::default() }
    }

    fn touches_access(&self) -> bool {
        self.permissions.is_some() || self.uid.is_some() || self.gid.is_some()
    }
}

/// Of what the set-group-id bit goes with a change by someone outside the group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kinds {
    /// Of everything but directories, as with a change of contents or owner.
    Files,
    /// Of directories too, as with a change of the mode or of the ACL.
    All,
}

impl TempFs {
    /// From this many bytes on it takes the store a noticeable time to fill or empty a file.
    pub const LARGE: u64 = 64 << 20;

    /// Whether emptying an inode takes the store a noticeable time.
    #[must_use]
    pub fn is_large(&self, node: Node) -> bool {
        self.attributes(node).is_ok_and(|attributes| attributes.blocks * 512 > Self::LARGE)
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// The store's.
    pub fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        if node.is_above_generations() {
            return self.structure().attributes(node).ok_or(Error::Forgotten);
        }
        let tree = self.tree(node)?;
        let path = self.path(&tree, node)?;
        Ok(Attributes::from_statx(node, &stat(path.as_fd(), OsStr::new(""))?))
    }

    /// Changes attributes, and answers with all of them.
    ///
    /// # Errors
    /// The store's; for structural directories as the namespace allows.
    pub fn change(
        &self,
        caller: &Caller,
        node: Node,
        changes: &Changes,
    ) -> Result<Attributes, Error> {
        if node.is_above_generations() {
            return self.change_structural(node, changes);
        }
        let mut changes = *changes;
        if self.structure().is_structural(node) && changes.touches_access() {
            self.accept_without_effect(caller, node, &changes)?;
            changes = Changes { permissions: None, uid: None, gid: None, ..changes };
            if changes.is_nothing() {
                return self.attributes(node);
            }
        }
        let tree = self.tree(node)?;
        let path = self.path(&tree, node)?;
        // To root's change of a file with capabilities this comes too, when the kernel has taken
        // those away by a request of their own; root keeps the set-id bits.
        if changes.is_nothing() && caller.uid != 0 {
            self.drop_privileges(caller, &path)?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            // By the group that the file has, not by the one that it gets.
            self.drop_foreign_group(caller, &path, Kinds::Files)?;
            let uid = changes.uid.map(Uid::from_raw);
            let gid = changes.gid.map(Gid::from_raw);
            chownat(&path, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(permissions) = changes.permissions {
            chmod(link_to(&path), Mode::from_raw_mode(permissions.into()))?;
        }
        if let Some(size) = changes.size {
            if changes.through_open_file {
                ftruncate(self.file(&tree, node, Access::Write)?, size)?;
            } else {
                truncate(&link_to(&path), size)?;
            }
            self.commons.changed(node);
            if caller.uid != 0 {
                self.drop_privileges(caller, &path)?;
            }
        }
        if changes.accessed.is_some() || changes.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(changes.accessed),
                last_modification: timespec(changes.modified),
            };
            utimensat(CWD, link_to(&path), &times, AtFlags::empty())?;
        }
        Ok(Attributes::from_statx(node, &stat(path.as_fd(), OsStr::new(""))?))
    }

    /// Times can be set on every directory, so that a tree can be copied to it with its times.
    fn change_structural(&self, node: Node, changes: &Changes) -> Result<Attributes, Error> {
        if changes.touches_access() || changes.size.is_some() {
            return Err(Error::AboveGenerations);
        }
        let now = self.structure().now();
        let time = |change: Option<TimeChange>| match change {
            None => None,
            Some(TimeChange::Now) => Some(now),
            Some(TimeChange::At(time)) => Some(time),
        };
        if changes.accessed.is_some() || changes.modified.is_some() {
            self.structure()
                .set_times(node, time(changes.accessed), time(changes.modified))
                .ok_or(Error::Forgotten)?;
        }
        self.attributes(node)
    }

    /// Mode and owner of a generation's or a lease's directory stay what they are. Whoever sets
    /// them to what they are, or owns the directory, isn't told so: `cp -a` and `tar` do both.
    fn accept_without_effect(
        &self,
        caller: &Caller,
        node: Node,
        changes: &Changes,
    ) -> Result<(), Error> {
        let present = self.attributes(node)?;
        let same = changes.permissions.is_none_or(|wanted| wanted == present.permissions)
            && changes.uid.is_none_or(|wanted| wanted == present.uid)
            && changes.gid.is_none_or(|wanted| wanted == present.gid);
        if same || caller.uid == present.uid { Ok(()) } else { Err(Error::AboveGenerations) }
    }

    /// Takes set-id bits away, as a write by someone without the right to keep them does. Giving a
    /// file to whom it belongs does that, and it is also what a `chown` to nobody in particular
    /// comes here as. Where there are none nothing is touched: the change time would tell.
    pub(super) fn drop_privileges(&self, caller: &Caller, path: &OwnedFd) -> Result<(), Error> {
        let present = Attributes::from_statx(Node::ROOT, &stat(path.as_fd(), OsStr::new(""))?);
        if present.permissions & (SET_USER_ID | SET_GROUP_ID) == 0 {
            return Ok(());
        }
        chownat(path, "", None, None, AtFlags::EMPTY_PATH)?;
        self.drop_foreign_group(caller, path, Kinds::Files)
    }

    /// Without group execution the set-group-id bit stays, except where someone outside the group
    /// changes the file. Only the kernel knows the caller's groups; it doesn't send them along.
    pub(super) fn drop_foreign_group(
        &self,
        caller: &Caller,
        path: &OwnedFd,
        kinds: Kinds,
    ) -> Result<(), Error> {
        if caller.uid == 0 {
            return Ok(());
        }
        let present = Attributes::from_statx(Node::ROOT, &stat(path.as_fd(), OsStr::new(""))?);
        let permissions = present.permissions;
        if permissions & SET_GROUP_ID != 0
            && (kinds == Kinds::All || !present.is_directory())
            && !caller.is_in_group(present.gid)
        {
            let mode = Mode::from_raw_mode((permissions & !SET_GROUP_ID).into());
            chmod(link_to(path), mode)?;
        }
        Ok(())
    }

    /// What the filesystem beneath an inode has and has left.
    ///
    /// # Errors
    /// The store's.
    pub fn statistics(&self, node: Node) -> Result<Option<StatVfs>, Error> {
        if node.is_above_generations() {
            return Ok(None);
        }
        Ok(Some(self.tree(node)?.statistics()?))
    }
}

fn timespec(change: Option<TimeChange>) -> Timespec {
    match change {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeChange::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeChange::At(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
        }
    }
}
