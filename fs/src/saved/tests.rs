//! What is on the disk, and what is made of it.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

/// Version 1, as it was written when it was new. What is here must be read for as long as there is
/// that version.
const HEADER_1: &str = r#"{"version":1,"boot":"one","epoch":7}"#;
const LASTING_1: &str = r#"{"version":1,"id":"k7q2m9xa","name":"chat / 🦭","uid":1000,"gid":100,
    "policy":{"size":null,"inodes":null,"mode":"private","guard":"sticky"},
    "opened_with":{"size":4096,"inodes":10,"mode":"shared","guard":"members"},
    "sealed":false,"opened":{"secs":10,"nanos":5},"inode":3,"next_number":3,
    "tokens":[{"id":"aaaaaaab","holder":{"process":{"pid":40,"start":4000}},
        "asked_by":{"pid":41,"start":4100},"since":{"secs":10,"nanos":5}},
        {"id":"aaaaaaac","holder":{"linger":{"ttl":{"secs":86400,"nanos":0}}},
        "asked_by":{"pid":41,"start":4100},"since":{"secs":11,"nanos":0}}],
    "generations":[{"key":4,"number":1,"inode":4398046511109,"retired":true},
        {"key":5,"number":2,"inode":5497558138887,"retired":false}]}"#;
const PASSING_1: &str = r#"{"version":1,"active":{"secs":20,"nanos":0},
    "leases":[{"id":"c5n8t2aa","generation":1,"kind":"private",
        "binding":{"process":{"pid":42,"start":4200}},"asked_by":{"pid":40,"start":4000},
        "asker_gone":false,"since":{"secs":12,"nanos":0},"inode":4398046511110,
        "served":{"epoch":7,"device":41}},
        {"id":"c5n8t2ab","generation":2,"kind":"shared","binding":"unbound",
        "asked_by":{"pid":40,"start":4000},"asker_gone":true,"since":{"secs":13,"nanos":0},
        "inode":5497558138887,
        "served":{"epoch":7,"device":41}},
        {"id":"c5n8t2ac","generation":2,"kind":"shared","binding":{"connection":9},
        "asked_by":{"pid":40,"start":4000},"asker_gone":false,"since":{"secs":14,"nanos":0},
        "inode":5497558138887,
        "served":{"epoch":7,"device":41}}]}"#;

const ID: &str = "k7q2m9xa";

/// A store in which an earlier daemon saved a session.
struct Room {
    store: TempDir,
}

impl Room {
    fn new() -> Self {
        let room = Self { store: tempfile::tempdir().unwrap() };
        fs::create_dir(room.path("")).unwrap();
        room.put(HEADER, HEADER_1);
        room.put(ID, LASTING_1);
        room.put("k7q2m9xa.leases", PASSING_1);
        room
    }

    fn path(&self, name: &str) -> PathBuf {
        self.store.path().join(files::DIRECTORY).join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn saved(&self, boot: &str) -> Result<Saved, SavedError> {
        saved(self.store.path(), boot)
    }

    fn read(&self) -> Result<Earlier, SavedError> {
        self.saved("one")?.earlier()
    }

    /// Every file with what is in it.
    fn all(&self) -> BTreeSet<(String, Vec<u8>)> {
        let names = fs::read_dir(self.path("")).unwrap().map(|entry| entry.unwrap());
        let file = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        };
        names.map(file).collect()
    }
}

fn saved(store: &Path, boot: &str) -> Result<Saved, SavedError> {
    let store: OwnedFd = fs::File::open(store).unwrap().into();
    Saved::beneath(store.as_fd(), boot.to_owned())
}

#[test]
fn version_1_is_read_and_written_as_it_was() {
    let room = Room::new();
    let saved = room.saved("one").unwrap();
    let earlier = saved.earlier().unwrap();
    assert!(earlier.same_boot);
    let [session] = earlier.sessions.as_slice() else { panic!("{earlier:?}") };
    let view = session.view();
    assert_eq!((view.id.as_str(), view.name.as_deref()), (ID, Some("chat / 🦭")));
    assert_eq!((view.current, view.leases, view.tokens.len()), (Some(2), 3, 2));
    saved.settle().unwrap();
    assert_eq!(saved.begin_epoch(), 8);

    // What is written is the same but for spaces, and the next epoch.
    saved.lock().lasting.clear();
    saved.keep(session).unwrap();
    let plain = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let there = |name: &str| plain(&fs::read_to_string(room.path(name)).unwrap());
    assert_eq!(there(ID), plain(LASTING_1));
    assert_eq!(there("k7q2m9xa.leases"), plain(PASSING_1));
    assert_eq!(there(HEADER), plain(&HEADER_1.replace('7', "8")));
}

