//! Taking, binding and giving back leases, and what they hang on.

use super::super::*;
use super::desk::*;

#[test]
fn the_first_lease_makes_the_first_generation_and_others_share_it() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let session = desk.open(&alice, "chat", held(1)).session;
    assert_eq!(session.current, None);
    let shared = desk.lease(&alice, "chat", bound(5));
    let private = desk.acquire(&alice, "chat", LeaseKind::Private, bound(5)).unwrap();
    assert_eq!(shared.path_below_mount, format!("{}/1", session.id));
    assert_eq!(private.path_below_mount, format!("{}/1/{}", session.id, private.id));
    assert_eq!((shared.inode, private.inode), (201, 300));
    assert_eq!(shared.key, private.key);
    assert_eq!((shared.uid, shared.gid), (ALICE, ALICE));
    let view = desk.view(session.id);
    assert_eq!(view.current, Some(1));
    assert_eq!(view.generations[0].leases, 2);
}

#[test]
fn root_takes_a_lease_that_belongs_to_the_owner() {
    let mut desk = Desk::new();
    let id = desk.open(&peer(ALICE, 1), "chat", held(1)).session.id;
    let lease = desk.lease(&peer(0, 9), id.as_str(), bound(9));
    assert_eq!((lease.uid, lease.asked_by), (ALICE, process(9)));
    assert_eq!(desk.registry.leases(&peer(ALICE, 1)).len(), 1);
}

#[test]
fn a_lease_is_given_back_as_often_as_one_likes() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    desk.open(&alice, "chat", held(1));
    let lease = desk.acquire(&alice, "chat", LeaseKind::Private, bound(5)).unwrap();
    desk.wait(7);
    desk.followed();
    let receipt = desk.give_back(&alice, lease.id).unwrap();
    assert_eq!(receipt.end, LeaseEnd::Released);
    assert_eq!(receipt.ended.since(receipt.since).as_secs(), 7);
    let ended = Effect::LeaseEnded {
        lease: lease.id,
        uid: ALICE,
        kind: LeaseKind::Private,
        generation: lease.key,
    };
    assert_eq!(desk.followed(), [Effect::Unwatch(process(5)), ended]);
    let usage = Usage { bytes: 4096, inodes: 3 };
    desk.registry.note_usage(ALICE, lease.id, usage);
    desk.wait(7);
    let again = desk.give_back(&alice, lease.id).unwrap();
    assert_eq!(again, Receipt { usage: Some(usage), ..receipt });
    assert_eq!(desk.followed(), []);
    let over = RegistryError::LeaseEnded { lease: lease.id, end: LeaseEnd::Released };
    assert_eq!(desk.bind(&alice, lease.id, 6), Err(over.clone()));
    assert_eq!(desk.registry.lease(&alice, lease.id.as_str()), Err(over));
}

#[test]
fn what_never_was_a_lease_is_unknown() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    for text in ["aaaaaaaa", "not an id", "", "../../.."] {
        let unknown = RegistryError::LeaseUnknown { lease: text.to_owned() };
        let released = desk.registry.release_lease(&alice, text, desk.now);
        assert_eq!(released.err(), Some(unknown.clone()));
        let bound = desk.registry.bind(&alice, text, process(1), desk.now);
        assert_eq!(bound.err(), Some(unknown));
    }
}

#[test]
fn receipts_are_remembered_up_to_a_bound_for_each_user() {
    let mut desk = Desk::with(Bounds { remembered_per_uid: 3, ..Bounds::default() });
    let (alice, bob) = (peer(ALICE, 1), peer(BOB, 2));
    desk.open(&alice, "chat", held(1));
    desk.open(&bob, "chat", held(2));
    let bobs = desk.lease(&bob, "chat", bound(2)).id;
    desk.give_back(&bob, bobs).unwrap();
    let mut ended = Vec::new();
    for _ in 0..5 {
        let lease = desk.lease(&alice, "chat", bound(5)).id;
        desk.give_back(&alice, lease).unwrap();
        ended.push(lease);
    }
    for (position, lease) in ended.into_iter().enumerate() {
        assert_eq!(desk.give_back(&alice, lease).is_ok(), position >= 2, "{position}");
    }
    desk.give_back(&bob, bobs).unwrap();
}

#[test]
fn a_lease_ends_with_what_it_is_bound_to() {
    let connection = Binding::Connection(ConnectionId(3));
    type Ending = fn(&mut Desk);
    let cases: [(Binding, Ending, Option<LeaseEnd>); 8] = [
        (bound(5), |desk| desk.dies(5), Some(LeaseEnd::ProcessGone)),
        (bound(5), |desk| desk.dies(1), None),
        (bound(5), |desk| desk.disconnects(3), None),
        (connection, |desk| desk.disconnects(3), Some(LeaseEnd::ConnectionGone)),
        (connection, |desk| desk.disconnects(4), None),
        (connection, |desk| desk.dies(1), None),
        (Binding::Unbound, |desk| desk.dies(1), None),
        (Binding::Unbound, |desk| desk.disconnects(3), None),
    ];
    for (binding, ending, end) in cases {
        let mut desk = Desk::new();
        let alice = peer(ALICE, 1);
        desk.open(&alice, "chat", held(2));
        let lease = desk.lease(&alice, "chat", binding).id;
        ending(&mut desk);
        let expected = end.map(|end| RegistryError::LeaseEnded { lease, end });
        assert_eq!(desk.registry.lease(&alice, lease.as_str()).err(), expected, "{binding:?}");
    }
}

