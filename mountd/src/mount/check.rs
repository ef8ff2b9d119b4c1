//! Whether the namespace may be mounted at a path.
//!
//! All of it is seen through a descriptor of the parent. What fails the check is never changed,
//! moved or removed; a missing mountpoint is made, and a mount that an earlier daemon of ours left
//! behind is detached.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;

use super::detach::detach_abandoned;
use super::identity::{Entry, Identity, Table};
use super::probe::{self, Served};
use crate::config::Host;
use crate::fault::Fault;
use crate::place::{Directory, Place, Problem, Wanted};

/// What is at a path at this moment, where nothing is wrong with it.
#[derive(Debug)]
pub(crate) enum Found {
    /// A mount that was known before.
    Known,
    /// Nothing.
    Absent,
    /// A directory that passes the check.
    Free,
    /// A mount that some daemon of this user has made, by its root. Whether anybody serves it can
    /// only be found out by asking it.
    OfThisUser(OwnedFd, Identity),
}

/// Looks at a path and changes nothing. The faults are those of the check before a mount is made.
pub(crate) fn look(
    path: &Path,
    host: Host,
    is_known: impl Fn(Identity) -> bool,
) -> Result<Found, Fault> {
    let place = Place::of(path).map_err(to_fault)?;
    let found = place.look().map_err(to_fault)?;
    if let Some(found) = &found
        && Identity::of(found.as_fd()).is_ok_and(is_known)
    {
        return Ok(Found::Known);
    }
    place.refuse_writable_parent(host.uid).map_err(to_fault)?;
    let Some(found) = found else { return Ok(Found::Absent) };
    let Some(entry) = mount_at(&place, &found)? else {
        return match place.judge(found.as_fd(), wanted(host)) {
            Ok(()) => Ok(Found::Free),
            Err(_) if place.is_going(found.as_fd()).map_err(to_fault)? => Ok(Found::Absent),
            Err(problem) => Err(to_fault(problem)),
        };
    };
    if !entry.is_holdfast_of(host.uid) {
        return Err(foreign(&place, &entry));
    }
    let identity = Identity::of(found.as_fd())
        .map_err(|errno| unusable(&place, "find the mount of", errno))?;
    Ok(Found::OfThisUser(found, identity))
}

/// Whether a mount of ours is known to be served by nobody.
pub(crate) fn is_abandoned(mount: BorrowedFd<'_>) -> bool {
    matches!(probe::ask(mount), Ok(Served::No))
}

const fn wanted(host: Host) -> Wanted {
    Wanted { owner: host.uid, mode: host.mountpoint_mode(), empty: true }
}

/// More than this many mounts that were left behind on one path are a riddle for the operator.
const LEFT_BEHIND_LIMIT: usize = 16;

/// A directory that has passed the check.
#[derive(Debug)]
pub(crate) struct Mountpoint {
    pub(crate) place: Place,
    pub(crate) directory: Directory,
}

impl Mountpoint {
    /// Checks the path, and makes the directory where there is none.
    pub(crate) fn check(path: &Path, host: Host) -> Result<Self, Fault> {
        let place = Place::of(path).map_err(to_fault)?;
        place.refuse_writable_parent(host.uid).map_err(to_fault)?;
        let wanted = wanted(host);
        for _ in 0..LEFT_BEHIND_LIMIT {
            let directory = match find(&place)? {
                Some(descriptor) => Directory { descriptor, made: false },
                None => match place.make(wanted.mode).map_err(to_fault)? {
                    Some(made) => made,
                    // Somebody was quicker: what they made is looked at like anything else.
                    None => continue,
                },
            };
            let Some(entry) = mount_at(&place, &directory.descriptor)? else {
                let found = directory.descriptor.as_fd();
                match place.judge(found, wanted) {
                    Err(_) if place.is_going(found).map_err(to_fault)? => continue,
                    judged => judged.map_err(to_fault)?,
                }
                return Ok(Self { place, directory });
            };
            if !entry.is_holdfast_of(host.uid) {
                return Err(foreign(&place, &entry));
            }
            match probe::ask(directory.descriptor.as_fd()) {
                Ok(Served::No) => detach_abandoned(&place, directory.descriptor, host)?,
                Ok(Served::Yes | Served::Silent(_)) => {
                    return Err(Fault::MountpointInUse { path: place.path().to_owned() });
                }
                Err(error) => return Err(unusable(&place, "ask the mount at", errno_of(&error))),
            }
        }
        let cause = format!("there are more than {LEFT_BEHIND_LIMIT} of them");
        Err(Fault::MountStale { path: place.path().to_owned(), cause })
    }
}