#[test]
fn files_are_the_daemons_alone_and_nothing_else_is_left() {
    let room = Room::new();
    // A daemon was ended while it wrote.
    room.put("k7q2m9xa.new", "half of");
    let saved = room.saved("one").unwrap();
    let session = saved.earlier().unwrap().sessions.remove(0);
    saved.lock().lasting.clear();
    saved.keep(&session).unwrap();
    saved.settle().unwrap();
    let names: Vec<_> = room.all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [HEADER, ID, "k7q2m9xa.leases"]);
    for name in names {
        let mode = fs::metadata(room.path(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
    saved.strike(session.id()).unwrap();
    saved.strike(session.id()).unwrap();
    assert_eq!(room.all().len(), 1, "the header alone");
}

#[test]
fn what_lasts_is_written_only_when_it_changes() {
    let room = Room::new();
    let saved = room.saved("one").unwrap();
    let session = saved.earlier().unwrap().sessions.remove(0);
    saved.keep(&session).unwrap();
    saved.settle().unwrap();
    let inode = |name| std::os::unix::fs::MetadataExt::ino(&fs::metadata(room.path(name)).unwrap());
    let before = (inode(ID), inode("k7q2m9xa.leases"));
    saved.keep(&session).unwrap();
    assert_eq!(inode(ID), before.0);
    assert_ne!(inode("k7q2m9xa.leases"), before.1);
}

#[test]
fn a_new_store_has_nothing_and_counts_from_one() {
    let store = tempfile::tempdir().unwrap();
    let first = saved(store.path(), "one").unwrap();
    let earlier = first.earlier().unwrap();
    assert!(earlier.sessions.is_empty() && !earlier.same_boot);
    assert_eq!((first.begin_epoch(), first.begin_epoch()), (1, 2));
    drop(first);
    let second = saved(store.path(), "two").unwrap();
    assert!(!second.earlier().unwrap().same_boot);
    second.settle().unwrap();
    assert!(saved(store.path(), "two").unwrap().earlier().unwrap().same_boot);
    assert_eq!(second.begin_epoch(), 3);
}

#[test]
fn a_connection_counts_though_that_can_t_be_saved() {
    let room = Room::new();
    let saved = room.saved("one").unwrap();
    // Where it would be written there is something else.
    fs::create_dir(room.path("header.new")).unwrap();
    assert!(saved.settle().is_err());
    assert_eq!((saved.begin_epoch(), saved.begin_epoch()), (8, 9));
    fs::remove_dir(room.path("header.new")).unwrap();
    assert_eq!(saved.begin_epoch(), 10);
    assert_eq!(room.saved("one").unwrap().begin_epoch(), 11);
}

#[test]
fn leases_are_not_even_looked_at_on_another_boot() {
    let room = Room::new();
    // So may a power cut leave what was not written to last.
    room.put("k7q2m9xa.leases", "");
    let earlier = room.saved("two").unwrap().earlier().unwrap();
    assert!(!earlier.same_boot);
    assert_eq!(earlier.sessions[0].view().leases, 0);
    assert!(room.read().is_err(), "on the same boot it must be whole");
}

#[test]
fn a_lease_on_a_generation_that_was_given_up_is_over() {
    let room = Room::new();
    room.put("k7q2m9xa.leases", &PASSING_1.replace(r#""generation":1"#, r#""generation":9"#));
    assert_eq!(room.read().unwrap().sessions[0].view().leases, 2);
}

#[test]
fn another_version_is_refused_and_left_as_it_is() {
    for (name, text) in [(HEADER, HEADER_1), (ID, LASTING_1), ("k7q2m9xa.leases", PASSING_1)] {
        let room = Room::new();
        let newer = text.replace(r#""version":1"#, r#""whatever":[],"version":2"#);
        room.put(name, &newer);
        let before = room.all();
        match room.read() {
            Err(SavedError::VersionUnknown { file, found: 2 }) => {
                assert_eq!(file, format!("registry/{name}"));
            }
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(room.all(), before);
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name_and_left_as_it_is() {
    type Change = fn(&Room);
    let cases: [(&str, Change); 11] = [
        (HEADER, |room| room.put(HEADER, "")),
        (HEADER, |room| room.put(HEADER, "[]")),
        (HEADER, |room| fs::remove_file(room.path(HEADER)).unwrap()),
        (ID, |room| room.put(ID, "")),
        (ID, |room| room.put(ID, &LASTING_1[..LASTING_1.len() / 2])),
        (ID, |room| room.put(ID, &LASTING_1.replace("k7q2m9xa", "aaaaaaaa"))),
        (ID, |room| room.put(ID, &LASTING_1.replace("\"gid\"", "\"git\""))),
        (ID, |room| room.put(ID, &LASTING_1.replace("\"number\"", "\"more\":1,\"number\""))),
        ("k7q2m9xa.leases", |room| room.put("k7q2m9xa.leases", "\0")),
        (ID, |room| {
            fs::rename(room.path(ID), room.path("elsewhere")).unwrap();
            symlink("elsewhere", room.path(ID)).unwrap();
        }),
        (ID, |room| {
            fs::remove_file(room.path(ID)).unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, room.path(ID), 0o600.into()).unwrap();
        }),
    ];
    for (nth, (name, change)) in cases.into_iter().enumerate() {
        let room = Room::new();
        change(&room);
        let is_fifo = nth == 10;
        let before = (!is_fifo).then(|| room.all());
        match room.read() {
            Err(SavedError::Unreadable { file, .. }) => {
                assert_eq!(file, format!("registry/{name}"), "case {nth}");
            }
            other => panic!("case {nth}: {other:?}"),
        }
        assert_eq!((!is_fifo).then(|| room.all()), before, "case {nth}");
    }
}

#[test]
fn what_is_not_a_directory_of_ours_is_not_used() {
    let store = tempfile::tempdir().unwrap();
    symlink("/tmp", store.path().join(files::DIRECTORY)).unwrap();
    let refused = saved(store.path(), "one");
    assert!(matches!(refused, Err(SavedError::Refused { .. })), "{refused:?}");
}

#[test]
fn a_full_disk_is_told_as_such() {
    let error = SavedError::Refused { step: "saving a session", errno: Errno::NOSPC };
    assert_eq!(GroundError::from(error), GroundError::Full);
    let error = SavedError::Refused { step: "saving a session", errno: Errno::IO };
    assert_eq!(GroundError::from(error).code(), "store-unusable");
}
