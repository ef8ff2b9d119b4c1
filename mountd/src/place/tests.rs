//! Each way in which a place can be wrong, and that looking changes nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use rustix::process::{geteuid, umask};

use super::*;

fn wanted(mode: u32) -> Wanted {
    Wanted { owner: geteuid().as_raw(), mode, empty: true }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// A directory for one test, by its path without links.
fn room() -> (tempfile::TempDir, PathBuf) {
    let room = tempfile::tempdir().expect("a temporary directory");
    let path = room.path().canonicalize().expect("a path");
    (room, path)
}

#[test]
fn a_missing_directory_is_made_with_the_mode_whatever_the_umask() {
    // Other tests keep their umask.
    crate::sys::separate_umask().expect("a thread may have its own umask");
    let (_room, room) = room();
    for (name, mask) in [("open", 0), ("tight", 0o777)] {
        let place = Place::of(&room.join(name)).expect("a place");
        umask(Mode::from_raw_mode(mask));
        let made = place.find_or_make(wanted(0o755)).expect("made");
        assert!(made.made);
        assert_eq!(
            fs::metadata(room.join(name)).expect("there").permissions().mode() & 0o7777,
            0o755
        );
        assert!(place.remove(&made));
        assert!(!room.join(name).exists());
    }
}

#[test]
fn what_was_there_is_found_and_never_removed() {
    let (_room, room) = room();
    fs::create_dir(room.join("a")).expect("made");
    set_mode(&room.join("a"), 0o700);
    let place = Place::of(&room.join("a")).expect("a place");
    let found = place.find_or_make(wanted(0o700)).expect("found");
    assert!(!found.made);
    assert!(!place.remove(&found));
    assert!(room.join("a").is_dir());
}

#[test]
fn another_directory_of_the_same_name_is_not_removed() {
    let (_room, room) = room();
    let place = Place::of(&room.join("a")).expect("a place");
    let made = place.find_or_make(wanted(0o700)).expect("made");
    fs::rename(room.join("a"), room.join("b")).expect("renamed");
    fs::create_dir(room.join("a")).expect("made");
    assert!(!place.remove(&made));
    assert!(room.join("a").is_dir() && room.join("b").is_dir());
}

#[test]
fn each_wrong_thing_is_named_and_left_alone() {
    let (_room, room) = room();
    let uid = geteuid().as_raw();
    symlink("elsewhere", room.join("link")).expect("made");
    fs::write(room.join("file"), "").expect("made");
    let _socket = UnixListener::bind(room.join("socket")).expect("made");
    for (name, mode) in [("mode", 0o755), ("sticky", 0o1700), ("full", 0o700)] {
        fs::create_dir(room.join(name)).expect("made");
        set_mode(&room.join(name), mode);
    }
    fs::write(room.join("full/.hidden"), "").expect("made");

    let expected = [
        ("link", Problem::Symlink { path: room.join("link"), target: "elsewhere".into() }),
        ("file", Problem::NotDirectory { path: room.join("file"), found: "regular file" }),
        ("socket", Problem::NotDirectory { path: room.join("socket"), found: "socket" }),
        ("mode", Problem::WrongMode { path: room.join("mode"), expected: 0o700, found: 0o755 }),
        (
            "sticky",
            Problem::WrongMode { path: room.join("sticky"), expected: 0o700, found: 0o1700 },
        ),
        ("full", Problem::NotEmpty { path: room.join("full"), entry: room.join("full/.hidden") }),
    ];
    let before = listing(&room);
    for (name, problem) in expected {
        let place = Place::of(&room.join(name)).expect("a place");
        assert_eq!(place.find_or_make(wanted(0o700)).err(), Some(problem));
    }
    let place = Place::of(&room.join("full")).expect("a place");
    let other = Wanted { owner: uid + 1, mode: 0o700, empty: false };
    let problem = Problem::WrongOwner { path: room.join("full"), expected: uid + 1, found: uid };
    assert_eq!(place.find_or_make(other).err(), Some(problem));
    assert_eq!(listing(&room), before);
}

#[test]
fn a_parent_must_be_a_directory_that_others_cannot_change() {
    let (_room, room) = room();
    fs::write(room.join("file"), "").expect("made");
    let parent = room.join("file");
    assert_eq!(Place::of(&parent.join("x")).err(), Some(Problem::ParentNotDirectory { parent }),);
    let parent = room.join("none");
    assert_eq!(
        Place::of(&parent.join("x")).err(),
        Some(Problem::ParentMissing { parent, errno: Errno::NOENT }),
    );
    for (mode, refused) in [(0o755, false), (0o777, true), (0o775, true), (0o1777, false)] {
        let parent = room.join(format!("{mode:o}"));
        fs::create_dir(&parent).expect("made");
        set_mode(&parent, mode);
        let place = Place::of(&parent.join("x")).expect("a place");
        let judged = place.refuse_writable_parent(geteuid().as_raw());
        assert_eq!(judged.is_err(), refused, "{mode:o}");
    }
    // Its owner may replace what is in it, sticky or not.
    let parent = room.join("1777");
    let (us, them) = if geteuid().is_root() {
        std::os::unix::fs::chown(&parent, Some(1), None).expect("chown");
        (0, 1)
    } else {
        (geteuid().as_raw() + 1, geteuid().as_raw())
    };
    let place = Place::of(&parent.join("x")).expect("a place");
    let problem = Problem::ParentWritable { parent, owner: them, mode: 0o1777 };
    assert_eq!(place.refuse_writable_parent(us), Err(problem));
}

#[test]
fn a_link_above_the_last_name_is_resolved() {
    let (_room, room) = room();
    fs::create_dir(room.join("real")).expect("made");
    symlink("real", room.join("link")).expect("made");
    let place = Place::of(&room.join("link/x")).expect("a place");
    assert_eq!(place.path(), room.join("real/x"));
}

fn listing(room: &Path) -> Vec<(PathBuf, u32)> {
    let mut entries: Vec<_> = fs::read_dir(room)
        .expect("readable")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let mode = fs::symlink_metadata(&path).expect("there").permissions().mode();
            (path, mode)
        })
        .collect();
    entries.sort();
    entries
}

#[test]
fn a_directory_that_goes_or_moves_is_known_by_the_held_one() {
    let (_room, room) = room();
    let place = Place::of(&room.join("a")).expect("a place");
    let held = place.find_or_make(wanted(0o700)).expect("made").descriptor;
    let state = || (place.keeps(held.as_fd()), place.is_going(held.as_fd()));
    assert_eq!(state(), (true, Ok(false)));
    fs::rename(room.join("a"), room.join("b")).expect("moved");
    fs::create_dir(room.join("a")).expect("another");
    assert_eq!(state(), (false, Ok(false)));
    fs::remove_dir(room.join("b")).expect("removed");
    assert_eq!(state(), (false, Ok(true)));
}
