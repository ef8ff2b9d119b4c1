//! Opening, finding, limiting and closing sessions.

use super::super::*;
use super::desk::*;

#[test]
fn the_name_of_an_open_session_attaches_to_it() {
    let mut desk = Desk::new();
    let first = desk.open(&peer(ALICE, 1), "chat", held(1));
    let second = desk.open(&peer(ALICE, 2), "chat", held(2));
    assert!(!first.attached && second.attached);
    assert_eq!(first.session.id, second.session.id);
    assert_ne!(first.token, second.token);
    assert_eq!(second.session.tokens.len(), 2);
}

#[test]
fn sessions_without_a_name_are_never_the_same() {
    let mut desk = Desk::new();
    let open = |desk: &mut Desk| desk.try_open(&peer(ALICE, 1), None, &ANY, held(1)).unwrap();
    assert_ne!(open(&mut desk).session.id, open(&mut desk).session.id);
}

#[test]
fn one_name_of_two_users_is_two_sessions() {
    let mut desk = Desk::new();
    let alice = desk.open(&peer(ALICE, 1), "chat", held(1)).session.id;
    let bob = desk.open(&peer(BOB, 2), "chat", held(2)).session.id;
    assert_ne!(alice, bob);
    assert_eq!(desk.registry.session(&peer(ALICE, 1), "chat").unwrap().id, alice);
    assert_eq!(desk.registry.session(&peer(BOB, 1), "chat").unwrap().id, bob);
}

#[test]
fn a_user_sees_and_touches_only_their_own() {
    let mut desk = Desk::new();
    let (alice, bob, root) = (peer(ALICE, 1), peer(BOB, 2), peer(0, 3));
    let opened = desk.open(&alice, "chat", held(1));
    let id = opened.session.id;
    let lease = desk.lease(&alice, "chat", Binding::Unbound);

    assert_eq!(desk.registry.sessions(&bob), []);
    assert_eq!(desk.registry.leases(&bob), []);
    let not_yours = RegistryError::SessionNotYours { session: id };
    let unknown = RegistryError::SessionUnknown { session: "chat".to_owned() };
    for (text, error) in [(id.as_str(), not_yours), ("chat", unknown)] {
        assert_eq!(desk.registry.session(&bob, text), Err(error.clone()));
        assert_eq!(desk.retain(&bob, text, held(2)), Err(error.clone()));
        assert_eq!(desk.release(&bob, text, opened.token), Err(error.clone()));
        assert_eq!(desk.rotate(&bob, text), Err(error.clone()));
        assert_eq!(desk.close(&bob, text, true), Err(error.clone()));
        assert_eq!(
            desk.acquire(&bob, text, LeaseKind::Shared, Binding::Unbound),
            Err(error.clone())
        );
    }
    let no_lease = RegistryError::LeaseUnknown { lease: lease.id.to_string() };
    assert_eq!(desk.bind(&bob, lease.id, 2), Err(no_lease.clone()));
    assert_eq!(desk.give_back(&bob, lease.id), Err(no_lease.clone()));
    assert_eq!(desk.registry.lease(&bob, lease.id.as_str()), Err(no_lease.clone()));

    assert_eq!(desk.registry.sessions(&root).len(), 1);
    assert_eq!(desk.registry.session(&root, "chat").unwrap().id, id);
    assert_eq!(desk.bind(&root, lease.id, 4).unwrap().id, lease.id);
    assert_eq!(desk.give_back(&root, lease.id).unwrap().lease, lease.id);
    assert_eq!(desk.give_back(&bob, lease.id), Err(no_lease));
    desk.close(&root, "chat", false).unwrap();
}

#[test]
fn a_name_that_means_several_sessions_to_root_means_none() {
    let mut desk = Desk::new();
    let alice = desk.open(&peer(ALICE, 1), "chat", held(1)).session.id;
    desk.open(&peer(BOB, 2), "chat", held(2));
    let root = peer(0, 3);
    let ambiguous = RegistryError::SessionAmbiguous { session: "chat".to_owned() };
    assert_eq!(desk.registry.session(&root, "chat"), Err(ambiguous));
    assert_eq!(desk.registry.session(&root, alice.as_str()).unwrap().id, alice);
    let own = desk.open(&root, "chat", held(3)).session.id;
    assert_eq!(desk.registry.session(&root, "chat").unwrap().id, own);
}

