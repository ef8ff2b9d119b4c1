//! Whatever can't be made, the registry and the ground have the same books.

use proptest::collection::vec;
use proptest::prelude::*;
use rustix::io::Errno;

use super::super::*;
use super::books::*;
use crate::registry::{Binding, PolicyRequest};

const NAMES: [&str; 2] = ["a", "b"];

#[test]
fn a_session_that_could_not_be_made_is_not_there() {
    let world = World::new();
    let error = GroundError::Refused { step: "making a directory", errno: Errno::NOMEM };
    world.books.fail(Step::Session, error);
    let policy = PolicyRequest::default();
    let refused = world.namespace.open_session(&peer(1), Some("chat"), &policy, held(1));
    assert_eq!(refused, Err(NamespaceError::Ground(error)));
    assert_eq!(world.told(), [], "nobody is watched for it");
    world.agree();
    world.books.open().failing.clear();
    assert!(!world.open("chat", &policy).attached);
}

#[test]
fn a_generation_that_could_not_be_made_leaves_the_session_as_it_was() {
    let world = World::new();
    world.open("chat", &PolicyRequest::default());
    let acquire = || {
        let kind = LeaseKind::Private;
        world.namespace.acquire_lease(&peer(1), "chat", kind, Binding::Unbound)
    };
    let before = world.namespace.list_sessions(&peer(1));
    world.books.fail(Step::Generation, GroundError::Exhausted);
    assert_eq!(acquire().unwrap_err().code(), "generations-exhausted");
    assert_eq!(world.namespace.list_sessions(&peer(1)), before);
    world.agree();

    world.books.open().failing.clear();
    world.books.fail(Step::Lease, GroundError::Full);
    assert_eq!(acquire().unwrap_err().code(), "store-full");
    let session = world.namespace.show_session(&peer(1), "chat").unwrap();
    assert_eq!((session.current, session.leases), (Some(1), 0), "the generation is there");
    world.agree();

    world.books.open().failing.clear();
    assert_eq!(acquire().unwrap().generation, 1);
    world.agree();
}

#[test]
fn limits_that_no_store_holds_are_refused_before_there_is_a_lease() {
    let world = World::new();
    world.books.open().boundless = true;
    for (size, inodes) in [(Some(100), None), (None, Some(10))] {
        let policy = PolicyRequest { size, inodes, ..PolicyRequest::default() };
        let refused = world.namespace.open_session(&peer(1), Some("chat"), &policy, held(1));
        assert_eq!(refused.unwrap_err().code(), "not-supported");
        assert_eq!(world.namespace.counts().sessions, 0);
    }
    world.open("chat", &PolicyRequest::default());
    let refused = world.namespace.resize_session(&peer(1), "chat", Some(50), None);
    assert_eq!(refused.unwrap_err().code(), "not-supported");
    let session = world.namespace.show_session(&peer(1), "chat").unwrap();
    assert_eq!(session.policy.size, None);
    world.agree();
}

#[test]
fn limits_that_can_t_be_set_are_not_recorded() {
    let world = World::new();
    let policy = PolicyRequest { size: Some(100), ..PolicyRequest::default() };
    world.open("chat", &policy);
    let (kind, binding) = (LeaseKind::Shared, Binding::Unbound);
    world.namespace.acquire_lease(&peer(1), "chat", kind, binding).unwrap();
    world.books.fail(Step::Resize, GroundError::Full);
    let refused = world.namespace.resize_session(&peer(1), "chat", Some(50), None);
    assert_eq!(refused, Err(NamespaceError::Ground(GroundError::Full)));
    let session = world.namespace.show_session(&peer(1), "chat").unwrap();
    assert_eq!(session.policy.size, Some(100));
}

#[test]
fn a_receipt_goes_without_figures_rather_than_not_at_all() {
    let world = World::new();
    world.open("chat", &PolicyRequest::default());
    let (kind, binding) = (LeaseKind::Private, Binding::Unbound);
    let lease = world.namespace.acquire_lease(&peer(1), "chat", kind, binding).unwrap();
    world.books.fail(Step::Used, GroundError::NotSupported("figures"));
    let receipt = world.namespace.release_lease(&peer(1), lease.id.as_str()).unwrap();
    assert_eq!(receipt.usage, None);
    world.agree();
}

