//! The same look as before a mount is made, and nothing else: nothing is made or detached.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use super::{foreign, mount_at, to_fault};
use crate::config::Host;
use crate::fault::Fault;
use crate::mount::probe::{self, Served};
use crate::place::{Place, Wanted};

/// What is at a path that could be a mountpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Nothing.
    Absent,
    /// A directory on which the namespace may be mounted.
    Free,
    /// A mount of this user's daemon, by the device of its filesystem.
    Mounted {
        /// As `st_dev`.
        device: u64,
        /// Whether anybody serves it.
        served: bool,
    },
}

/// Looks. The faults are those that a daemon would have there.
pub(crate) fn sight(path: &Path, host: Host) -> Result<Sight, Fault> {
    let place = Place::of(path).map_err(to_fault)?;
    place.refuse_writable_parent(host.uid).map_err(to_fault)?;
    let Some(found) = place.look().map_err(to_fault)? else { return Ok(Sight::Absent) };
    let Some(entry) = mount_at(&place, &found)? else {
        let wanted = Wanted { owner: host.uid, mode: host.mountpoint_mode(), empty: true };
        place.judge(found.as_fd(), wanted).map_err(to_fault)?;
        return Ok(Sight::Free);
    };
    if !entry.is_holdfast_of(host.uid) {
        return Err(foreign(&place, &entry));
    }
    Ok(Sight::Mounted { device: entry.device, served: !is_abandoned(found.as_fd()) })
}

/// Whether a mount of ours is known to be served by nobody.
pub(crate) fn is_abandoned(mount: BorrowedFd<'_>) -> bool {
    matches!(probe::ask(mount), Ok(Served::No))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::process::{getegid, geteuid};

    use super::*;

    #[test]
    fn a_look_changes_nothing_and_finds_what_the_check_would() {
        let host = Host { privileged: false, uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let room = tempfile::tempdir().expect("a directory");
        let at = |name: &str| room.path().join(name);
        assert_eq!(sight(&at("none"), host), Ok(Sight::Absent));
        assert!(!at("none").exists());
        fs::create_dir(at("free")).expect("made");
        fs::set_permissions(at("free"), fs::Permissions::from_mode(0o700)).expect("chmod");
        assert_eq!(sight(&at("free"), host), Ok(Sight::Free));
        symlink("free", at("link")).expect("made");
        let code = |name: &str| sight(&at(name), host).err().map(|fault| fault.code());
        assert_eq!(code("link"), Some("mountpoint-symlink"));
        fs::write(at("free/file"), "").expect("made");
        assert_eq!(code("free"), Some("mountpoint-not-empty"));
        assert_eq!(
            sight(Path::new("/proc"), host).err().map(|fault| fault.code()),
            Some("mountpoint-foreign-mount"),
        );
    }
}
