//! Opens the directory of a `dir:` store, before anything else could use it.
//!
//! The lock belongs to the descriptor: it lasts until keeper and worker have both closed it.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, major, minor, openat};
use rustix::io::Errno;

use crate::config::Host;
use crate::fault::Fault;
use crate::place::{Place, Problem, Wanted};

const MODE: u32 = 0o700;

/// The store's directory, ours alone.
pub(super) fn open(path: &Path, host: Host) -> Result<OwnedFd, Fault> {
    let place = Place::of(path).map_err(to_fault)?;
    let wanted = Wanted { owner: host.uid, mode: MODE, empty: false };
    let found = place.find_or_make(wanted).map_err(to_fault)?;
    let unusable = |step: &str| {
        let step = format!("{step} {}", place.path().display());
        move |errno| Fault::StoreUnusable { step, errno }
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        openat(found.descriptor.as_fd(), ".", flags, Mode::empty()).map_err(unusable("open"))?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(Errno::AGAIN) => Err(Fault::StoreLocked { path: place.path().to_owned() }),
        Err(errno) => Err(unusable("lock")(errno)),
    }
}

/// What would be said of the store's directory, without making or locking it: whether it is there.
pub(crate) fn look(path: &Path, host: Host) -> Result<bool, Fault> {
    let place = Place::of(path).map_err(to_fault)?;
    let Some(found) = place.look().map_err(to_fault)? else { return Ok(false) };
    let wanted = Wanted { owner: host.uid, mode: MODE, empty: false };
    place.judge(found.as_fd(), wanted).map_err(to_fault)?;
    let unusable = |errno| Fault::StoreUnusable { step: "look at the locks".to_owned(), errno };
    let facts = fstat(&found).map_err(unusable)?;
    let locks = fs::read_to_string("/proc/locks")
        .map_err(|error| unusable(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    if is_locked(&locks, facts.st_dev, facts.st_ino) {
        return Err(Fault::StoreLocked { path: place.path().to_owned() });
    }
    Ok(true)
}

/// Whether the kernel's table of locks has one of the kind that `flock` makes on this inode:
/// `1: FLOCK  ADVISORY  WRITE 7 fd:00:12 0 EOF`.
fn is_locked(table: &str, device: u64, inode: u64) -> bool {
    let inode = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    table.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        fields.nth(1) == Some("FLOCK") && fields.any(|field| field == inode)
    })
}

fn to_fault(problem: Problem) -> Fault {
    match problem {
        Problem::ParentMissing { parent, errno } => Fault::StoreParentMissing { parent, errno },
        Problem::ParentNotDirectory { parent } => {
            Fault::StoreParentMissing { parent, errno: Errno::NOTDIR }
        }
        Problem::Symlink { path, target } => Fault::StoreSymlink { path, target },
        Problem::NotDirectory { path, found } => Fault::StoreNotDirectory { path, found },
        Problem::WrongOwner { path, expected, found } => {
            Fault::StoreWrongOwner { path, expected, found }
        }
        Problem::WrongMode { path, expected, found } => {
            Fault::StoreWrongMode { path, expected, found }
        }
        Problem::System { path, step, errno } => {
            Fault::StoreUnusable { step: format!("{step} {}", path.display()), errno }
        }
        // Not asked for: a store is held by descriptor, and is seldom empty.
        Problem::ParentWritable { parent: path, .. } | Problem::NotEmpty { path, .. } => {
            Fault::StoreUnusable { step: format!("use {}", path.display()), errno: Errno::PERM }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::process::{getegid, geteuid};

    use super::*;

    fn host() -> Host {
        Host { privileged: false, uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }

    #[test]
    fn a_store_is_ours_alone_and_used_once() {
        let room = tempfile::tempdir().expect("a temporary directory");
        let path = room.path().join("store");
        let first = open(&path, host()).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o700);
        assert_eq!(open(&path, host()).err().map(|fault| fault.code()), Some("store-locked"));
        assert_eq!(look(&path, host()).err().map(|fault| fault.code()), Some("store-locked"));
        drop(first);
        assert_eq!(look(&path, host()), Ok(true));
        assert!(open(&path, host()).is_ok());
    }

    #[test]
    fn each_problem_has_its_fault() {
        let room = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| room.path().join(name);
        fs::create_dir(at("open")).expect("made");
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o755)).expect("chmod");
        fs::write(at("file"), "").expect("made");
        symlink("open", at("link")).expect("made");
        let code = |name: &str| {
            let looked = look(&at(name), host()).err().map(|fault| fault.code());
            assert_eq!(open(&at(name), host()).err().map(|fault| fault.code()), looked);
            looked
        };
        assert_eq!(look(&at("absent"), host()), Ok(false));
        assert!(!at("absent").exists(), "a look makes nothing");
        assert_eq!(code("open"), Some("store-wrong-mode"));
        assert_eq!(code("file"), Some("store-not-directory"));
        assert_eq!(code("link"), Some("store-symlink"));
        assert_eq!(code("none/x"), Some("store-parent-missing"));
        let other = Host { uid: host().uid + 1, ..host() };
        let refused = open(&at("open"), other).expect_err("somebody else's");
        assert_eq!(refused.code(), "store-wrong-owner");
    }
}
