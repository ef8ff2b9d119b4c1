//! Sessions that are kept, undone and taken up again.

use std::time::Duration;

use super::super::*;
use super::desk::*;

/// A session with an owner, a retired and a current generation, and leases on both.
fn full() -> (Desk, SessionId) {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 10);
    let id = desk.open(&alice, "chat", held(10)).session.id;
    desk.lease(&alice, "chat", bound(11));
    desk.rotate(&alice, "chat").unwrap();
    desk.acquire(&alice, "chat", LeaseKind::Private, bound(12)).unwrap();
    (desk, id)
}

fn again(desk: &Desk, change: impl FnOnce(&mut Vec<Session>)) -> Result<Registry, Contradiction> {
    let mut sessions: Vec<_> = desk.registry.sessions.values().cloned().collect();
    change(&mut sessions);
    let kept = sessions.into_iter().map(SessionRecord).collect();
    Registry::of_kept(Bounds::default(), GenerationKey::FIRST, kept)
}

#[test]
fn what_is_undone_was_never_there() {
    let (mut desk, id) = full();
    let was = desk.registry.clone();
    let alice = peer(ALICE, 10);
    desk.wait(5);

    let before = desk.registry.record(id);
    desk.lease(&alice, "chat", bound(13));
    desk.registry.undo(id, before.clone());
    assert_eq!(desk.registry, was);

    desk.open(&alice, "chat", linger(9));
    desk.registry.undo(id, before);
    assert_eq!(desk.registry, was);

    let new = desk.open(&alice, "other", held(14)).session.id;
    desk.registry.undo(new, None);
    assert_eq!(desk.registry.sessions, was.sessions);
    assert_eq!(desk.registry.index, was.index);
    assert!(desk.registry.take_changed().contains(&new), "nothing of it is to be kept");
}

#[test]
fn keys_go_on_behind_the_last_one_that_is_kept_or_found() {
    let (desk, _) = full();
    assert_eq!(again(&desk, |_| {}).unwrap().next_key, GenerationKey::new(3));
    let kept = desk.registry.sessions.values().cloned().map(SessionRecord).collect();
    let found = GenerationKey::new(40).unwrap();
    let registry = Registry::of_kept(Bounds::default(), found, kept).unwrap();
    assert_eq!(registry.next_key, Some(found));
    let last = again(&desk, |kept| {
        kept[0].generations.get_mut(&2).unwrap().key = GenerationKey::MAX;
    });
    assert_eq!(last.unwrap().next_key, None);
}

#[test]
fn a_generation_that_is_lost_takes_its_leases_along_and_is_not_drained() {
    let (mut desk, id) = full();
    desk.followed();
    let (first, second) = (GenerationKey::new(1).unwrap(), GenerationKey::new(2).unwrap());
    let outcome = desk.registry.lose_generation(second, desk.now);
    assert_eq!(outcome.effects, [Effect::Unwatch(process(12))]);
    let view = desk.view(id);
    assert_eq!((view.current, view.leases, view.generations.len()), (None, 1, 1));
    // The next lease makes a fresh one.
    assert_eq!(desk.lease(&peer(ALICE, 10), "chat", bound(10)).generation, 3);

    desk.close(&peer(ALICE, 10), "chat", true).unwrap();
    assert_eq!(desk.registry.lose_generation(first, desk.now).effects, []);
    let third = desk.view(id).generations[0].key;
    let outcome = desk.registry.lose_generation(third, desk.now);
    assert_eq!(outcome.effects, [Effect::LowerSession(id)]);
    assert!(desk.is_gone(id));
    assert_eq!(desk.registry.lose_generation(third, desk.now).effects, []);
}

#[test]
fn a_lease_whose_directory_is_lost_says_so() {
    let (mut desk, _) = full();
    let alice = peer(ALICE, 10);
    let lease = desk.registry.leases(&alice).into_iter().find(|lease| lease.current).unwrap();
    let _ = desk.registry.lose_lease(lease.id, desk.now);
    let receipt = desk.registry.receipt(&alice, lease.id).unwrap();
    assert_eq!(receipt.end, LeaseEnd::DirectoryGone);
}

#[test]
fn a_clock_that_began_anew_leaves_things_as_long_ago_as_they_were() {
    let (mut desk, id) = full();
    desk.wait(30);
    desk.open(&peer(ALICE, 10), "chat", linger(60));
    let mut record = desk.registry.record(id).unwrap();
    let seconds = |seconds| Timestamp::from_start(Duration::from_secs(seconds));
    record.start_anew(seconds(50));
    let SessionRecord(session) = &record;
    assert_eq!((session.active, session.opened), (seconds(50), seconds(20)));
    assert_eq!(session.expires(), Some(seconds(110)), "nothing is leased any more");
    assert!(session.tokens.values().any(|token| token.since == seconds(20)));
    // It can't be longer ago than the clock goes.
    record.start_anew(seconds(3));
    assert_eq!(record.0.opened, seconds(0));
}

#[test]
fn what_can_t_be_is_refused_by_its_rule() {
    let (mut desk, id) = full();
    desk.open(&peer(ALICE, 10), "other", held(10));
    assert!(again(&desk, |_| {}).is_ok());
    type Change = fn(&mut Vec<Session>);
    let cases: [(&str, Change); 15] = [
        ("its name is not one", |kept| kept[0].name = Some("\n".to_owned())),
        ("its inode number is not one of a session", |kept| kept[0].inode = 1),
        ("its inode number is not one of a session", |kept| kept[0].inode = 1 << 40),
        ("it is sealed if and only if it has no owner", |kept| kept[0].sealed = true),
        ("it is sealed if and only if it has no owner", |kept| kept[0].tokens.clear()),
        ("what is sealed has generations, all of them retired", |kept| {
            kept[0].tokens.clear();
            kept[0].sealed = true;
        }),
        ("only the last generation is current", |kept| {
            kept[0].generations.get_mut(&1).unwrap().retired = false;
        }),
        ("the key of a generation is not one", |kept| {
            kept[0].generations.get_mut(&1).unwrap().key = GenerationKey::STRUCTURE;
        }),
        ("its next generation has a number that was never used", |kept| kept[0].next_number = 2),
        ("its next generation has a number that was never used", |kept| {
            kept[0].next_number = u32::MAX;
        }),
        ("a lease is on a generation of it", |kept| {
            kept[0].generations.retain(|number, _| *number != 1)
        }),
        ("another one has its inode number", |kept| kept[1].inode = kept[0].inode),
        ("another one has its generation", |kept| {
            kept[1].generations = kept[0].generations.clone();
            kept[1].next_number = 3;
        }),
        ("another one has its lease", |kept| {
            let mut generation = kept[0].generations[&1].clone();
            generation.key = GenerationKey::new(77).unwrap();
            kept[1].generations.insert(1, generation);
            kept[1].next_number = 2;
            let leases = kept[0].leases.clone();
            kept[1].leases = leases.into_iter().filter(|(_, one)| one.generation == 1).collect();
        }),
        ("another open one has its name", |kept| kept[1].name = kept[0].name.clone()),
    ];
    for (rule, change) in cases {
        let refused = again(&desk, |kept| {
            kept.sort_by_key(|session| session.id != id);
            change(kept);
        });
        assert_eq!(refused.map_err(|refused| refused.rule).err(), Some(rule));
    }
}
