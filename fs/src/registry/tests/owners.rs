//! Owner tokens, sealing, lingering, rotation, and who may end what.

use super::super::*;
use super::desk::*;

#[test]
fn the_last_token_seals_and_frees_the_name() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let opened = desk.open(&alice, "chat", held(1));
    let id = opened.session.id;
    let lease = desk.lease(&alice, "chat", bound(5));
    let second = desk.retain(&alice, "chat", held(2)).unwrap();
    desk.release(&alice, "chat", opened.token).unwrap();
    assert!(!desk.view(id).sealed);
    desk.release(&alice, "chat", second).unwrap();
    assert!(desk.view(id).sealed);

    let sealed = RegistryError::SessionSealed { session: id };
    let by_id = id.as_str();
    assert_eq!(desk.retain(&alice, by_id, held(1)), Err(sealed.clone()));
    assert_eq!(desk.rotate(&alice, by_id), Err(sealed.clone()));
    let refused = desk.registry.resize(&alice, by_id, Some(1), None, desk.now);
    assert_eq!(refused.err(), Some(sealed.clone()));
    assert_eq!(desk.registry.leasable(&alice, by_id), Err(sealed.clone()));
    let refused = desk.acquire(&alice, by_id, LeaseKind::Shared, Binding::Unbound);
    assert_eq!(refused, Err(sealed));

    let next = desk.open(&alice, "chat", held(1));
    assert!(!next.attached);
    assert_ne!(next.session.id, id);
    assert!(desk.view(id).sealed, "a new session of that name doesn't wake the old one");
    assert_eq!(desk.registry.lease(&alice, lease.id.as_str()).unwrap().session, id);
}

#[test]
fn a_hot_rebuild_never_seals() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let mut token = desk.open(&alice, "chat", held(1)).token;
    let key = desk.lease(&alice, "chat", bound(5)).key;
    desk.followed();
    for _ in 0..100 {
        let next = desk.open(&alice, "chat", held(1));
        assert!(next.attached);
        desk.release(&alice, "chat", token).unwrap();
        token = next.token;
    }
    assert_eq!(desk.followed(), [], "neither is the process watched anew");
    assert_eq!(desk.lease(&alice, "chat", bound(6)).key, key);
}

#[test]
fn all_tokens_of_a_process_go_with_it_and_no_others() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let one = desk.open(&alice, "one", held(1)).session.id;
    desk.retain(&alice, "one", held(1)).unwrap();
    let two = desk.open(&alice, "two", held(1)).session.id;
    let other = desk.retain(&alice, "two", held(2)).unwrap();
    desk.dies(1);
    assert!(desk.is_gone(one));
    assert!(!desk.view(two).sealed);
    desk.dies(1);
    desk.release(&alice, "two", other).unwrap();
    assert!(desk.is_gone(two));
}

#[test]
fn a_token_can_be_released_again_but_not_invented() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let opened = desk.open(&alice, "chat", held(1));
    let id = opened.session.id;
    desk.lease(&alice, "chat", bound(5));
    let kept = desk.retain(&alice, "chat", held(2)).unwrap();
    for _ in 0..2 {
        desk.release(&alice, "chat", opened.token).unwrap();
        desk.release(&alice, id.as_str(), opened.token).unwrap();
    }
    let never = TokenId::from_number(12345);
    assert_eq!(desk.release(&alice, "chat", never), Err(RegistryError::TokenUnknown));
    let unspelled = desk.registry.release(&alice, "chat", "no token", desk.now);
    assert_eq!(unspelled.err(), Some(RegistryError::TokenUnknown));

    desk.dies(2);
    assert!(desk.view(id).sealed);
    // By the name that it had, even when another session has it now, or nobody does.
    desk.release(&alice, "chat", kept).unwrap();
    let next = desk.open(&alice, "chat", held(1));
    desk.release(&alice, "chat", kept).unwrap();
    assert!(!desk.view(next.session.id).sealed);
    let bob = desk.release(&peer(BOB, 3), "chat", kept);
    assert_eq!(bob, Err(RegistryError::SessionUnknown { session: "chat".to_owned() }));
    desk.open(&alice, "other", held(1));
    assert_eq!(desk.release(&alice, "other", kept), Err(RegistryError::TokenUnknown));
}

