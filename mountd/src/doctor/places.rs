//! The places that a daemon takes: mountpoint, store and socket, as settings or the running daemon
//! name them.
//!
//! They are only looked at: nothing is made, locked, detached or removed.

use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::daemon::{Described, describe};
use super::{Case, Finding, Verdict};
use crate::config::{Host, Store};
use crate::fault::{Fault, Seen};
use crate::keeper;
use crate::mount::check::{Found, is_abandoned, look};
use crate::mount::identity::{Identity, Table};
use crate::place::Place;
use crate::worker::{enter_user_namespace, try_tmpfs};

/// Mounts of ours that are looked at; each may take seconds.
const MOST_LOOKED_AT: usize = 4;
/// The inode of a mount's root.
const ROOT: u64 = 1;
/// Mounts that are named.
const MOST_NAMED: usize = 8;

pub(super) fn settings(case: &Case<'_>) -> Finding {
    match case.settings() {
        Ok(settings) => Finding::ok(format!(
            "mountpoint {}, socket {}, store {}",
            settings.mountpoint.display(),
            settings.socket.display(),
            settings.store
        )),
        Err(fault) => Finding::problem(&fault),
    }
}

/// What is known of the daemon that should serve the mountpoint.
#[derive(Clone, Copy)]
enum Server {
    /// There is none.
    None,
    /// One that doesn't say what it serves.
    Silent,
    /// One that serves this device.
    Serves(u64),
}

pub(super) fn mountpoint(case: &Case<'_>) -> Finding {
    let (path, host, server) = match mountpoint_of(case) {
        Ok(found) => found,
        Err(skipped) => return skipped,
    };
    let shown = path.display();
    let seen = match look(&path, host, |_| false) {
        Ok(seen) => seen,
        Err(fault) => return Finding::problem(&fault),
    };
    match (server, seen) {
        (Server::Serves(expected), Found::OfThisUser(_, mount)) if mount.device == expected => {
            Finding::ok(format!("{shown} is served"))
        }
        (Server::Serves(expected), Found::OfThisUser(_, mount)) => {
            Finding::problem(&not_visible(path, expected, Seen::Other(mount.device, ROOT)))
        }
        (Server::Serves(expected), Found::Free | Found::Absent | Found::Known) => {
            Finding::problem(&not_visible(path, expected, Seen::Nothing(Errno::NOENT)))
        }
        (Server::None | Server::Silent, Found::OfThisUser(mount, _))
            if is_abandoned(mount.as_fd()) =>
        {
            let fault = Fault::MountStale { path, cause: "nobody serves it".to_owned() };
            Finding {
                verdict: Verdict::Warning,
                remedy: Some("the next daemon replaces it".to_owned()),
                ..Finding::problem(&fault)
            }
        }
        (Server::None, Found::OfThisUser(..)) => Finding::problem(&Fault::MountpointInUse { path }),
        (Server::Silent, Found::OfThisUser(..)) => {
            Finding::skipped(format!("{shown} is mounted, and the daemon doesn't answer"))
        }
        (Server::None | Server::Silent, Found::Free | Found::Known) => {
            Finding::ok(format!("{shown} is free and as it should be"))
        }
        (Server::None | Server::Silent, Found::Absent) => {
            Finding::ok(format!("{shown} isn't there; it is made"))
        }
    }
}

fn not_visible(path: PathBuf, device: u64, found: Seen) -> Fault {
    Fault::MountpointNotVisible { path, expected: (device, ROOT), found }
}

/// The mountpoint, whose it is, and the daemon that should serve it.
fn mountpoint_of(case: &Case<'_>) -> Result<(PathBuf, Host, Server), Finding> {
    let server = match describe(case) {
        Ok(Some(Described { description, status })) => {
            let (privileged, uid) = (description.many_users, description.uid);
            let host = Host { privileged, uid, ..case.host };
            let server = Server::Serves(status.device);
            return Ok((PathBuf::from(description.mountpoint), host, server));
        }
        Ok(None) => Server::None,
        Err(_) => Server::Silent,
    };
    match case.settings() {
        Ok(settings) => Ok((settings.mountpoint, case.host, server)),
        Err(_) => Err(Finding::skipped("the settings don't say")),
    }
}

