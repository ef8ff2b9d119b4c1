//! The way to a daemon of an ordinary user from a surrounding that names no runtime directory.
//!
//! Its mountpoint is the same wherever the user starts it, its socket isn't. So a daemon that
//! listens in the runtime directory leaves a link where it would listen without one. It must never
//! take that place from a daemon that answers there, and a daemon serves without it all the same.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, fstat, symlinkat, unlinkat};

use super::ask::{Call, Listener};
use crate::config::{Host, Settings, socket_without_runtime_directory};
use crate::place::{Directory, Place, Problem, Wanted};

/// Where a daemon that listens in a runtime directory leaves the link.
pub(super) fn elsewhere(host: Host, settings: &Settings) -> Option<PathBuf> {
    let place = socket_without_runtime_directory(host);
    (!host.privileged && settings.own_socket_directory && place != settings.socket).then_some(place)
}

/// The socket of this user's daemon that serves this mountpoint, where it isn't the one of the
/// settings.
pub(super) fn found(host: Host, settings: &Settings, mountpoint: &Path) -> Option<PathBuf> {
    if host.privileged || !settings.own_socket_directory {
        return None;
    }
    let other = socket_without_runtime_directory(host);
    let socket = match fs::read_link(&other) {
        Ok(target) => target,
        Err(_) if other != settings.socket => other,
        Err(_) => return None,
    };
    serves(host, &socket, mountpoint).then_some(socket)
}

fn serves(host: Host, socket: &Path, mountpoint: &Path) -> bool {
    let Ok(place) = Place::of(socket) else { return false };
    let Ok(Some(call)) = Call::to(&place) else { return false };
    match call.answer() {
        Ok(Listener::Serves { uid, mountpoint: served }) => uid == host.uid && served == mountpoint,
        Ok(Listener::Left | Listener::Silent | Listener::Other(_)) | Err(_) => false,
    }
}

/// The link, and its directory.
#[derive(Debug)]
pub(super) struct Signpost {
    directory: (Place, Directory),
    place: Place,
    link: OwnedFd,
}

impl Signpost {
    /// Puts a link to the socket there, unless somebody else's things are in the way.
    pub(super) fn put(host: Host, at: &Path, socket: &Path) -> Option<Self> {
        match Self::try_put(host, at, socket) {
            Ok(signpost) => Some(signpost),
            Err(reason) => {
                let at = at.display();
                tracing::warn!(%at, reason, "without XDG_RUNTIME_DIR clients won't find the way");
                None
            }
        }
    }

    fn try_put(host: Host, at: &Path, socket: &Path) -> Result<Self, String> {
        let failed = |problem: Problem| format!("{problem:?}");
        let above = Place::of(at.parent().unwrap_or(at)).map_err(failed)?;
        above.refuse_writable_parent(host.uid).map_err(failed)?;
        let wanted = Wanted { owner: host.uid, mode: 0o700, empty: false };
        let found = above.find_or_make(wanted).map_err(failed)?;
        // Nobody else has a reason to make it, so one that was left behind goes too.
        let directory = (above, Directory { made: true, ..found });
        let place = Place::of(at).map_err(failed)?;
        if let Some(old) = place.look().map_err(failed)? {
            let facts = fstat(&old).map_err(|errno| errno.to_string())?;
            let ours = match FileType::from_raw_mode(facts.st_mode) {
                FileType::Symlink | FileType::Socket => facts.st_uid == host.uid,
                _ => false,
            };
            if !ours || Call::to(&place).map_err(|error| error.to_string())?.is_some() {
                return Err("something else is there".to_owned());
            }
            unlinkat(place.parent(), place.name(), AtFlags::empty())
                .map_err(|errno| errno.to_string())?;
        }
        symlinkat(socket, place.parent(), place.name()).map_err(|errno| errno.to_string())?;
        let link = place.look().map_err(failed)?.ok_or("it was removed as soon as it was made")?;
        Ok(Self { directory, place, link })
    }

    /// Takes it away, as far as it is still ours.
    pub(super) fn take_away(self) {
        let Self { directory: (above, directory), place, link } = self;
        if place.is(link.as_fd()) {
            let _ = unlinkat(place.parent(), place.name(), AtFlags::empty());
        }
        drop(place);
        above.remove(&directory);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::net::UnixListener;

    use rustix::process::{getegid, geteuid};

    use super::*;

    #[test]
    fn the_link_leads_to_the_socket_and_goes_with_the_daemon() -> io::Result<()> {
        let host = Host { privileged: false, uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let room = tempfile::tempdir()?;
        let (socket, at) = (room.path().join("s"), room.path().join("own/control"));
        let listener = UnixListener::bind(&socket)?;
        let signpost = Signpost::put(host, &at, &socket).expect("put");
        assert_eq!(fs::read_link(&at)?, socket);
        // Who answers there is left in peace.
        assert!(Signpost::put(host, &at, &room.path().join("other")).is_none());
        drop(listener);
        let again = Signpost::put(host, &at, &room.path().join("other")).expect("a stale one");
        signpost.take_away();
        assert!(fs::read_link(&at).is_ok(), "it isn't the first one's any more");
        again.take_away();
        assert!(!at.parent().expect("above").exists());
        Ok(())
    }
}