#[test]
fn a_lingering_token_goes_after_its_time_without_activity() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let id = desk.open(&alice, "chat", linger(60)).session.id;
    assert_eq!(desk.registry.watched(), [], "nobody has to live for it");
    desk.wait(59);
    desk.tick();
    desk.open(&alice, "chat", linger(30));
    desk.wait(30);
    desk.tick();
    assert_eq!(desk.view(id).tokens.len(), 1, "each token has its own time");
    desk.wait(29);
    desk.tick();
    let lease = desk.lease(&alice, "chat", bound(5));
    assert_eq!(desk.registry.next_tick(), None);
    desk.wait(100_000);
    desk.tick();
    assert!(!desk.view(id).sealed, "a lease is activity as long as it is there");
    desk.give_back(&alice, lease.id).unwrap();
    let expiry = desk.now.after(std::time::Duration::from_secs(60));
    assert_eq!(desk.registry.next_tick(), Some(expiry));
    assert_eq!(desk.view(id).expires, Some(expiry));
    desk.wait(59);
    desk.tick();
    assert!(!desk.view(id).sealed);
    desk.wait(1);
    desk.tick();
    assert!(desk.view(id).sealed);
    assert_eq!(desk.registry.next_tick(), None);
}

#[test]
fn an_owner_that_lives_outlasts_a_token_that_lingers() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let id = desk.open(&alice, "chat", linger(60)).session.id;
    desk.retain(&alice, "chat", held(1)).unwrap();
    desk.wait(61);
    desk.tick();
    assert!(!desk.view(id).sealed);
    desk.dies(1);
    assert!(desk.is_gone(id));
}

#[test]
fn a_clock_that_jumps_back_takes_no_time_away() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let id = desk.open(&alice, "chat", linger(60)).session.id;
    let expires = desk.view(id).expires;
    desk.now = Timestamp::default();
    desk.tick();
    desk.rotate(&alice, "chat").unwrap();
    assert_eq!(desk.view(id).expires, expires);
}

#[test]
fn time_without_end_is_no_overflow() {
    let mut desk = Desk::new();
    let holder = Holder::Linger { ttl: std::time::Duration::MAX };
    let id = desk.open(&peer(ALICE, 1), "chat", holder).session.id;
    desk.wait(1 << 40);
    desk.tick();
    assert!(!desk.view(id).sealed);
}

#[test]
fn rotation_retires_and_the_next_lease_makes_a_fresh_one() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let id = desk.open(&alice, "chat", held(1)).session.id;
    assert_eq!(desk.rotate(&alice, "chat").unwrap().generations, []);
    let first = desk.lease(&alice, "chat", bound(5));
    let view = desk.rotate(&alice, "chat").unwrap();
    assert_eq!(view.current, None);
    assert_eq!(desk.rotate(&alice, "chat").unwrap(), view, "there is nothing left to retire");
    let second = desk.lease(&alice, "chat", bound(5));
    assert_eq!((first.generation, second.generation), (1, 2));
    assert_ne!(first.key, second.key);
    desk.followed();

    let now = desk.registry.lease(&alice, first.id.as_str()).unwrap();
    assert!(!now.current, "its holder can see that it is of the past");
    desk.give_back(&alice, first.id).unwrap();
    assert!(desk.followed().contains(&Effect::Drain(first.key)));
    assert_eq!(desk.registry.draining(), [first.key]);
    assert!(desk.drained(first.key));
    assert!(!desk.drained(first.key), "it is gone only once");
    assert!(!desk.drained(second.key), "it is leased");
    assert_eq!(desk.view(id).generations.len(), 1);
    assert_eq!(desk.lease(&alice, "chat", bound(5)).generation, 2);
}

#[test]
fn a_retired_generation_drains_at_once_if_nobody_leases_it() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    desk.open(&alice, "chat", held(1));
    let lease = desk.lease(&alice, "chat", bound(5));
    desk.give_back(&alice, lease.id).unwrap();
    assert_eq!(desk.registry.draining(), [], "the current one waits for the next lease");
    desk.followed();
    desk.rotate(&alice, "chat").unwrap();
    assert_eq!(desk.followed(), [Effect::Drain(lease.key)]);
}

