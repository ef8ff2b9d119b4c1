//! Examinations of real directories in this process.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::*;

fn room() -> (tempfile::TempDir, std::path::PathBuf) {
    let room = tempfile::tempdir().expect("a directory");
    let path = fs::canonicalize(room.path()).expect("it is there");
    (room, path)
}

#[test]
fn a_usable_directory_is_told_as_it_is() {
    let (_room, path) = room();
    fs::set_permissions(&path, Permissions::from_mode(0o1700)).expect("chmod");
    let record = examine(&path, |_| {});
    assert_eq!(record.first, None, "{record:?}");
    assert_eq!(record.verdict, Verdict::Qualified);
    let facts = fs::metadata(&path).expect("facts");
    let object = record.object.expect("an object");
    assert_eq!((object.device, object.inode), (facts.dev(), facts.ino()));
    assert_eq!((object.kind.as_str(), object.mode.as_str()), ("directory", "1700"));
    assert_eq!(record.canonical.as_deref(), path.to_str());
    assert!(record.mount.is_some_and(|mount| !mount.fstype.is_empty() && !mount.holdfast));
    assert!(record.mounts.is_empty() && record.links.is_empty());
    assert!(record.space.is_some_and(|space| space.bytes_free > 0));
    assert_eq!(record.git.expect("git's answer").meaning, "not-in-repository");
}

#[test]
fn before_each_step_the_record_stands_as_if_no_answer_came() {
    let (_room, path) = room();
    let mut told = Vec::new();
    let record = examine(&path, |record| told.push(record.clone()));
    assert_eq!(record.waits_for, None);
    let waited: Vec<_> = told.iter().filter_map(|record| record.waits_for.clone()).collect();
    assert_eq!(waited.len(), 6, "{waited:?}");
    for record in told {
        assert_eq!(record.first.as_deref(), Some("unresponsive"));
        assert_eq!(record.verdict, Verdict::Disqualified);
        assert!(record.mount.is_some(), "what needs no answer is told all the same");
    }
}

#[test]
fn what_is_no_directory_of_its_own_is_named() {
    let (_room, path) = room();
    fs::write(path.join("file"), "").expect("made");
    fs::create_dir(path.join("directory")).expect("made");
    symlink("directory", path.join("link")).expect("made");
    symlink("nowhere", path.join("dangling")).expect("made");
    let first = |name: &str| examine(&path.join(name), |_| {}).first.expect("disqualified");
    assert_eq!(first("file"), "not-a-directory");
    assert_eq!(first("file/below"), "not-a-directory");
    assert_eq!(first("none"), "missing");
    assert_eq!(first("dangling"), "missing");
    assert_eq!(first("link"), "symlink-in-path");
    let record = examine(&path.join("link"), |_| {});
    assert_eq!(record.probe.expect("probed").failed, None, "the other facts are told too");
}

#[test]
fn a_refusal_is_no_examination() {
    let record = refused("session-sealed");
    assert_eq!(
        (record.verdict, record.fault.as_deref()),
        (Verdict::Refused, Some("session-sealed"))
    );
    assert!(record.path.is_none() && record.object.is_none() && record.probe.is_none());
    assert_eq!(record.asker.pid, process::id());
}
