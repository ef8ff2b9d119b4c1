//! The faults of a mountpoint, as far as they can be had without a mount of our own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::{getegid, geteuid};

use super::*;

fn host() -> Host {
    Host { privileged: false, uid: geteuid().as_raw(), gid: getegid().as_raw() }
}

fn code(path: &Path) -> &'static str {
    match Mountpoint::check(path, host()) {
        Ok(_) => "fine",
        Err(fault) => fault.code(),
    }
}

#[test]
fn each_problem_has_its_fault() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| room.path().join(name);
    std::os::unix::fs::symlink("fine", at("link")).expect("made");
    fs::write(at("file"), "").expect("made");
    fs::create_dir_all(at("full/x")).expect("made");
    for (name, mode) in [("fine", 0o700), ("mode", 0o750), ("full", 0o700), ("open", 0o777)] {
        fs::create_dir_all(at(name)).expect("made");
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).expect("chmod");
    }
    assert_eq!(code(&at("fine")), "fine");
    assert_eq!(code(&at("new")), "fine");
    assert_eq!(code(&at("link")), "mountpoint-symlink");
    assert_eq!(code(&at("file")), "mountpoint-not-directory");
    assert_eq!(code(&at("mode")), "mountpoint-wrong-mode");
    assert_eq!(code(&at("full")), "mountpoint-not-empty");
    assert_eq!(code(&at("open/x")), "mountpoint-parent-writable");
    assert_eq!(code(&at("none/x")), "mountpoint-parent-missing");
    assert_eq!(code(&at("file/x")), "mountpoint-parent-not-directory");
    let other = Host { uid: host().uid + 1, ..host() };
    let refused = Mountpoint::check(&at("fine"), other).expect_err("somebody else's");
    assert_eq!(refused.code(), "mountpoint-wrong-owner");
}

#[test]
fn what_others_mounted_is_a_foreign_mount() {
    assert_eq!(code(Path::new("/proc")), "mountpoint-foreign-mount");
}

#[test]
fn a_look_changes_nothing_and_finds_what_the_check_would() {
    let room = tempfile::tempdir().expect("a directory");
    let at = |name: &str| room.path().join(name);
    let seen = |path: &Path| look(path, host(), |_| false);
    assert!(matches!(seen(&at("none")), Ok(Found::Absent)));
    assert!(!at("none").exists());
    fs::create_dir(at("free")).expect("made");
    fs::set_permissions(at("free"), fs::Permissions::from_mode(0o700)).expect("chmod");
    assert!(matches!(seen(&at("free")), Ok(Found::Free)));
    assert!(matches!(look(&at("free"), host(), |_| true), Ok(Found::Known)));
    std::os::unix::fs::symlink("free", at("link")).expect("made");
    let code = |path: &Path| seen(path).err().map(|fault| fault.code());
    assert_eq!(code(&at("link")), Some("mountpoint-symlink"));
    fs::write(at("free/file"), "").expect("made");
    assert_eq!(code(&at("free")), Some("mountpoint-not-empty"));
    assert_eq!(code(Path::new("/proc")), Some("mountpoint-foreign-mount"));
}