pub(super) fn other_mounts(case: &Case<'_>) -> Finding {
    let (path, host, _) = match mountpoint_of(case) {
        Ok(found) => found,
        Err(skipped) => return skipped,
    };
    let path = Place::of(&path).map_or(path, |place| place.path().to_owned());
    let Ok(table) = Table::read() else { return Finding::skipped("the table can't be read") };
    let foreign = table.at_or_below(&path).filter(|entry| !entry.is_holdfast_of(host.uid));
    let foreign: Vec<_> = foreign
        .map(|entry| format!("{} ({})", entry.mountpoint.display(), entry.fstype))
        .take(MOST_NAMED)
        .collect();
    let ours = table.at_or_below("/".as_ref()).filter(|entry| entry.is_holdfast_of(host.uid));
    let stale: Vec<_> = ours
        .filter(|entry| entry.mountpoint != path)
        .take(MOST_LOOKED_AT)
        .filter(|entry| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            openat(CWD, &entry.mountpoint, flags, Mode::empty()).is_ok_and(|found| {
                Identity::of(found.as_fd()).is_ok_and(|identity| identity.id == entry.id)
                    && is_abandoned(found.as_fd())
            })
        })
        .map(|entry| entry.mountpoint.display().to_string())
        .collect();
    match (foreign.is_empty(), stale.is_empty()) {
        (true, true) => Finding::ok("nothing else is mounted there, and no stale mount is left"),
        (false, true) => {
            let found = format!("mounted at or below it: {}", foreign.join(", "));
            Finding::warning(found, "unmount them before the daemon is to end")
        }
        (_, false) => {
            let found = format!("nobody serves any more: {}", stale.join(", "));
            let remedy = format!("`umount -l {0}` or `fusermount3 -u -z {0}`", stale[0]);
            Finding { code: Some("mount-stale".to_owned()), ..Finding::warning(found, remedy) }
        }
    }
}

pub(super) fn store(case: &Case<'_>) -> Finding {
    let served = match describe(case) {
        Ok(Some(described)) => Some(described.description),
        Ok(None) | Err(_) => None,
    };
    if let Some(served) = served {
        let found = format!("the daemon keeps files in {}", served.store);
        return match served.store.as_str() {
            "tmpfs" => Finding::ok(found),
            _ => limitless(found),
        };
    }
    match case.settings().map(|settings| settings.store) {
        Err(_) => Finding::skipped("the settings don't say"),
        Ok(Store::Tmpfs) => {
            let privileged = case.host.privileged;
            let entered = if privileged { Ok(()) } else { enter_user_namespace() };
            match entered.and_then(|()| try_tmpfs(privileged)) {
                Ok(()) => Finding::ok("a tmpfs can be made"),
                Err(fault) => Finding::problem(&fault),
            }
        }
        Ok(Store::Dir(path)) => match keeper::look_at_store(&path, case.host) {
            Ok(true) => limitless(format!("{} is as it should be", path.display())),
            Ok(false) => limitless(format!("{} isn't there; it is made", path.display())),
            Err(fault) => Finding::problem(&fault),
        },
    }
}

fn limitless(found: String) -> Finding {
    let remedy = "use the store `tmpfs` where sessions need limits";
    Finding::warning(format!("{found}; it holds no limits of sessions"), remedy)
        .costing(&["session-limits"])
}

pub(super) fn socket(case: &Case<'_>) -> Finding {
    match describe(case) {
        Ok(Some(described)) => {
            let wire = described.description;
            return Finding::ok(format!("uid {}'s daemon answers at {}", wire.uid, wire.socket));
        }
        Ok(None) => {}
        Err(report) => return Finding::reported(report),
    }
    let Ok(settings) = case.settings() else {
        return Finding::skipped("the settings don't say");
    };
    let path = settings.socket.display().to_string();
    match keeper::look_at_socket(case.host, &settings) {
        Ok(()) => Finding::ok(format!("nobody answers; {path} is free for a daemon")),
        Err(fault) => Finding::problem(&fault),
    }
}