#[test]
fn a_lease_is_bound_later_and_then_ends_with_that_process() {
    let bindings = [Binding::Unbound, Binding::Connection(ConnectionId(3)), bound(1)];
    for before in bindings {
        let mut desk = Desk::new();
        let alice = peer(ALICE, 1);
        desk.open(&alice, "chat", linger(60));
        let lease = desk.lease(&alice, "chat", before).id;
        assert_eq!(desk.bind(&alice, lease, 5).unwrap().binding, bound(5));
        desk.bind(&alice, lease, 5).unwrap();
        assert_eq!(desk.registry.watched(), [process(5)]);
        desk.disconnects(3);
        desk.dies(1);
        assert!(desk.registry.lease(&alice, lease.as_str()).is_ok(), "{before:?}");
        desk.dies(5);
        assert!(desk.registry.lease(&alice, lease.as_str()).is_err(), "{before:?}");
    }
}

#[test]
fn an_unbound_lease_that_nobody_is_left_to_bind_ends() {
    // The process that asked for it dies before, with, or after the last owner.
    for order in [[1, 2], [2, 1]] {
        let mut desk = Desk::new();
        let alice = peer(ALICE, 1);
        let id = desk.open(&alice, "chat", held(2)).session.id;
        let lease = desk.lease(&alice, "chat", Binding::Unbound);
        desk.dies(order[0]);
        assert!(desk.registry.lease(&alice, lease.id.as_str()).is_ok());
        desk.dies(order[1]);
        assert!(desk.view(id).sealed);
        assert_eq!(desk.registry.draining(), [lease.key], "{order:?}");
        assert_eq!(desk.registry.watched(), []);
    }
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    desk.open(&alice, "chat", held(1));
    let lease = desk.lease(&alice, "chat", Binding::Unbound);
    desk.dies(1);
    assert_eq!(desk.registry.draining(), [lease.key]);
}

#[test]
fn a_lease_can_be_bound_though_its_session_was_sealed() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let opened = desk.open(&alice, "chat", held(1));
    let lease = desk.lease(&alice, "chat", Binding::Unbound);
    desk.release(&alice, "chat", opened.token).unwrap();
    desk.bind(&alice, lease.id, 5).unwrap();
    desk.dies(1);
    assert_eq!(desk.registry.draining(), []);
    desk.dies(5);
    assert_eq!(desk.registry.draining(), [lease.key]);
}

#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    desk.open(&alice, "chat", held(1));
    let lease = desk.lease(&alice, "chat", bound(5)).id;
    let reused = Process { pid: 5, start: 8 };
    let outcome = desk.registry.process_gone(reused, desk.now);
    assert_eq!(outcome.effects, []);
    assert!(desk.registry.lease(&alice, lease.as_str()).is_ok());
}

#[test]
fn a_process_is_watched_once_for_whatever_hangs_on_it() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let opened = desk.open(&alice, "chat", held(1));
    assert_eq!(desk.followed(), [Effect::Watch(process(1))]);
    let first = desk.lease(&alice, "chat", bound(1)).id;
    let second = desk.lease(&alice, "chat", bound(1)).id;
    desk.give_back(&alice, first).unwrap();
    desk.retain(&alice, "chat", linger(60)).unwrap();
    desk.release(&alice, "chat", opened.token).unwrap();
    let unwatched = Effect::Unwatch(process(1));
    assert!(!desk.followed().contains(&unwatched));
    desk.give_back(&alice, second).unwrap();
    assert!(desk.followed().contains(&unwatched));
    assert_eq!(desk.registry.watched(), []);
}

#[test]
fn a_long_list_is_told_piece_by_piece() {
    let mut desk = Desk::new();
    let (alice, root) = (peer(ALICE, 1), peer(0, 1));
    for name in ["a", "b", "c", "d", "e"] {
        desk.open(&alice, name, held(1));
        for _ in 0..3 {
            desk.lease(&alice, name, bound(1));
        }
    }
    let sessions: Vec<_> = desk.registry.sessions(&alice).iter().map(|view| view.id).collect();
    let mut leases: Vec<_> = desk.registry.leases(&alice).iter().map(|view| view.id).collect();
    leases.sort_unstable();
    for at_most in [1, 2, 100] {
        for viewer in [&alice, &root] {
            let (mut seen, mut found) = (Vec::new(), Vec::new());
            loop {
                let after = seen.last().map(SessionId::as_str);
                let piece = desk.registry.sessions_behind(viewer, after, at_most);
                assert!(piece.len() <= at_most);
                if piece.is_empty() {
                    break;
                }
                seen.extend(piece.iter().map(|view| view.id));
            }
            loop {
                let after = found.last().map(LeaseId::as_str);
                let piece = desk.registry.leases_behind(viewer, after, at_most);
                if piece.is_empty() {
                    break;
                }
                found.extend(piece.iter().map(|view| view.id));
            }
            assert_eq!((&seen, &found), (&sessions, &leases));
        }
    }
    assert!(desk.registry.sessions_behind(&peer(BOB, 2), None, 9).is_empty());
    assert!(desk.registry.leases_behind(&peer(BOB, 2), None, 9).is_empty());
    assert!(desk.registry.sessions_behind(&alice, Some("{"), 9).is_empty(), "behind all ids");
}
