//! Stores without a filesystem on top.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{getgid, getuid};

use super::*;

fn own() -> Ownership {
    Ownership { uid: getuid().as_raw(), gid: getgid().as_raw(), permissions: 0o700 }
}

fn beneath(path: &Path) -> Store {
    Store::beneath(std::fs::File::open(path).unwrap().into())
}

#[test]
fn a_key_of_an_earlier_daemon_is_not_used_again() {
    let home = tempfile::tempdir().unwrap();
    let store = beneath(home.path());
    assert_eq!(store.first_free_key().unwrap(), GenerationKey::FIRST);
    let key = GenerationKey::new(41).unwrap();
    store.make(key, Limits::default(), own()).unwrap();
    assert_eq!(beneath(home.path()).first_free_key().unwrap().get(), 42);
    assert!(store.make(key, Limits::default(), own()).is_err());
}

#[test]
fn whatever_is_in_a_generation_is_discarded() {
    let home = tempfile::tempdir().unwrap();
    let store = beneath(home.path());
    let kept = home.path().join("kept");
    std::fs::write(&kept, "not ours to remove").unwrap();
    let key = GenerationKey::FIRST;
    let tree = store.make(key, Limits::default(), own()).unwrap();
    let root = home.path().join("1/tree");
    std::os::unix::fs::symlink(&kept, root.join("link")).unwrap();
    std::fs::write(root.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "").unwrap();
    drop(std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap());
    let mut deep = root.clone();
    for level in 0..60 {
        deep.push(format!("level-{level}"));
        std::fs::create_dir(&deep).unwrap();
        std::fs::write(deep.join("file"), "").unwrap();
    }
    let closed = root.join("level-0/closed");
    std::fs::create_dir_all(closed.join("inner")).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o0)).unwrap();
    drop(tree);
    store.discard(key).unwrap();
    assert!(!home.path().join("1").exists());
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "not ours to remove");
    // What is gone already is no error.
    store.discard(key).unwrap();
}

#[test]
fn a_directory_store_refuses_limits_that_it_cannot_hold() {
    let home = tempfile::tempdir().unwrap();
    let limits = Limits { size: Some(1 << 20), inodes: None };
    let refused = beneath(home.path()).make(GenerationKey::FIRST, limits, own());
    assert!(matches!(refused, Err(StoreError::NoLimits)));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

/// A tmpfs wants `CAP_SYS_ADMIN`; whether it is there is asked by trying.
fn tmpfs(limits: Limits) -> Option<(Store, Tree)> {
    let store = Store::tmpfs();
    match store.make(GenerationKey::FIRST, limits, own()) {
        Ok(tree) => Some((store, tree)),
        Err(StoreError::Refused { errno: Errno::PERM, .. }) if !getuid().is_root() => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn memory_is_held_to_its_limits_and_can_be_resized_in_use() {
    let limits = Limits { size: Some(64 * 1024), inodes: Some(8) };
    let Some((store, tree)) = tmpfs(limits) else { return };
    let statistics = tree.statistics().unwrap();
    assert_eq!(statistics.f_blocks * statistics.f_frsize, 64 * 1024);
    assert_eq!(statistics.f_ffree, 8);
    store.resize(&tree, Limits { size: Some(1 << 20), inodes: Some(16) }).unwrap();
    let statistics = tree.statistics().unwrap();
    assert_eq!(statistics.f_blocks * statistics.f_frsize, 1 << 20);
    assert_eq!(statistics.f_ffree, 16);
    store.discard(GenerationKey::FIRST).unwrap();
}

#[test]
fn limits_that_memory_cannot_have_are_told_from_a_refusal() {
    let limits = Limits { size: Some(1 << 20), inodes: Some(8) };
    let Some((store, tree)) = tmpfs(limits) else { return };
    let absurd = Limits { size: None, inodes: Some(u64::MAX) };
    assert!(matches!(store.resize(&tree, absurd), Err(StoreError::Unfit)));
    let too_few = Limits { size: None, inodes: Some(0) };
    for name in ["a", "b"] {
        rustix::fs::mkdirat(tree.root(), name, rustix::fs::Mode::RWXU).unwrap();
    }
    let refused = store.resize(&tree, too_few);
    assert!(matches!(refused, Err(StoreError::Unfit)), "{refused:?}");
}
