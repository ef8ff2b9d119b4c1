//! What the worker does to itself before it has a thread: namespaces, death with its keeper.

use std::fs;

use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{
    DumpableBehavior, Signal, getegid, geteuid, getppid, set_dumpable_behavior,
    set_parent_process_death_signal,
};

use crate::fault::Fault;
use crate::sys::enter_new_namespaces;

/// Takes the worker along when its keeper dies, however that happens.
pub(super) fn die_with(keeper: u32) -> Result<(), Fault> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Fault::System { step: "ask to die with the keeper", errno })?;
    // It may have died before that; whoever is the parent now isn't the one.
    let parent = getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
    if parent == Some(keeper) { Ok(()) } else { Err(Fault::Stopping) }
}

/// Enters a user namespace in which this process may mount and open whatever its user owns. There
/// it keeps the ids that it has.
///
/// The keeper must stay outside: `fusermount3` serves nobody in here.
pub(crate) fn enter_user_namespace() -> Result<(), Fault> {
    let refused = |step| move |errno| Fault::UsernsRefused { step, errno };
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    enter_new_namespaces().map_err(refused("unshare the user and the mount namespace"))?;
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1")),
    ] {
        fs::write(file, text)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            .map_err(refused("map the user and the group"))?;
    }
    // Only now: the maps of a process that can't be dumped belong to root.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(refused("keep other processes of the user out"))
}

/// Whether a tmpfs can be had; there are hosts that grant the namespace and then nothing in it.
pub(crate) fn try_tmpfs(privileged: bool) -> Result<(), Fault> {
    let refused = |step: &'static str| {
        move |errno| match (errno, privileged) {
            (Errno::NOSYS, _) => Fault::KernelTooOld { missing: "fsopen", errno },
            (errno, false) => Fault::UsernsRefused { step, errno },
            (errno, true) => Fault::StoreUnusable { step: step.to_owned(), errno },
        }
    };
    let setup = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(refused("begin a tmpfs"))?;
    fsconfig_create(&setup).map_err(refused("make a tmpfs"))?;
    fsmount(&setup, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        .map_err(refused("make the mount of a tmpfs"))?;
    Ok(())
}