#[test]
fn every_error_of_the_ground_has_its_code() {
    let codes = [
        (GroundError::Full, "store-full"),
        (GroundError::OutOfInodes, "store-out-of-inodes"),
        (GroundError::Exhausted, "generations-exhausted"),
        (GroundError::Unfit, "request-invalid"),
        (GroundError::NotSupported("limits"), "not-supported"),
        (GroundError::Refused { step: "a step", errno: Errno::IO }, "store-unusable"),
    ];
    for (error, code) in codes {
        assert_eq!(error.code(), code);
        assert_eq!(NamespaceError::from(error).code(), code);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Open(usize),
    Acquire(usize, LeaseKind, u32),
    Rotate(usize),
    Resize(usize, u64),
    Close(usize, bool),
    Dies(u32),
    Reap,
    Restarts(u32),
    Fail(Step),
    Recover,
}

fn act() -> impl Strategy<Value = Act> {
    let name = || 0..NAMES.len();
    let kind = prop_oneof![Just(LeaseKind::Shared), Just(LeaseKind::Private)];
    let step = prop_oneof![
        Just(Step::Session),
        Just(Step::Generation),
        Just(Step::Lease),
        Just(Step::Resize),
        Just(Step::Used),
        Just(Step::Keep),
    ];
    prop_oneof![
        3 => name().prop_map(Act::Open),
        6 => (name(), kind, 2..6_u32).prop_map(|(name, kind, pid)| Act::Acquire(name, kind, pid)),
        2 => name().prop_map(Act::Rotate),
        1 => (name(), 1..200_u64).prop_map(|(name, size)| Act::Resize(name, size)),
        1 => (name(), any::<bool>()).prop_map(|(name, force)| Act::Close(name, force)),
        2 => (1..6_u32).prop_map(Act::Dies),
        2 => Just(Act::Reap),
        1 => (1..6_u32).prop_map(Act::Restarts),
        3 => step.prop_map(Act::Fail),
        3 => Just(Act::Recover),
    ]
}

proptest! {
    #[test]
    fn whatever_fails_the_books_agree(acts in vec(act(), 1..80)) {
        let mut world = World::new();
        let policy = PolicyRequest { size: Some(100), ..PolicyRequest::default() };
        for act in acts {
            let namespace = &world.namespace;
            // What is refused is no failure here; that the books agree is what is asked.
            match act {
                Act::Open(name) => {
                    let _ = namespace.open_session(&peer(1), Some(NAMES[name]), &policy, held(1));
                }
                Act::Acquire(name, kind, pid) => {
                    let binding = Binding::Process(process(pid));
                    let _ = namespace.acquire_lease(&peer(1), NAMES[name], kind, binding);
                }
                Act::Rotate(name) => {
                    let _ = namespace.rotate_session(&peer(1), NAMES[name]);
                }
                Act::Resize(name, size) => {
                    let _ = namespace.resize_session(&peer(1), NAMES[name], Some(size), None);
                }
                Act::Close(name, force) => {
                    let _ = namespace.close_session(&peer(1), NAMES[name], force);
                }
                Act::Dies(pid) => namespace.process_gone(process(pid)),
                Act::Reap => world.reap(),
                Act::Fail(step) => world.books.fail(step, GroundError::Full),
                Act::Restarts(dead) => {
                    world = world.again(true, &|process| process.pid != dead).unwrap();
                }
                Act::Recover => {
                    world.books.open().failing.clear();
                    namespace.tick();
                }
            }
            world.agree();
            if !world.books.open().failing.contains_key(&Step::Keep) {
                world.kept();
            }
        }
        let namespace = &world.namespace;
        world.books.open().failing.clear();
        for pid in 1..6 {
            namespace.process_gone(process(pid));
        }
        world.reap();
        world.agree();
        prop_assert_eq!(namespace.counts(), Counts::default());
        world.kept();
    }
}
