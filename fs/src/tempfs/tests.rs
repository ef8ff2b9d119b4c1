//! Operations without a mount, on a temporary store.

mod several;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{FileType, OFlags, RenameFlags};
use rustix::process::{getgid, getuid};

use super::*;
use crate::attributes::Attributes;
use crate::clock::System;
use crate::node::GenerationKey;
use crate::store::{Limits, Ownership, Store};

/// One more connection to the filesystem.
fn connection(commons: &Arc<Commons>) -> Arc<TempFs> {
    let fs = TempFs::new(TempFs::records().unwrap(), Arc::clone(commons)).unwrap();
    let fs = Arc::new(fs);
    commons.join(Arc::clone(&fs));
    fs
}

/// A filesystem with one session that has two generations.
struct Fixture {
    commons: Arc<Commons>,
    fs: Arc<TempFs>,
    session: Node,
    root: Node,
    other: Node,
    caller: Caller,
    _home: tempfile::TempDir,
}

impl Fixture {
    /// Over a directory: any user can have that.
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = Store::beneath(std::fs::File::open(home.path()).unwrap().into());
        let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
        let options = Options { uid, gid, many_users: false, descriptors: 4096 };
        let commons = Commons::new(options, Arc::new(System));
        let fs = connection(&commons);
        let ownership = Ownership { uid, gid, permissions: 0o700 };
        let session = commons.structure().add_session(OsStr::new("aaaaaaaa"), ownership).unwrap();
        let mut roots = Vec::new();
        for number in [1, 2] {
            let key = GenerationKey::new(number).unwrap();
            let tree = store.make(key, Limits::default(), ownership).unwrap();
            let root = commons.plant(tree).root_node();
            commons.structure().add_generation(session, number, root);
            let name = number.to_string();
            assert!(matches!(fs.lookup(session, OsStr::new(&name)), Ok(Found::Inode(_))));
            roots.push(root);
        }
        let caller = Caller { uid, gid, thread: 0 };
        Self { commons, fs, session, root: roots[0], other: roots[1], caller, _home: home }
    }

    fn new_file<'a>(&self, parent: Node, name: &'a str, mode: u32) -> NewFile<'a> {
        NewFile { caller: self.caller, parent, name: OsStr::new(name), mode, umask: 0o022 }
    }

    fn create(&self, parent: Node, name: &str) -> (Attributes, OpenFile) {
        self.fs.create(&self.new_file(parent, name, 0o666), OFlags::RDWR).unwrap()
    }

    fn make_directory(&self, parent: Node, name: &str) -> Node {
        self.fs.make_directory(&self.new_file(parent, name, 0o777)).unwrap().node
    }

    fn look_up(&self, parent: Node, name: &str) -> Option<Attributes> {
        match self.fs.lookup(parent, OsStr::new(name)).unwrap() {
            Found::Inode(attributes) => Some(attributes),
            Found::Nothing => None,
        }
    }

    fn remove_directory(&self, parent: Node, name: &str) -> Result<(), Error> {
        self.fs.remove_directory(&self.caller, parent, OsStr::new(name))
    }

    fn rename(
        &self,
        old: (Node, &str),
        new: (Node, &str),
        flags: RenameFlags,
    ) -> Result<(), Error> {
        self.fs.rename(&self.caller, (old.0, OsStr::new(old.1)), (new.0, OsStr::new(new.1)), flags)
    }
}

/// Lines of a listing, as many as there is room for.
struct Lines {
    room: usize,
    taken: Vec<(OsString, u64)>,
}

impl Listing for Lines {
    fn add(&mut self, entry: &DirectoryEntry<'_>) -> bool {
        if self.taken.len() == self.room {
            return false;
        }
        self.taken.push((entry.name.to_owned(), entry.offset));
        true
    }

    fn add_with(&mut self, entry: &DirectoryEntry<'_>, _attributes: &Attributes) -> bool {
        self.add(entry)
    }
}