#[test]
fn a_name_is_never_taken_for_an_id() {
    let mut desk = Desk::new();
    let (alice, bob) = (peer(ALICE, 1), peer(BOB, 2));
    let id = desk.open(&alice, "chat", held(1)).session.id;
    let fault = NameFault::AnId;
    assert_eq!(
        desk.try_open(&alice, Some(id.as_str()), &ANY, held(1)),
        Err(RegistryError::NameInvalid { fault })
    );
    // Bob can't know the ids of others, so a name of his own goes first.
    let bobs = desk.open(&bob, id.as_str(), held(2)).session.id;
    assert_eq!(desk.registry.session(&bob, id.as_str()).unwrap().id, bobs);
    assert_eq!(desk.registry.session(&peer(0, 3), id.as_str()).unwrap().id, id);
}

#[test]
fn a_name_that_breaks_the_rules_opens_nothing() {
    let mut desk = Desk::new();
    for (name, fault) in [("", NameFault::Empty), ("a\tb", NameFault::Control)] {
        let refused = desk.try_open(&peer(ALICE, 1), Some(name), &ANY, held(1));
        assert_eq!(refused, Err(RegistryError::NameInvalid { fault }));
    }
    assert_eq!(desk.registry.counts(), Counts::default());
}

#[test]
fn attaching_asks_for_the_policy_that_there_is_or_for_none() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let policy = PolicyRequest { size: Some(4096), mode: Some(Mode::Shared), ..ANY };
    let id = desk.try_open(&alice, Some("chat"), &policy, held(1)).unwrap().session.id;
    for said in [ANY, policy, PolicyRequest { guard: Some(Guard::Sticky), ..ANY }] {
        let attached = desk.try_open(&alice, Some("chat"), &said, held(1)).unwrap();
        assert_eq!(attached.session.policy, policy.granted());
    }
    let other = PolicyRequest { size: Some(8192), ..ANY };
    let refused = desk.try_open(&alice, Some("chat"), &other, held(1));
    let part = PolicyPart::Size;
    assert_eq!(refused, Err(RegistryError::PolicyDiffers { session: id, part }));
    assert_eq!(desk.view(id).tokens.len(), 4);
}

#[test]
fn resizing_changes_what_is_said_and_nothing_else() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let policy = PolicyRequest { size: Some(4096), inodes: Some(10), ..ANY };
    let id = desk.try_open(&alice, Some("chat"), &policy, held(1)).unwrap().session.id;
    let _ = desk.registry.resize(&alice, "chat", Some(1), None, desk.now).unwrap();
    assert_eq!(desk.view(id).policy, policy.granted(), "a decision that is dropped is none");
    desk.registry.resize(&alice, "chat", Some(8192), None, desk.now).unwrap().commit();
    assert_eq!(desk.view(id).policy, Policy { size: Some(8192), ..policy.granted() });
    assert!(desk.try_open(&alice, Some("chat"), &policy, held(1)).unwrap().attached);
}

#[test]
fn what_could_not_be_made_leaves_no_trace() {
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let before = desk.registry.clone();
    let now = desk.now;
    let _ = desk.registry.open(&alice, Some("chat"), &ANY, held(1), now, &mut desk.draw).unwrap();
    assert_eq!(desk.registry, before);

    desk.open(&alice, "chat", held(1));
    let before = desk.registry.clone();
    let _ = desk.registry.new_generation(&alice, "chat").unwrap();
    assert_eq!(desk.registry, before);

    desk.registry.new_generation(&alice, "chat").unwrap().unwrap().commit(1);
    let before = desk.registry.clone();
    let (kind, unbound) = (LeaseKind::Private, Binding::Unbound);
    let _ = desk.registry.acquire(&alice, "chat", kind, unbound, now, &mut desk.draw).unwrap();
    assert_eq!(desk.registry, before);
}

