//! Takes mounts of ours away: never one that has something else mounted on it or in it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::helper;
use super::identity::{Entry, Identity, Table};
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
    // Somebody may take it away before us, or while we are about it.
    let Some(listed) = listed(identity)? else { return Ok(()) };
    match detach_listed(identity, &listed, host) {
        Err(fault) if self::listed(identity)?.is_some() => Err(fault),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The line of the kernel's table for a mount, as long as there is one.
fn listed(identity: Identity) -> Result<Option<Entry>, Fault> {
    let table = read_table()?;
    let ours = |entry: &&Entry| entry.device == identity.device && entry.is_holdfast();
    Ok(table.by_id(identity.id).filter(ours).cloned())
}

fn read_table() -> Result<Table, Fault> {
    Table::read().map_err(|error| Fault::System {
        step: "read the table of mounts",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })
}

fn detach_listed(identity: Identity, listed: &Entry, host: Host) -> Result<(), Fault> {
    if let Some(foreign) = read_table()?.above(identity.id).first() {
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
    let Ok(Some(found)) = place.look() else {
        return Err(elsewhere("nothing is found at its path"));
    };
    match Identity::of(found.as_fd()) {
        Ok(here) if here == identity => detach(&place, &found, host),
        // The number in the table is another mount's by now, so ours is gone.
        Ok(here) if here.id == identity.id => Ok(()),
        Ok(_) | Err(_) => Err(elsewhere("the path leads to something else")),
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