/// What is at the place and stays there.
fn find(place: &Place) -> Result<Option<OwnedFd>, Fault> {
    let Some(found) = place.look().map_err(to_fault)? else { return Ok(None) };
    // The links of a mount's root are its filesystem's to tell.
    let going =
        mount_at(place, &found)?.is_none() && place.is_going(found.as_fd()).map_err(to_fault)?;
    Ok((!going).then_some(found))
}

/// The mount whose root is at the place, where there is one.
fn mount_at(place: &Place, found: &OwnedFd) -> Result<Option<Entry>, Fault> {
    let identity = |descriptor| {
        Identity::of(descriptor).map_err(|errno| match errno {
            Errno::NOSYS => Fault::KernelTooOld { missing: "numbers of mounts in statx", errno },
            errno => unusable(place, "find the mount of", errno),
        })
    };
    let read = || {
        Table::read()
            .map_err(|error| unusable(place, "read the table of mounts for", errno_of(&error)))
    };
    // Another user's mount tells nobody anything, so its path has to do; it isn't ours.
    if Identity::of(found.as_fd()) == Err(Errno::ACCESS)
        && let Some(entry) =
            read()?.containing(place.path()).filter(|entry| entry.mountpoint == place.path())
    {
        return Ok(Some(entry.clone()));
    }
    let (here, above) = (identity(found.as_fd())?, identity(place.parent())?);
    if here.id == above.id {
        return Ok(None);
    }
    let table = read()?;
    match table.by_id(here.id) {
        Some(entry) => Ok(Some(entry.clone())),
        // Detached since it was looked at, or in a part of the tree that isn't shown.
        None => Err(unusable(place, "find in the table of mounts", Errno::NOENT)),
    }
}

fn foreign(place: &Place, entry: &Entry) -> Fault {
    Fault::MountpointForeignMount {
        path: place.path().to_owned(),
        fstype: entry.fstype.clone(),
        source: entry.source.clone(),
        owner: entry.holdfast_owner(),
    }
}

fn unusable(place: &Place, step: &'static str, errno: Errno) -> Fault {
    Fault::MountpointUnusable { path: place.path().to_owned(), step, errno }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn to_fault(problem: Problem) -> Fault {
    match problem {
        Problem::ParentMissing { parent, errno } => {
            Fault::MountpointParentMissing { parent, errno }
        }
        Problem::ParentNotDirectory { parent } => Fault::MountpointParentNotDirectory { parent },
        Problem::ParentWritable { parent, owner, mode } => {
            Fault::MountpointParentWritable { parent, owner, mode }
        }
        Problem::Symlink { path, target } => Fault::MountpointSymlink { path, target },
        Problem::NotDirectory { path, found } => Fault::MountpointNotDirectory { path, found },
        Problem::WrongOwner { path, expected, found } => {
            Fault::MountpointWrongOwner { path, expected, found }
        }
        Problem::WrongMode { path, expected, found } => {
            Fault::MountpointWrongMode { path, expected, found }
        }
        Problem::NotEmpty { path, entry } => Fault::MountpointNotEmpty { path, entry },
        Problem::System { path, step, errno } => Fault::MountpointUnusable { path, step, errno },
    }
}

#[cfg(test)]
mod tests;