#[test]
fn every_bound_has_its_error() {
    let mut desk = Desk::with(Bounds {
        sessions_per_uid: 2,
        leases_per_session: 2,
        leases_per_uid: 3,
        tokens_per_session: 2,
        generations: 2,
        generations_per_uid: 2,
        remembered_per_uid: 2,
    });
    let (alice, bob) = (peer(ALICE, 1), peer(BOB, 2));
    let first = desk.open(&alice, "a", held(1));
    desk.open(&alice, "b", held(1));
    let value = 2;
    let limit = Limit::SessionsPerUid;
    let refused = desk.try_open(&alice, Some("c"), &ANY, held(1));
    assert_eq!(refused, Err(RegistryError::LimitReached { limit, value }));
    desk.open(&bob, "c", held(2));

    desk.retain(&alice, "a", held(1)).unwrap();
    let limit = Limit::TokensPerSession;
    let refused = RegistryError::LimitReached { limit, value };
    assert_eq!(desk.retain(&alice, "a", held(1)), Err(refused.clone()));
    assert_eq!(desk.try_open(&alice, Some("a"), &ANY, held(1)), Err(refused));

    desk.lease(&alice, "a", bound(1));
    desk.lease(&alice, "a", bound(1));
    let limit = Limit::LeasesPerSession;
    let refused = desk.acquire(&alice, "a", LeaseKind::Shared, bound(1));
    assert_eq!(refused, Err(RegistryError::LimitReached { limit, value }));
    assert_eq!(
        desk.registry.leasable(&alice, "a"),
        Err(RegistryError::LimitReached { limit, value })
    );

    desk.lease(&alice, "b", bound(1));
    let refused = desk.acquire(&alice, "b", LeaseKind::Shared, bound(1));
    let (limit, most) = (Limit::LeasesPerUid, 3);
    assert_eq!(refused, Err(RegistryError::LimitReached { limit, value: most }));
    let refused = desk.acquire(&bob, "c", LeaseKind::Shared, bound(2));
    assert_eq!(refused, Err(RegistryError::GenerationsExhausted { value }));
    desk.close(&alice, first.session.id.as_str(), true).unwrap();
    let refused = desk.acquire(&bob, "c", LeaseKind::Shared, bound(2));
    assert_eq!(refused, Err(RegistryError::GenerationsExhausted { value }), "not yet drained");
    let drained = desk.registry.draining();
    assert!(desk.drained(drained[0]));
    desk.lease(&bob, "c", bound(2));
}

#[test]
fn a_sealed_session_makes_room_for_another_at_once() {
    let mut desk = Desk::with(Bounds { sessions_per_uid: 1, ..Bounds::default() });
    let alice = peer(ALICE, 1);
    for _ in 0..3 {
        let id = desk.open(&alice, "chat", held(1)).session.id;
        desk.lease(&alice, "chat", bound(9));
        desk.close(&alice, "chat", false).unwrap();
        assert!(desk.view(id).sealed);
    }
}

#[test]
fn keys_of_generations_run_out_with_an_error() {
    let mut desk = Desk::new();
    desk.registry = Registry::new(Bounds::default(), GenerationKey::MAX);
    let alice = peer(ALICE, 1);
    desk.open(&alice, "a", held(1));
    assert_eq!(desk.lease(&alice, "a", bound(1)).key, GenerationKey::MAX);
    desk.open(&alice, "b", held(1));
    let refused = desk.acquire(&alice, "b", LeaseKind::Shared, bound(1));
    assert!(matches!(refused, Err(RegistryError::GenerationsExhausted { .. })));
}

#[test]
fn no_randomness_is_an_error_and_not_an_id() {
    struct Dry;
    impl Draw for Dry {
        fn draw(&mut self) -> Option<u64> {
            None
        }
    }
    struct Stuck;
    impl Draw for Stuck {
        fn draw(&mut self) -> Option<u64> {
            Some(1)
        }
    }
    let mut desk = Desk::new();
    let alice = peer(ALICE, 1);
    let refused = desk.registry.open(&alice, None, &ANY, held(1), desk.now, &mut Dry);
    assert_eq!(refused.err(), Some(RegistryError::NoRandomness));
    desk.open(&alice, "chat", held(1));
    let refused = desk.registry.open(&alice, None, &ANY, held(1), desk.now, &mut Stuck);
    assert_eq!(refused.err(), Some(RegistryError::NoRandomness));
}

