//! Takes mounts of ours away: never one that has something else mounted on it or in it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::helper;
use super::identity::{Identity, Table};
use crate::config::Host;
use crate::fault::Fault;
use crate::place::{Place, in_proc};

/// Takes away a mount that an earlier daemon of ours has left behind.
pub(super) fn detach_abandoned(place: &Place, found: OwnedFd, host: Host) -> Result<(), Fault> {
    let identity = Identity::of(found.as_fd()).map_err(|errno| stale(place, errno.to_string()))?;
    let table = Table::read().map_err(|error| stale(place, error.to_string()))?;
    if let Some(foreign) = table.above(identity.id).first() {
        let what = format!("{} is mounted in it", foreign.mountpoint.display());
        return Err(stale(place, what));
    }
    detach(place, &found, host)?;
    tracing::warn!(path = %place.path().display(), "replaced the stale mount of an earlier daemon");
    Ok(())
}

/// Takes a mount away that is known to be ours, wherever it is by now.
pub(super) fn detach_known(identity: Identity, host: Host) -> Result<(), Fault> {
    let unreadable = |error: std::io::Error| Fault::System {
        step: "read the table of mounts",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    };
    let table = Table::read().map_err(unreadable)?;
    let listed = table.by_id(identity.id).filter(|entry| entry.device == identity.device);
    // Else somebody has taken it away before us.
    let Some(listed) = listed else { return Ok(()) };
    if let Some(foreign) = table.above(identity.id).first() {
        return Err(Fault::MountpointForeignMount {
            path: foreign.mountpoint.clone(),
            fstype: foreign.fstype.clone(),
            source: foreign.source.clone(),
            owner: foreign.holdfast_owner(),
        });
    }
    let elsewhere = |cause: &str| Fault::MountStale {
        path: listed.mountpoint.clone(),
        cause: cause.to_owned(),
    };
    let place = Place::of(&listed.mountpoint).map_err(|_| elsewhere("its path can't be found"))?;
    let found = place.look().ok().flatten();
    match found.and_then(|found| Some((Identity::of(found.as_fd()).ok()?, found))) {
        Some((present, found)) if present == identity => detach(&place, &found, host),
        // The number that is listed belongs to a later mount of the same filesystem.
        Some((present, _)) if present.id == identity.id => Ok(()),
        _ => Err(elsewhere("the path leads to something else")),
    }
}

/// Takes a mount away that was found at a place and is known to be ours.
fn detach(place: &Place, found: &OwnedFd, host: Host) -> Result<(), Fault> {
    if host.privileged {
        // By descriptor: this mount and no other, whatever the path leads to by now.
        return unmount(in_proc(found.as_fd()), UnmountFlags::DETACH)
            .map_err(|errno| stale(place, errno.to_string()));
    }
    let mut helper = helper::command();
    helper.args(["-u", "-z", "--"]).arg(place.path()).stdin(Stdio::null());
    helper::run(place.path(), &mut helper).map(drop)
}

fn stale(place: &Place, cause: impl Into<String>) -> Fault {
    Fault::MountStale { path: place.path().to_owned(), cause: cause.into() }
}