#[test]
fn a_sealed_session_goes_with_its_last_generation() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let opened = desk.open(&alice, "chat", held(1));
    let id = opened.session.id;
    let first = desk.lease(&alice, "chat", bound(5));
    desk.rotate(&alice, "chat").unwrap();
    let second = desk.lease(&alice, "chat", bound(6));
    desk.release(&alice, "chat", opened.token).unwrap();
    desk.followed();
    desk.dies(6);
    assert!(desk.followed().contains(&Effect::Drain(second.key)));
    assert!(desk.drained(second.key));
    assert_eq!(desk.followed(), []);
    desk.dies(5);
    assert!(desk.drained(first.key));
    assert_eq!(desk.followed().last(), Some(&Effect::LowerSession(id)));
    assert!(desk.is_gone(id));
    assert_eq!(desk.registry.counts(), Counts::default());
}

#[test]
fn closing_seals_whoever_retains_and_lets_leases_end_by_themselves() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let opened = desk.open(&alice, "chat", held(1));
    desk.retain(&alice, "chat", linger(60)).unwrap();
    let id = opened.session.id;
    let lease = desk.lease(&alice, "chat", bound(5));
    desk.close(&alice, "chat", false).unwrap();
    assert!(desk.view(id).sealed);
    assert!(desk.registry.lease(&alice, lease.id.as_str()).is_ok());
    assert_eq!(desk.registry.draining(), []);
    desk.release(&alice, "chat", opened.token).unwrap();
    desk.close(&alice, id.as_str(), false).unwrap();

    desk.close(&alice, id.as_str(), true).unwrap();
    assert_eq!(desk.registry.draining(), [lease.key]);
    assert_eq!(desk.give_back(&alice, lease.id).unwrap().end, LeaseEnd::Closed);
}

#[test]
fn nobody_ends_a_session_from_inside_a_lease_of_it() {
    let mut desk = Desk::new();
    let harness = peer(ALICE, 1);
    let id = desk.open(&harness, "chat", held(1)).session.id;
    desk.open(&harness, "other", held(1));
    desk.lease(&harness, "chat", bound(5));
    let refused = RegistryError::NotFromInside { session: id };

    // The command itself, and a descendant of it, whoever that runs as.
    let (command, child, root) = (peer(ALICE, 5), peer(ALICE, 6), peer(0, 7));
    let line = [process(6), process(5), process(1)];
    for (who, line) in
        [(&command, &line[1..]), (&command, &[]), (&child, &line[..]), (&root, &line[..])]
    {
        let now = desk.now;
        let id = id.as_str();
        assert_eq!(desk.registry.rotate(who, line, id, now).err(), Some(refused.clone()));
        for force in [false, true] {
            let closed = desk.registry.close(who, line, id, force, now);
            assert_eq!(closed.err(), Some(refused.clone()));
        }
        assert_eq!(desk.registry.check_outside(who, line, None), Err(refused.clone()));
    }
    // It is outside of every other session.
    let now = desk.now;
    let rotated = desk.registry.rotate(&child, &line, "other", now).unwrap();
    assert_eq!(rotated.value.name.as_deref(), Some("other"));

    // The harness asked for the lease and is not inside; nor is a process that is an owner.
    desk.registry.check_outside(&harness, &[process(1)], None).unwrap();
    desk.retain(&child, "chat", held(6)).unwrap();
    desk.registry.check_outside(&child, &line, None).unwrap();
    desk.dies(5);
    desk.registry.check_outside(&command, &[], None).unwrap();
}

#[test]
fn what_an_owner_starts_acts_for_the_owner_unless_a_lease_is_nearer() {
    let mut desk = Desk::new();
    // A shell that is owner and leased, what it starts, a command with a lease below, and a child.
    let (shell, tool, grandchild) = (peer(ALICE, 1), peer(ALICE, 5), peer(ALICE, 8));
    let id = desk.open(&shell, "chat", held(1)).session.id;
    desk.lease(&shell, "chat", bound(1));
    desk.registry.check_outside(&tool, &[process(5), process(1)], Some(id)).unwrap();

    desk.lease(&shell, "chat", bound(7));
    let line = [process(8), process(7), process(1)];
    let refused = RegistryError::NotFromInside { session: id };
    assert_eq!(desk.registry.check_outside(&grandchild, &line, None), Err(refused));
    desk.retain(&shell, "chat", held(7)).unwrap();
    desk.registry.check_outside(&grandchild, &line, None).unwrap();
}

#[test]
fn asking_for_an_unbound_lease_puts_nobody_inside() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    desk.open(&alice, "chat", linger(60));
    desk.lease(&alice, "chat", Binding::Unbound);
    desk.registry.check_outside(&alice, &[], None).unwrap();
    desk.rotate(&alice, "chat").unwrap();
}