#[test]
fn every_code_is_kebab_case() {
    let session = SessionId::from_number(1);
    let lease = LeaseId::from_number(1);
    let text = String::new;
    let codes = [
        (RegistryError::NameInvalid { fault: NameFault::Empty }, "name-invalid"),
        (RegistryError::SessionUnknown { session: text() }, "session-unknown"),
        (RegistryError::SessionAmbiguous { session: text() }, "session-unknown"),
        (RegistryError::SessionSealed { session }, "session-sealed"),
        (RegistryError::SessionNotYours { session }, "session-not-yours"),
        (RegistryError::PolicyDiffers { session, part: PolicyPart::Mode }, "policy-differs"),
        (RegistryError::TokenUnknown, "token-unknown"),
        (RegistryError::LeaseUnknown { lease: text() }, "lease-unknown"),
        (RegistryError::LeaseEnded { lease, end: LeaseEnd::Released }, "lease-unknown"),
        (RegistryError::LimitReached { limit: Limit::LeasesPerSession, value: 1 }, "limit-reached"),
        (RegistryError::GenerationsExhausted { value: 1 }, "generations-exhausted"),
        (RegistryError::NotFromInside { session }, "not-from-inside"),
        (RegistryError::NoRandomness, "not-supported"),
    ];
    for (error, code) in codes {
        assert_eq!(error.code(), code);
        assert!(!error.to_string().is_empty() && !error.to_string().contains('/'));
    }
}

#[test]
fn whoever_only_attaches_can_always_attach_again() {
    let mut desk = Desk::with(Bounds { tokens_per_session: 3, ..Bounds::default() });
    let alice = peer(ALICE, 1);
    let first = desk.open(&alice, "chat", linger(60));
    let id = first.session.id;
    desk.open(&alice, "chat", linger(500));
    for _ in 0..10 {
        desk.open(&alice, "chat", linger(10));
    }
    let view = desk.view(id);
    assert_eq!(view.tokens.len(), 3);
    let mut left: Vec<_> = view.tokens.iter().map(|token| token.holder).collect();
    left.sort_by_key(|holder| match holder {
        Holder::Linger { ttl } => *ttl,
        Holder::Process(_) => std::time::Duration::ZERO,
    });
    assert_eq!(left, [linger(10), linger(60), linger(500)]);
    // A process has nothing that could take over what hangs on it.
    let refused = desk.try_open(&alice, Some("chat"), &ANY, held(7));
    let limit = Limit::TokensPerSession;
    assert_eq!(refused.unwrap_err(), RegistryError::LimitReached { limit, value: 3 });
    desk.release(&alice, "chat", first.token).expect("once known, whether or not it is left");
    assert!(!desk.view(id).sealed);
    desk.wait(499);
    desk.tick();
    assert!(!desk.view(id).sealed);
    desk.wait(1);
    desk.tick();
    assert!(desk.is_gone(id));
}

#[test]
fn one_user_does_not_get_all_generations() {
    let mut desk = Desk::with(Bounds { generations_per_uid: 2, ..Bounds::default() });
    let (alice, bob, root) = (peer(ALICE, 1), peer(BOB, 2), peer(0, 3));
    for (peer, names) in [(&alice, ["a", "b", "c"]), (&root, ["a", "b", "c"])] {
        for name in names {
            desk.open(peer, name, linger(60));
        }
        desk.lease(peer, "a", bound(5));
        desk.lease(peer, "b", bound(5));
    }
    let limit = Limit::GenerationsPerUid;
    let refused = desk.registry.leasable(&alice, "c");
    assert_eq!(refused.unwrap_err(), RegistryError::LimitReached { limit, value: 2 });
    desk.lease(&alice, "a", bound(6));
    desk.lease(&root, "c", bound(5));
    desk.open(&bob, "a", linger(60));
    desk.lease(&bob, "a", bound(5));
}