#[test]
fn what_is_written_is_read() {
    let f = Fixture::new();
    let (file, open) = f.create(f.root, "file");
    assert_eq!((file.kind, file.permissions), (FileType::RegularFile, 0o644));
    assert_eq!(f.fs.write(&f.caller, file.node, Position::At(4), b"data", false), Ok(4));
    assert_eq!(f.fs.read(file.node, 0, 100), Ok(b"\0\0\0\0data".to_vec()));
    assert_eq!(f.fs.attributes(file.node).unwrap().size, 8);
    f.fs.release(file.node, open.handle);
}

#[test]
fn a_missing_name_may_be_remembered_only_below_a_generation() {
    let f = Fixture::new();
    assert_eq!(f.fs.lookup(f.root, OsStr::new("no")), Ok(Found::Nothing));
    assert_eq!(f.fs.lookup(f.session, OsStr::new("9")), Err(Error::NoEntry));
    assert_eq!(f.fs.lookup(Node::ROOT, OsStr::new("bbbbbbbb")), Err(Error::NoEntry));
}

#[test]
fn a_name_that_loses_its_file_is_one_that_the_kernel_remembers() {
    let f = Fixture::new();
    let tree = f.commons.tree_of(f.root.generation()).unwrap();
    for name in ["file", "old", "kept", "other"] {
        f.create(f.root, name);
    }
    f.make_directory(f.root, "directory");
    // As after a restart: nobody asked for these names before they were there.
    tree.absent().take_all();
    f.fs.unlink(&f.caller, f.root, OsStr::new("file")).unwrap();
    f.fs.remove_directory(&f.caller, f.root, OsStr::new("directory")).unwrap();
    f.rename((f.root, "old"), (f.root, "new"), RenameFlags::empty()).unwrap();
    f.rename((f.root, "kept"), (f.root, "other"), RenameFlags::EXCHANGE).unwrap();
    let mut names: Vec<_> = tree.absent().take_all().into_iter().map(|one| one.name).collect();
    names.sort();
    assert_eq!(names, ["directory", "file", "old"]);
}

#[test]
fn a_number_stays_when_the_kernel_forgets_and_asks_again() {
    let f = Fixture::new();
    let (file, open) = f.create(f.root, "file");
    f.fs.release(file.node, open.handle);
    f.fs.forget(file.node, 1);
    assert_eq!(f.fs.attributes(file.node), Err(Error::Forgotten));
    assert_eq!(f.look_up(f.root, "file").unwrap().node, file.node);
}

#[test]
fn an_unlinked_file_lives_until_it_is_forgotten() {
    let f = Fixture::new();
    let (file, open) = f.create(f.root, "file");
    f.fs.write(&f.caller, file.node, Position::At(0), b"data", false).unwrap();
    f.fs.unlink(&f.caller, f.root, OsStr::new("file")).unwrap();
    assert_eq!(f.look_up(f.root, "file"), None);
    assert_eq!(f.fs.attributes(file.node).unwrap().links, 0);
    assert_eq!(f.fs.read(file.node, 0, 4), Ok(b"data".to_vec()));
    f.fs.release(file.node, open.handle);
    assert_eq!(f.fs.attributes(file.node).unwrap().links, 0);
    f.fs.forget(file.node, 1);
    assert_eq!(f.fs.attributes(file.node), Err(Error::Forgotten));
}

#[test]
fn a_removed_directory_still_tells_its_attributes() {
    let f = Fixture::new();
    let directory = f.make_directory(f.root, "directory");
    f.remove_directory(f.root, "directory").unwrap();
    let attributes = f.fs.attributes(directory).unwrap();
    assert!(attributes.is_directory() && attributes.links == 0);
}

#[test]
fn numbers_are_not_used_twice_while_the_kernel_knows_them() {
    let f = Fixture::new();
    let mut nodes = HashSet::new();
    for _ in 0..20 {
        let directory = f.make_directory(f.root, "again");
        assert!(nodes.insert(directory), "{directory:?} came twice");
        f.remove_directory(f.root, "again").unwrap();
    }
    // The last one's number stays its own across a forget.
    let last = f.make_directory(f.root, "last");
    f.fs.forget(last, 1);
    assert_eq!(f.look_up(f.root, "last").unwrap().node, last);
}

