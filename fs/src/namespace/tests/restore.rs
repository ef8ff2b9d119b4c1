//! A daemon that starts again, and one that can't keep what it decides.

use std::collections::BTreeSet;

use rustix::io::Errno;

use super::super::*;
use super::books::*;
use crate::registry::{Binding, LeaseEnd, PolicyRequest, RegistryError};
use crate::saved::Earlier;

const POLICY: PolicyRequest = PolicyRequest { size: None, inodes: None, mode: None, guard: None };

fn acquire(world: &World, kind: LeaseKind, binding: Binding) -> crate::registry::LeaseView {
    world.namespace.acquire_lease(&peer(1), "chat", kind, binding).unwrap()
}

fn linger(seconds: u64) -> crate::registry::Holder {
    crate::registry::Holder::Linger { ttl: std::time::Duration::from_secs(seconds) }
}

#[test]
fn what_could_not_be_kept_is_not_given() {
    let world = World::new();
    let namespace = &world.namespace;
    world.open("chat", &POLICY);
    acquire(&world, LeaseKind::Shared, Binding::Unbound);
    let lease = acquire(&world, LeaseKind::Shared, Binding::Unbound);
    world.told();
    let shown = || (namespace.list_sessions(&peer(1)), namespace.list_leases(&peer(1)));
    let before = shown();
    for error in
        [GroundError::Full, GroundError::Refused { step: "saving a session", errno: Errno::IO }]
    {
        world.books.fail(Step::Keep, error);
        let refused = Some(NamespaceError::Ground(error));
        let open = |name| namespace.open_session(&peer(3), Some(name), &POLICY, held(3)).err();
        assert_eq!(open("other"), refused);
        assert_eq!(open("chat"), refused);
        assert_eq!(namespace.retain_session(&peer(1), "chat", held(3)).err(), refused);
        for kind in [LeaseKind::Shared, LeaseKind::Private] {
            let binding = Binding::Process(process(4));
            assert_eq!(namespace.acquire_lease(&peer(1), "chat", kind, binding).err(), refused);
        }
        let bound = namespace.bind_lease(&peer(1), lease.id.as_str(), process(4));
        assert_eq!(bound.err(), refused);
        assert_eq!(shown(), before);
        assert_eq!(world.told(), [], "nobody is watched for it");
        world.agree();
        let left = world.books.open().disk.values().all(|(_, tree)| tree.leases.is_empty());
        assert!(left, "the directory of a lease that nobody got");
        world.books.open().failing.clear();
    }
    namespace.tick();
    world.kept();
    assert_eq!(namespace.bind_lease(&peer(1), lease.id.as_str(), process(4)).unwrap().id, lease.id);
    world.kept();
}

#[test]
fn what_is_taken_back_is_taken_back_though_it_can_t_be_kept() {
    let world = World::new();
    let opened = world.open("chat", &POLICY);
    let lease = acquire(&world, LeaseKind::Private, Binding::Process(process(2)));
    acquire(&world, LeaseKind::Shared, Binding::Process(process(3)));
    world.books.fail(Step::Keep, GroundError::Full);
    let namespace = &world.namespace;
    namespace.release_lease(&peer(1), lease.id.as_str()).unwrap();
    namespace.rotate_session(&peer(1), "chat").unwrap();
    namespace.process_gone(process(3));
    world.reap();
    namespace.release_session(&peer(1), "chat", opened.token.as_str()).unwrap();
    assert_eq!(namespace.counts(), Counts::default());
    world.agree();
    assert_eq!(world.books.open().kept.len(), 1, "what is kept is old");
    world.books.open().failing.clear();
    namespace.tick();
    world.kept();
}

#[test]
fn everything_is_back_that_somebody_still_holds() {
    let world = World::new();
    world.open("chat", &POLICY);
    let by_living = acquire(&world, LeaseKind::Private, Binding::Process(process(2)));
    let by_dead = acquire(&world, LeaseKind::Private, Binding::Process(process(3)));
    let unbound = acquire(&world, LeaseKind::Shared, Binding::Unbound);
    let connection = Binding::Connection(ConnectionId(5));
    let by_connection = acquire(&world, LeaseKind::Private, connection);
    world.namespace.open_session(&peer(3), Some("dies"), &POLICY, held(3)).unwrap();
    world.namespace.open_session(&peer(3), Some("idles"), &POLICY, linger(60)).unwrap();
    let before = world.namespace.show_session(&peer(1), "chat").unwrap();

    let again = world.again(true, &|process| process.pid != 3).unwrap();
    again.agree();
    again.kept();
    let leases = again.namespace.list_leases(&peer(1));
    let ids: BTreeSet<_> = leases.iter().map(|lease| lease.id).collect();
    assert_eq!(ids, [by_living.id, unbound.id].into());
    for (lease, end) in
        [(by_dead, LeaseEnd::ProcessGone), (by_connection, LeaseEnd::ConnectionGone)]
    {
        let ended = again.namespace.check_lease(&peer(1), lease.id.as_str()).unwrap_err();
        assert_eq!(ended, RegistryError::LeaseEnded { lease: lease.id, end }.into());
    }
    let after = again.namespace.show_session(&peer(1), "chat").unwrap();
    assert_eq!(
        (after.generations[0].inode, after.inode),
        (before.generations[0].inode, before.inode)
    );
    assert_eq!((after.tokens, after.opened), (before.tokens, before.opened));
    let names: Vec<_> = again.namespace.list_sessions(&peer(1));
    let names: BTreeSet<_> = names.into_iter().filter_map(|session| session.name).collect();
    assert_eq!(names, ["chat".to_owned(), "idles".to_owned()].into());
    let told = again.told();
    for pid in [1, 2] {
        assert!(told.contains(&Told::Watch(process(pid))), "{told:?}");
    }
    assert!(!told.contains(&Told::Watch(process(3))), "{told:?}");
    // It goes on as if nothing had been.
    again.namespace.process_gone(process(2));
    again.namespace.rotate_session(&peer(1), "chat").unwrap();
    assert_eq!(acquire(&again, LeaseKind::Private, Binding::Unbound).generation, 2);
    again.agree();
    again.kept();
}

