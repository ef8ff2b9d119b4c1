//! The table without a filesystem.

use super::*;

fn table() -> InodeTable {
    InodeTable::new(InodeTable::file().unwrap(), 64).unwrap()
}

fn handle(byte: u8) -> FileHandle {
    FileHandle { kind: 1, length: 12, bytes: [byte; crate::sys::HANDLE_BYTES] }
}

fn node(inode: u64) -> Node {
    Node::new(GenerationKey::new(3).unwrap(), inode).unwrap()
}

fn open(table: &InodeTable, inode: u64, backing: Option<u32>) -> Opened {
    let file = InodeTable::file().unwrap();
    table.opened(node(inode), Some(file.as_fd()), |_| backing).unwrap().unwrap()
}

fn remember(table: &InodeTable, inode: u64) {
    table.remember(node(inode), false, || Ok(Some(Reach::Handle(handle(1))))).unwrap();
}

#[test]
fn the_last_look_up_given_back_frees_the_record() {
    let table = table();
    remember(&table, 5);
    remember(&table, 5);
    assert_eq!(table.forget(node(5), 1), None);
    assert!(table.knows(node(5)));
    table.forget(node(5), 1);
    assert!(!table.knows(node(5)));
    assert_eq!(table.len(), 0);
}

#[test]
fn a_place_is_used_again() {
    let table = table();
    for inode in 1..100 {
        remember(&table, inode);
        table.forget(node(inode), 1);
    }
    assert_eq!(lock(&table.free).untouched, 1);
}

#[test]
fn one_registered_file_serves_all_opens() {
    let table = table();
    remember(&table, 5);
    assert_eq!(table.opened(node(5), None, |_| None).unwrap(), None);
    let first = open(&table, 5, Some(7));
    let second = table.opened(node(5), None, |_| panic!("registered twice")).unwrap();
    assert_eq!(Some(first), second);
    assert_eq!(table.released(node(5), first.incarnation), None);
    assert_eq!(table.released(node(5), first.incarnation), None);
    // Idle, it stays registered and is found again.
    assert_eq!(open(&table, 5, None).backing, Some(7));
}

#[test]
fn idle_registrations_are_bounded() {
    let table = table();
    let mut closed = Vec::new();
    for inode in 1..=IDLE_BACKINGS as u64 + 3 {
        remember(&table, inode);
        let open = open(&table, inode, Some(inode as u32));
        closed.extend(table.released(node(inode), open.incarnation));
    }
    assert_eq!(closed, [1, 2, 3]);
}

#[test]
fn an_unlinked_file_is_closed_with_its_last_open() {
    let table = table();
    remember(&table, 5);
    let open = open(&table, 5, Some(7));
    let descriptor = Arc::new(InodeTable::file().unwrap());
    table.keep_unlinked(node(5), descriptor);
    assert_eq!(table.close_if_idle(node(5)), None);
    assert_eq!(table.released(node(5), open.incarnation), Some(7));
}

#[test]
fn a_late_release_does_not_touch_a_new_record() {
    let table = table();
    remember(&table, 5);
    let old = open(&table, 5, Some(7));
    assert_eq!(table.forget(node(5), 1), Some(7));
    remember(&table, 5);
    let new = open(&table, 5, Some(8));
    assert_eq!(table.released(node(5), old.incarnation), None);
    assert_eq!(table.opens(node(5)), 1);
    assert_eq!(new.backing, Some(8));
}

#[test]
fn the_page_cache_and_passthrough_are_never_mixed() {
    let table = table();
    remember(&table, 5);
    assert_eq!(open(&table, 5, None).backing, None);
    assert_eq!(open(&table, 5, Some(7)).backing, None);
}

#[test]
fn a_file_that_is_used_again_and_again_stays_registered() {
    let table = table();
    remember(&table, 5);
    for _ in 0..3 * IDLE_BACKINGS {
        let open = open(&table, 5, Some(7));
        assert_eq!(table.released(node(5), open.incarnation), None);
    }
}

#[test]
fn the_oldest_descriptors_go_first() {
    let table = table();
    for inode in 1..=60 {
        let reach = || Ok(Some(Reach::Descriptor(InodeTable::file().unwrap())));
        table.remember(node(inode), false, reach).unwrap();
    }
    let oldest = table.over_budget().unwrap();
    assert_eq!(oldest.first(), Some(&node(1)));
    for node in oldest {
        table.forget(node, 1);
    }
    assert_eq!(table.over_budget(), None);
}
