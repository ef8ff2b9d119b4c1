//! Several connections to one filesystem.

use super::*;

/// One more connection, on which the kernel has looked at the first generation.
fn second(f: &Fixture) -> Arc<TempFs> {
    let second = connection(&f.commons);
    assert!(matches!(second.lookup(f.session, OsStr::new("1")), Ok(Found::Inode(_))));
    second
}

#[test]
fn nothing_is_remembered_while_there_are_several_connections() {
    let f = Fixture::new();
    assert!(f.fs.may_be_remembered());
    assert_eq!(f.fs.lookup(f.root, OsStr::new("no")), Ok(Found::Nothing));
    let second = connection(&f.commons);
    assert!(!f.fs.may_be_remembered() && !second.may_be_remembered());
    assert_eq!(f.fs.lookup(f.root, OsStr::new("no")), Err(Error::NoEntry));
    let (_, open) = f.create(f.root, "file");
    assert_eq!(open.pages, Pages::Bypassed);
    f.commons.leave(&f.fs);
    assert!(second.may_be_remembered());
}

#[test]
fn each_connection_sees_the_same_inodes() {
    let f = Fixture::new();
    let second = second(&f);
    let (file, open) = f.create(f.root, "file");
    f.fs.write(&f.caller, file.node, Position::At(0), b"first", false).unwrap();
    let Ok(Found::Inode(seen)) = second.lookup(f.root, OsStr::new("file")) else {
        panic!("not found")
    };
    assert_eq!(seen.node, file.node);
    assert_eq!(second.read(seen.node, 0, 100), Ok(b"first".to_vec()));
    // Whoever appends doesn't know how far the other one has come.
    second.write(&f.caller, seen.node, Position::End(5), b" second", false).unwrap();
    f.fs.write(&f.caller, file.node, Position::End(5), b" third", false).unwrap();
    assert_eq!(second.read(seen.node, 0, 100), Ok(b"first second third".to_vec()));
    f.fs.release(file.node, open.handle);
}

#[test]
fn what_one_connection_removes_the_other_one_still_reaches() {
    let f = Fixture::new();
    let second = second(&f);
    let (file, _) = f.create(f.root, "file");
    f.fs.write(&f.caller, file.node, Position::At(0), b"data", false).unwrap();
    assert!(matches!(second.lookup(f.root, OsStr::new("file")), Ok(Found::Inode(_))));
    second.unlink(&f.caller, f.root, OsStr::new("file")).unwrap();
    assert_eq!(f.fs.attributes(file.node).unwrap().links, 0);
    assert_eq!(f.fs.read(file.node, 0, 100), Ok(b"data".to_vec()));
}

#[test]
fn a_generation_is_known_as_long_as_any_connection_knows_it() {
    let f = Fixture::new();
    let key = f.root.generation();
    let second = second(&f);
    f.fs.forget(f.root, 1);
    assert!(f.commons.knows_any_of(key));
    f.commons.leave(&second);
    assert!(!f.commons.knows_any_of(key));
}
