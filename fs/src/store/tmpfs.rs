//! Memory as a store: a tmpfs of its own for each generation, mounted nowhere.
//!
//! It must never be attached to a path, in no mount namespace.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick,
};

use super::{Limits, StoreError, Tree, refused};

/// Inodes that the store itself has in a generation's tmpfs: its root and the tree's.
pub(super) const OWN_INODES: u64 = 2;

pub(super) fn make(limits: Limits) -> Result<OwnedFd, StoreError> {
    let context =
        fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(refused("asking for a tmpfs"))?;
    fsconfig_set_string(&context, "source", "holdfast-generation")
        .map_err(refused("naming the tmpfs"))?;
    fsconfig_set_string(&context, "mode", "0700").map_err(refused("closing the tmpfs"))?;
    fsconfig_set_flag(&context, "inode64").map_err(refused("asking for wide inode numbers"))?;
    set_limits(&context, limits)?;
    fsconfig_create(&context).map_err(refused("making the tmpfs"))?;
    fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .map_err(refused("mounting the tmpfs nowhere"))
}

pub(super) fn resize(tree: &Tree, limits: Limits) -> Result<(), StoreError> {
    let context =
        fspick(tree.home()?, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)
            .map_err(refused("picking the tmpfs"))?;
    set_limits(&context, limits)?;
    fsconfig_reconfigure(&context).map_err(unfit("resizing the tmpfs"))
}

/// Of limits the kernel says no more than that it can't.
fn unfit(step: &'static str) -> impl FnOnce(Errno) -> StoreError {
    move |errno| match errno {
        Errno::INVAL | Errno::RANGE => StoreError::Unfit,
        errno => StoreError::Refused { step, errno },
    }
}

fn set_limits(context: impl AsFd, limits: Limits) -> Result<(), StoreError> {
    if let Some(size) = limits.size {
        fsconfig_set_string(&context, "size", size.to_string())
            .map_err(unfit("limiting the bytes"))?;
    }
    if let Some(inodes) = limits.inodes {
        fsconfig_set_string(&context, "nr_inodes", inodes.saturating_add(OWN_INODES).to_string())
            .map_err(unfit("limiting the inodes"))?;
    }
    Ok(())
}
