//! The way to a directory, and what is there.
//!
//! What is there is held, so that all that is found out is about one and the same thing.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, makedev, openat, readlink, statx,
};
use rustix::io::Errno;

use super::text;
use crate::control::wire::{Link, Object};

/// What a directory is called.
pub(super) const DIRECTORY: &str = "directory";
/// The kernel follows no more.
const MOST_LINKS: usize = 40;

/// The symbolic links among the names of a path. Those that a link leads through are not named.
pub(super) fn links(path: &Path) -> Vec<Link> {
    let mut found = Vec::new();
    let mut so_far = PathBuf::new();
    for component in path.components() {
        so_far.push(component);
        if let Ok(target) = readlink(&so_far, Vec::new()) {
            let target = text(Path::new(OsStr::from_bytes(target.as_bytes())));
            found.push(Link { component: text(&so_far), target });
            if found.len() == MOST_LINKS {
                break;
            }
        }
    }
    found
}

/// What the path leads to, held without being opened.
pub(super) fn hold(path: &Path) -> Result<(OwnedFd, Object), Errno> {
    let held = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let facts = statx(&held, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let object = Object {
        kind: kind(FileType::from_raw_mode(facts.stx_mode.into())).to_owned(),
        mode: format!("{:04o}", facts.stx_mode & 0o7777),
        uid: facts.stx_uid,
        gid: facts.stx_gid,
        device: makedev(facts.stx_dev_major, facts.stx_dev_minor),
        inode: facts.stx_ino,
    };
    Ok((held, object))
}

const fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => DIRECTORY,
        FileType::RegularFile => "regular-file",
        FileType::Symlink => "symbolic-link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character-device",
        FileType::BlockDevice => "block-device",
        FileType::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_found_wherever_they_are() {
        let room = tempfile::tempdir().expect("a directory");
        let room = fs::canonicalize(room.path()).expect("it is there");
        fs::create_dir_all(room.join("a/b")).expect("made");
        symlink("a", room.join("way")).expect("made");
        symlink("gone", room.join("a/dangling")).expect("made");
        assert!(links(&room.join("a/b")).is_empty());
        let found = links(&room.join("way/b"));
        assert_eq!(found, [Link { component: text(&room.join("way")), target: "a".into() }]);
        let found = links(&room.join("way/dangling"));
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].target, "gone");
    }
}
