//! Making names: files, directories, symlinks, special files, further links.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawMode, linkat, makedev, mkdirat, mknodat, openat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::lookup::stat;
use super::open::OpenFile;
use super::{Caller, TempFs, link_to};
use crate::attributes::{Attributes, decode_device};
use crate::error::Error;
use crate::node::Node;
use crate::store::Tree;

/// A name to be made, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// Who asks.
    pub caller: Caller,
    /// The directory.
    pub parent: Node,
    /// The name.
    pub name: &'a OsStr,
    /// Type and permissions, not masked.
    pub mode: u32,
    /// The caller's umask, for the store to apply unless the directory has a default ACL.
    pub umask: u32,
}

impl TempFs {
    /// Makes a directory.
    ///
    /// # Errors
    /// The store's.
    pub fn make_directory(&self, new: &NewFile<'_>) -> Result<Attributes, Error> {
        let (tree, directory) = self.new_place(new)?;
        mkdirat(&directory, new.name, permissions(new.mode))?;
        self.enter_new(&tree, &directory, new.name, AtFlags::REMOVEDIR)
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// The store's.
    pub fn make_symlink(&self, new: &NewFile<'_>, target: &Path) -> Result<Attributes, Error> {
        let (tree, directory) = self.new_place(new)?;
        symlinkat(target, &directory, new.name)?;
        self.enter_new(&tree, &directory, new.name, AtFlags::empty())
    }

    /// Makes a file, a fifo, a socket or a device.
    ///
    /// # Errors
    /// The store's.
    pub fn make_node(&self, new: &NewFile<'_>, device: u32) -> Result<Attributes, Error> {
        let kind = FileType::from_raw_mode(new.mode as RawMode);
        let (major, minor) = decode_device(device);
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        // The character device 0:0 is no device; overlay filesystems mark removed names with it.
        let is_whiteout = kind == FileType::CharacterDevice && device == 0;
        if is_device && !is_whiteout && new.caller.uid != 0 {
            return Err(Error::Device);
        }
        let (tree, directory) = self.new_place(new)?;
        mknodat(&directory, new.name, kind, permissions(new.mode), makedev(major, minor))?;
        self.enter_new(&tree, &directory, new.name, AtFlags::empty())
    }

    /// Makes a regular file and opens it.
    ///
    /// # Errors
    /// The store's.
    pub fn create(
        &self,
        new: &NewFile<'_>,
        flags: OFlags,
    ) -> Result<(Attributes, OpenFile), Error> {
        let (tree, directory) = self.new_place(new)?;
        let made = openat(
            &directory,
            new.name,
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            permissions(new.mode),
        );
        let file = match made {
            Ok(file) => file,
            // The kernel asks for a file to be made only where it knows of none. It checked nobody's
            // right to open this one: it has to look again.
            Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => return Err(Errno::STALE.into()),
            Err(errno) => return Err(errno.into()),
        };
        let statx = stat(file.as_fd(), OsStr::new(""))?;
        let entered = if tree.has_handles() {
            self.enter_known(&tree, file.as_fd(), OsStr::new(""), &statx)
        } else {
            self.enter_known(&tree, directory.as_fd(), new.name, &statx)
        };
        let attributes = undo_unless(entered, &directory, new.name, AtFlags::empty())?;
        let open = self.open_new(attributes.node, file).inspect_err(|_| {
            self.forget(attributes.node, 1);
        });
        let open = undo_unless(open, &directory, new.name, AtFlags::empty())?;
        Ok((attributes, open))
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// The store's; `EXDEV` between generations.
    pub fn link(&self, node: Node, parent: Node, name: &OsStr) -> Result<Attributes, Error> {
        if parent.is_above_generations() || node.is_above_generations() {
            return Err(Error::AboveGenerations);
        }
        if parent.generation() != node.generation() {
            return Err(Error::OtherGeneration);
        }
        let (tree, directory) = self.place(parent, name)?;
        let path = self.path(&tree, node)?;
        linkat(CWD, link_to(&path), &directory, name, AtFlags::SYMLINK_FOLLOW)?;
        let entered = stat(path.as_fd(), OsStr::new("")).map_err(Error::from).and_then(|statx| {
            let known = self.table.remember_again(node);
            known.then(|| Attributes::from_statx(node, &statx)).ok_or(Error::Forgotten)
        });
        undo_unless(entered, &directory, name, AtFlags::empty())
    }

    /// The directory that something is made in, by a thread that now has the caller's identity.
    fn new_place(
        &self,
        new: &NewFile<'_>,
    ) -> Result<(std::sync::Arc<Tree>, std::sync::Arc<OwnedFd>), Error> {
        if new.parent.is_above_generations() {
            return Err(Error::AboveGenerations);
        }
        let place = self.place(new.parent, new.name)?;
        self.act_for(&new.caller, new.umask)?;
        Ok(place)
    }

    /// Counts the look-up of what has just been made, or unmakes it: a name must not stay behind
    /// that the caller was told there isn't.
    fn enter_new(
        &self,
        tree: &Tree,
        directory: &OwnedFd,
        name: &OsStr,
        removal: AtFlags,
    ) -> Result<Attributes, Error> {
        undo_unless(self.enter(tree, directory.as_fd(), name), directory, name, removal)
    }
}

fn undo_unless<T>(
    made: Result<T, Error>,
    directory: &OwnedFd,
    name: &OsStr,
    removal: AtFlags,
) -> Result<T, Error> {
    made.inspect_err(|error| {
        if let Err(errno) = unlinkat(directory, name, removal) {
            tracing::error!(%error, %errno, "a file that could not be served could not be unmade");
        }
    })
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}
