//! The tree of one generation.
//!
//! It must never be reached by a path; its one descriptor is all that keeps it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, StatVfs, StatxFlags, Uid, fchmod, fchown, fstatvfs, mkdirat,
    openat, statx, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::absent::Absent;
use super::tmpfs::OWN_INODES;
use super::{Ownership, StoreError, refused};
use crate::node::{GenerationKey, Node};
use crate::registry::Usage;
use crate::sys::{name_to_handle, open_by_handle};

/// How a directory is opened that must be one.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A generation's files.
#[derive(Debug)]
pub struct Tree {
    key: GenerationKey,
    root: OwnedFd,
    root_node: Node,
    handles: bool,
    absent: Absent,
}

impl Tree {
    /// Makes the tree in an empty directory of its own.
    pub(super) fn plant(
        key: GenerationKey,
        home: impl AsFd,
        ownership: Ownership,
    ) -> Result<Self, StoreError> {
        mkdirat(&home, "tree", Mode::RWXU).map_err(refused("making the tree"))?;
        let root = Self::open(&home).map_err(refused("opening the tree"))?;
        let tree = Self::at(key, root)?;
        own(tree.root.as_fd(), ownership)?;
        Ok(tree)
    }

    /// The tree that was made in a directory of its own, if there is one.
    pub(super) fn find(key: GenerationKey, home: impl AsFd) -> Result<Option<Self>, StoreError> {
        match Self::open(&home) {
            Ok(root) => Self::at(key, root).map(Some),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(refused("opening the tree")(errno)),
        }
    }

    fn open(home: impl AsFd) -> Result<OwnedFd, Errno> {
        openat(&home, "tree", DIRECTORY, Mode::empty())
    }

    fn at(key: GenerationKey, root: OwnedFd) -> Result<Self, StoreError> {
        let inode = statx(&root, "", AtFlags::EMPTY_PATH, StatxFlags::INO)
            .map_err(refused("looking at the tree"))?
            .stx_ino;
        Ok(Self {
            key,
            handles: Self::tries_handles(root.as_fd()),
            root,
            root_node: Node::new(key, inode).ok_or(StoreError::InodeTooLarge(inode))?,
            absent: Absent::default(),
        })
    }

    /// Handles are refused without `CAP_DAC_READ_SEARCH`, and some filesystems have none.
    fn tries_handles(root: BorrowedFd<'_>) -> bool {
        name_to_handle(root, c"", AtFlags::EMPTY_PATH)
            .and_then(|handle| open_by_handle(root, &handle, OFlags::PATH))
            .is_ok()
    }

    /// Makes a directory for a private lease in the root of the tree.
    pub(crate) fn make_directory(
        &self,
        name: &str,
        ownership: Ownership,
    ) -> Result<Node, StoreError> {
        mkdirat(&self.root, name, Mode::RWXU).map_err(refused("making the lease's directory"))?;
        // The session's owner may put something else in its place at once: what isn't a directory of
        // the daemon's own is never given away.
        let opened = openat(&self.root, name, DIRECTORY, Mode::empty())
            .map_err(refused("opening the lease's directory"))?;
        let facts = statx(&opened, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(refused("looking at the lease's directory"))?;
        if facts.stx_uid != geteuid().as_raw() {
            let step = "making the lease's directory, which somebody replaced";
            return Err(StoreError::Refused { step, errno: Errno::STALE });
        }
        own(opened.as_fd(), ownership)?;
        self.node(facts.stx_ino).ok_or(StoreError::InodeTooLarge(facts.stx_ino))
    }

    /// Removes a directory for a private lease that was made just now.
    pub(crate) fn remove_directory(&self, name: &str) -> Result<(), StoreError> {
        unlinkat(&self.root, name, AtFlags::REMOVEDIR)
            .map_err(refused("removing the lease's directory"))
    }

    /// The node of a directory in the root of the tree.
    pub(crate) fn directory_node(&self, name: &str) -> Result<Node, StoreError> {
        let inode = statx(&self.root, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO)
            .map_err(refused("looking at the lease's directory"))?
            .stx_ino;
        self.node(inode).ok_or(StoreError::InodeTooLarge(inode))
    }

    /// The key of the generation.
    #[must_use]
    pub const fn key(&self) -> GenerationKey {
        self.key
    }

    /// The node of the generation's directory.
    #[must_use]
    pub const fn root_node(&self) -> Node {
        self.root_node
    }

    /// The directory itself; as a descriptor of the store's filesystem it also opens handles.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Whether inodes are reached by handle, at the cost of no descriptor.
    pub(crate) const fn has_handles(&self) -> bool {
        self.handles
    }

    /// The directory that the tree stands in.
    pub(super) fn home(&self) -> Result<OwnedFd, StoreError> {
        openat(&self.root, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(refused("opening the directory of the tree"))
    }

    /// What the filesystem of the tree has and has left.
    pub(crate) fn statistics(&self) -> Result<StatVfs, Errno> {
        fstatvfs(&self.root)
    }

    /// Whether the store has no inode left for it.
    pub(crate) fn has_no_inodes(&self) -> bool {
        self.statistics().is_ok_and(|statistics| statistics.f_ffree == 0)
    }

    /// What the tree uses, where it has a filesystem of its own.
    ///
    /// # Errors
    /// Where the kernel doesn't tell.
    pub fn used(&self) -> Result<Usage, StoreError> {
        let statistics = self.statistics().map_err(refused("asking for the room used"))?;
        Ok(Usage {
            bytes: statistics.f_blocks.saturating_sub(statistics.f_bfree) * statistics.f_frsize,
            inodes: statistics
                .f_files
                .saturating_sub(statistics.f_ffree)
                .saturating_sub(OWN_INODES),
        })
    }

    /// Names that the kernel was told are not there.
    pub(crate) const fn absent(&self) -> &Absent {
        &self.absent
    }

    /// The node of an inode. The store may give the number of an inode that is gone to another one;
    /// an inode that has lost its name is kept for as long as the kernel knows its number.
    pub(crate) fn node(&self, inode: u64) -> Option<Node> {
        Node::new(self.key, inode)
    }
}

/// Gives an open directory to its owner.
fn own(directory: BorrowedFd<'_>, ownership: Ownership) -> Result<(), StoreError> {
    let (uid, gid) = (Uid::from_raw(ownership.uid), Gid::from_raw(ownership.gid));
    fchown(directory, Some(uid), Some(gid))
        .map_err(refused("giving the directory to its owner"))?;
    fchmod(directory, Mode::from_raw_mode(ownership.permissions.into()))
        .map_err(refused("setting the mode of the directory"))
}