#[test]
fn rename_replaces_keeps_or_exchanges() {
    let f = Fixture::new();
    let (a, _) = f.create(f.root, "a");
    let (b, _) = f.create(f.root, "b");
    let refused = f.rename((f.root, "a"), (f.root, "b"), RenameFlags::NOREPLACE);
    assert_eq!(refused.unwrap_err().errno(), Errno::EXIST);
    f.rename((f.root, "a"), (f.root, "b"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(f.look_up(f.root, "a").unwrap().node, b.node);
    f.rename((f.root, "a"), (f.root, "b"), RenameFlags::empty()).unwrap();
    assert_eq!(f.look_up(f.root, "b").unwrap().node, b.node);
    assert_eq!(f.fs.attributes(a.node).unwrap().links, 0);
    let whiteout = f.rename((f.root, "b"), (f.root, "c"), RenameFlags::WHITEOUT);
    assert_eq!(whiteout, Err(Error::Invalid));
}

#[test]
fn two_names_of_one_file_survive_a_rename_onto_each_other() {
    let f = Fixture::new();
    let (file, _) = f.create(f.root, "a");
    f.fs.link(file.node, f.root, OsStr::new("b")).unwrap();
    f.rename((f.root, "a"), (f.root, "b"), RenameFlags::empty()).unwrap();
    assert_eq!(f.look_up(f.root, "a").unwrap().links, 2);
    assert_eq!(f.look_up(f.root, "b").unwrap().links, 2);
}

#[test]
fn generations_cannot_be_linked_or_renamed_into_one_another() {
    let f = Fixture::new();
    let (file, _) = f.create(f.root, "file");
    let linked = f.fs.link(file.node, f.other, OsStr::new("file"));
    assert_eq!(linked.unwrap_err().errno(), Errno::XDEV);
    let renamed = f.rename((f.root, "file"), (f.other, "file"), RenameFlags::empty());
    assert_eq!(renamed.unwrap_err().errno(), Errno::XDEV);
}

#[test]
fn structural_directories_cannot_be_removed_renamed_or_replaced() {
    let f = Fixture::new();
    let lease = f.make_directory(f.root, "lease000");
    f.fs.structure().protect(lease, f.root);
    f.make_directory(f.root, "mine");
    let busy = |result: Result<(), Error>| assert_eq!(result.unwrap_err().errno(), Errno::BUSY);
    busy(f.remove_directory(Node::ROOT, "aaaaaaaa"));
    busy(f.remove_directory(f.session, "1"));
    busy(f.remove_directory(f.root, "lease000"));
    let none = RenameFlags::empty();
    busy(f.rename((Node::ROOT, "aaaaaaaa"), (Node::ROOT, "x"), none));
    busy(f.rename((f.session, "1"), (f.root, "x"), none));
    busy(f.rename((f.root, "lease000"), (f.root, "x"), none));
    busy(f.rename((f.root, "mine"), (f.root, "lease000"), none));
    busy(f.rename((f.root, "mine"), (f.root, "lease000"), RenameFlags::EXCHANGE));
    busy(f.rename((f.root, "mine"), (f.session, "2"), none));
}

/// Keeps what it is told.
#[derive(Default)]
struct Book(Mutex<Vec<Refusal>>);

impl Witness for Book {
    fn refused(&self, refusal: Refusal) {
        self.0.lock().unwrap().push(refusal);
    }
}

#[test]
fn a_refused_attempt_is_told_once_with_who_and_where() {
    let f = Fixture::new();
    let book = Arc::new(Book::default());
    f.commons.set_witness(Arc::clone(&book) as Arc<dyn Witness>);
    let lease = f.make_directory(f.root, "lease000");
    f.fs.structure().protect(lease, f.root);
    f.create(f.root, "mine");
    let none = RenameFlags::empty();
    for (attempt, path, refused) in [
        (Attempt::Remove, "aaaaaaaa", f.remove_directory(Node::ROOT, "aaaaaaaa")),
        (Attempt::Remove, "aaaaaaaa/1", f.remove_directory(f.session, "1")),
        (Attempt::Remove, "aaaaaaaa/1/lease000", f.remove_directory(f.root, "lease000")),
        (Attempt::Rename, "aaaaaaaa", f.rename((Node::ROOT, "aaaaaaaa"), (f.root, "x"), none)),
        (Attempt::Rename, "aaaaaaaa/2", f.rename((f.session, "2"), (f.session, "x"), none)),
        (
            Attempt::Rename,
            "aaaaaaaa/1/lease000",
            f.rename((f.root, "lease000"), (f.root, "x"), none),
        ),
        (Attempt::Replace, "aaaaaaaa/2", f.rename((f.root, "mine"), (f.session, "2"), none)),
        (
            Attempt::Replace,
            "aaaaaaaa/1/lease000",
            f.rename((f.root, "mine"), (f.root, "lease000"), none),
        ),
    ] {
        assert_eq!(refused, Err(Error::Structural), "{path}");
        let told = book.0.lock().unwrap().remove(0);
        assert_eq!((told.attempt, told.path.as_str(), told.caller), (attempt, path, f.caller));
        assert_eq!((told.session.as_str(), told.owner), ("aaaaaaaa", f.caller.uid));
        assert_eq!(told.lease.as_deref(), path.strip_prefix("aaaaaaaa/1/"));
    }
    // What isn't there, is free, or is only to be made is nobody's loss.
    f.remove_directory(f.session, "3").unwrap_err();
    f.rename((f.root, "mine"), (f.session, "3"), none).unwrap_err();
    f.fs.make_directory(&f.new_file(f.session, "3", 0o777)).unwrap_err();
    f.fs.unlink(&f.caller, f.root, OsStr::new("mine")).unwrap();
    assert_eq!(*book.0.lock().unwrap(), []);
}

#[test]
fn nothing_is_made_above_a_generation() {
    let f = Fixture::new();
    for parent in [Node::ROOT, f.session] {
        let refused = f.fs.make_directory(&f.new_file(parent, "new", 0o777));
        assert_eq!(refused.unwrap_err().errno(), Errno::PERM);
        f.create(f.root, "file");
        let renamed = f.rename((f.root, "file"), (parent, "file"), RenameFlags::empty());
        assert_eq!(renamed.unwrap_err().errno(), Errno::PERM);
        f.fs.unlink(&f.caller, f.root, OsStr::new("file")).unwrap();
    }
}

#[test]
fn times_of_every_directory_can_be_set_and_modes_of_structural_ones_stay() {
    let f = Fixture::new();
    let time = crate::attributes::FileTime { seconds: -5, nanoseconds: 7 };
    let times = Changes {
        accessed: Some(TimeChange::At(time)),
        modified: Some(TimeChange::At(time)),
        ..Changes::default()
    };
    for node in [Node::ROOT, f.session, f.root] {
        let changed = f.fs.change(&f.caller, node, &times).unwrap();
        assert_eq!((changed.accessed, changed.modified), (time, time));
    }
    let mode = Changes { permissions: Some(0o755), ..Changes::default() };
    assert_eq!(f.fs.change(&f.caller, f.session, &mode), Err(Error::AboveGenerations));
    assert_eq!(f.fs.change(&f.caller, f.root, &mode).unwrap().permissions, 0o700);
    let stranger = Caller { uid: f.caller.uid + 1, ..f.caller };
    assert_eq!(f.fs.change(&stranger, f.root, &mode), Err(Error::AboveGenerations));
    let same = Changes { permissions: Some(0o700), ..Changes::default() };
    assert!(f.fs.change(&stranger, f.root, &same).is_ok());
}

#[test]
fn changing_nothing_takes_set_id_bits_away() {
    let f = Fixture::new();
    let (file, _) = f.create(f.root, "file");
    let change = |permissions| {
        let changes = Changes { permissions: Some(permissions), ..Changes::default() };
        f.fs.change(&f.caller, file.node, &changes).unwrap().permissions
    };
    // Root keeps what it has the right to keep.
    let user = Caller { uid: f.caller.uid + 1, ..f.caller };
    let nothing = || f.fs.change(&user, file.node, &Changes::default()).unwrap().permissions;
    assert_eq!(change(0o6755), 0o6755);
    assert_eq!(nothing(), 0o755);
    // Without group execution the bit means something else, and stays.
    assert_eq!(change(0o2745), 0o2745);
    assert_eq!(nothing(), 0o2745);
}

#[test]
fn a_write_without_the_right_to_keep_set_id_bits_takes_them_away() {
    let f = Fixture::new();
    let (file, _) = f.create(f.root, "file");
    let changes = Changes { permissions: Some(0o4755), ..Changes::default() };
    f.fs.change(&f.caller, file.node, &changes).unwrap();
    f.fs.write(&f.caller, file.node, Position::At(0), b"x", true).unwrap();
    assert_eq!(f.fs.attributes(file.node).unwrap().permissions, 0o755);
}

#[test]
fn a_listing_goes_on_behind_a_line_whose_name_is_gone() {
    let f = Fixture::new();
    for number in 0..10 {
        f.create(f.root, &number.to_string());
    }
    let mut first = Lines { room: 4, taken: Vec::new() };
    f.fs.list(f.root, 0, false, &mut first).unwrap();
    let (last, offset) = first.taken.last().unwrap().clone();
    if last != "." && last != ".." {
        f.fs.unlink(&f.caller, f.root, &last).unwrap();
    }
    let mut rest = Lines { room: 100, taken: Vec::new() };
    f.fs.list(f.root, offset, true, &mut rest).unwrap();
    let names: HashSet<_> =
        first.taken.iter().chain(&rest.taken).map(|(name, _)| name.clone()).collect();
    assert_eq!(names.len(), 12);
    assert_eq!(first.taken.len() + rest.taken.len(), 12);
}

#[test]
fn a_listing_counts_what_it_looked_up_and_nothing_else() {
    let f = Fixture::new();
    for number in 0..10 {
        let (file, open) = f.create(f.root, &number.to_string());
        f.fs.release(file.node, open.handle);
        f.fs.forget(file.node, 1);
    }
    let before = f.fs.known_inodes();
    let mut some = Lines { room: 6, taken: Vec::new() };
    f.fs.list(f.root, 0, true, &mut some).unwrap();
    let shown = some.taken.iter().filter(|(name, _)| name != "." && name != "..").count();
    assert_eq!(f.fs.known_inodes(), before + shown);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let f = Fixture::new();
    for name in ["", ".", "..", "a/b", "../x"] {
        assert_eq!(f.fs.lookup(f.root, OsStr::new(name)), Err(Error::Invalid));
        let made = f.fs.make_symlink(&f.new_file(f.root, name, 0), Path::new("target"));
        assert_eq!(made, Err(Error::Invalid));
    }
}

#[test]
fn symlinks_are_kept_as_they_are() {
    let f = Fixture::new();
    let link =
        f.fs.make_symlink(&f.new_file(f.root, "link", 0), Path::new("/nowhere/../x")).unwrap();
    assert_eq!(f.fs.read_link(link.node), Ok("/nowhere/../x".into()));
    assert_eq!(f.look_up(f.root, "link").unwrap().kind, FileType::Symlink);
}

#[test]
fn holes_are_found() {
    let f = Fixture::new();
    let (file, _) = f.create(f.root, "file");
    f.fs.write(&f.caller, file.node, Position::At(1 << 20), b"end", false).unwrap();
    assert_eq!(f.fs.seek(file.node, 0, false), Ok(0));
    assert_eq!(f.fs.seek(file.node, 0, true), Ok(1 << 20));
    assert_eq!(f.fs.seek(file.node, 2 << 20, true).unwrap_err().errno(), Errno::NXIO);
}

#[test]
fn devices_are_roots_to_make() {
    let f = Fixture::new();
    let user = Caller { uid: 1000, ..f.caller };
    let mode = FileType::CharacterDevice.as_raw_mode() | 0o666;
    let new = NewFile { caller: user, ..f.new_file(f.root, "null", mode) };
    assert_eq!(f.fs.make_node(&new, 0x103), Err(Error::Device));
    let fifo = NewFile { mode: FileType::Fifo.as_raw_mode() | 0o644, ..new };
    assert_eq!(f.fs.make_node(&fifo, 0).unwrap().kind, FileType::Fifo);
}