#[test]
fn on_another_boot_nobody_lives_and_idle_times_begin_anew() {
    let world = World::new();
    world.dial.turn(1000);
    world.open("chat", &POLICY);
    acquire(&world, LeaseKind::Private, Binding::Unbound);
    let idles = world.namespace.open_session(&peer(3), Some("idles"), &POLICY, linger(60));
    world.dial.turn(50);
    let again = world.again(false, &|_| true).unwrap();
    again.agree();
    again.kept();
    let sessions = again.namespace.list_sessions(&peer(1));
    let ids: Vec<_> = sessions.iter().map(|session| session.id).collect();
    // The other one is sealed, and what it had is being discarded.
    assert!(ids.contains(&idles.unwrap().session.id));
    again.reap();
    again.agree();
    again.kept();
    assert_eq!(again.namespace.counts().sessions, 1);
    assert_eq!(again.namespace.counts().leases, 0);
    again.dial.turn(59);
    again.namespace.tick();
    assert_eq!(again.namespace.counts().sessions, 1);
    again.dial.turn(1);
    again.namespace.tick();
    assert_eq!(again.namespace.counts().sessions, 0);
    again.kept();
}

#[test]
fn what_was_to_be_discarded_is_discarded() {
    let world = World::new();
    world.open("chat", &POLICY);
    let lease = acquire(&world, LeaseKind::Shared, Binding::Unbound);
    world.namespace.rotate_session(&peer(1), "chat").unwrap();
    world.namespace.release_lease(&peer(1), lease.id.as_str()).unwrap();
    let again = world.again(true, &|_| true).unwrap();
    again.agree();
    again.reap();
    assert_eq!(again.namespace.counts().generations, 0);
    again.agree();
    again.kept();
}

#[test]
fn what_is_lost_is_forgotten_and_made_anew_only_when_it_is_asked_for() {
    let world = World::new();
    world.open("chat", &POLICY);
    let lost = acquire(&world, LeaseKind::Private, Binding::Process(process(2)));
    world.books.open().disk.clear();
    let again = world.again(true, &|_| true).unwrap();
    again.agree();
    again.kept();
    let session = again.namespace.show_session(&peer(1), "chat").unwrap();
    assert_eq!((session.current, session.leases), (None, 0));
    assert!(again.namespace.check_lease(&peer(1), lost.id.as_str()).is_err());
    assert_eq!(acquire(&again, LeaseKind::Shared, Binding::Unbound).generation, 2);

    // The directory of one lease alone.
    let private = acquire(&again, LeaseKind::Private, Binding::Process(process(2)));
    let ends = again.books.open().disk.get_mut(&private.key).unwrap().1.leases.remove(&private.id);
    assert!(ends);
    let third = again.again(true, &|_| true).unwrap();
    third.agree();
    third.kept();
    assert_eq!(third.namespace.counts().leases, 1);
}

#[test]
fn a_ground_that_can_t_be_reached_changes_nothing() {
    let world = World::new();
    world.open("chat", &POLICY);
    acquire(&world, LeaseKind::Private, Binding::Unbound);
    let kept = world.books.open().kept.clone();
    let books = Arc::new(Books::default());
    books.open().kept = kept.clone();
    books.fail(Step::Generation, GroundError::Exhausted);
    let (surroundings, told) = around(&books, &Arc::new(Dial::default()));
    let sessions = kept.values().cloned().collect();
    let refused =
        Namespace::restore(surroundings, Earlier { sessions, same_boot: false }, &|_| true);
    assert!(matches!(refused, Err(RestoreError::Ground(GroundError::Exhausted))));
    assert_eq!(books.open().kept, kept);
    assert_eq!(told.try_iter().count(), 0);
}
