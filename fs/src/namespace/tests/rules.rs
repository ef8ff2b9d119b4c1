//! What the registry decides is done, and nothing else.

use std::thread;
use std::time::Duration;

use super::super::*;
use super::books::*;
use crate::registry::{
    Binding, Holder, LeaseEnd, Mode, PolicyRequest, RegistryError, SessionView, Usage,
};

const ANY: PolicyRequest = PolicyRequest { size: None, inodes: None, mode: None, guard: None };

fn lease(world: &World, kind: LeaseKind, pid: u32) -> crate::registry::LeaseView {
    let binding = Binding::Process(process(pid));
    world.namespace.acquire_lease(&peer(1), "chat", kind, binding).unwrap()
}

fn show(world: &World) -> SessionView {
    world.namespace.show_session(&peer(1), "chat").unwrap()
}

#[test]
fn a_session_goes_the_whole_way() {
    let world = World::new();
    let policy = PolicyRequest { mode: Some(Mode::Shared), ..ANY };
    let opened = world.open("chat", &policy);
    let owner = Owner { uid: 1000, gid: 100, mode: Mode::Shared };
    assert_eq!(world.books.open().sessions[&opened.session.id], owner);
    world.agree();

    let shared = lease(&world, LeaseKind::Shared, 5);
    let private = lease(&world, LeaseKind::Private, 6);
    assert_eq!(shared.inode, show(&world).generations[0].inode);
    assert_ne!(shared.inode, private.inode);
    let tree = world.books.open().trees[&shared.key].clone();
    assert_eq!((tree.number, tree.owner, tree.room), (1, owner, Room::default()));
    world.agree();

    world.namespace.rotate_session(&peer(1), "chat").unwrap();
    let next = lease(&world, LeaseKind::Shared, 5);
    assert_eq!(next.generation, 2);
    world.books.use_up(private.key, 8192, 3);
    world.namespace.process_gone(process(5));
    let receipt = world.namespace.release_lease(&peer(1), private.id.as_str()).unwrap();
    assert_eq!(receipt.usage, Some(Usage { bytes: 8192, inodes: 3 }));
    world.agree();

    let token = opened.token.as_str();
    world.namespace.release_session(&peer(1), "chat", token).unwrap();
    world.agree();
    assert_eq!(world.namespace.counts().sealed, 1);
    world.reap();
    world.agree();
    assert_eq!(world.namespace.counts(), Counts::default());
    let again = world.namespace.release_lease(&peer(1), private.id.as_str()).unwrap();
    assert_eq!(again, receipt, "a receipt outlives its session");
}

#[test]
fn the_observer_hears_whom_to_watch_and_when_to_come_back() {
    let world = World::new();
    let ttl = Duration::from_secs(60);
    let name = Some("chat");
    let opened =
        world.namespace.open_session(&peer(1), name, &ANY, Holder::Linger { ttl }).unwrap();
    let at = |seconds| Some(Timestamp::from_start(Duration::from_secs(seconds)));
    assert_eq!(world.told(), [Told::Due(at(60))]);
    world.namespace.resize_session(&peer(1), "chat", None, None).unwrap();
    assert_eq!(world.told(), [], "nothing changed");
    world.dial.turn(10);
    let taken = lease(&world, LeaseKind::Shared, 5);
    assert_eq!(world.told(), [Told::Watch(process(5)), Told::Due(None)]);
    assert_eq!(world.namespace.watched_processes(), [process(5)]);
    world.namespace.bind_lease(&peer(1), taken.id.as_str(), process(6)).unwrap();
    assert_eq!(world.told(), [Told::Unwatch(process(5)), Told::Watch(process(6))]);
    world.dial.turn(10);
    world.namespace.process_gone(process(6));
    assert_eq!(world.told(), [Told::Due(at(80))]);
    assert_eq!(world.namespace.tick(), at(80));
    world.dial.turn(60);
    assert_eq!(world.namespace.tick(), None);
    assert_eq!(world.told(), [Told::Due(None)]);
    let sealed = world.namespace.check(&peer(1), opened.session.id.as_str());
    assert_eq!(sealed.unwrap_err().code(), "session-sealed");
}

#[test]
fn a_connection_takes_its_leases_with_it() {
    let world = World::new();
    world.open("chat", &ANY);
    let binding = Binding::Connection(ConnectionId(7));
    let kind = LeaseKind::Private;
    let taken = world.namespace.acquire_lease(&peer(1), "chat", kind, binding).unwrap();
    world.namespace.connection_gone(ConnectionId(8));
    assert!(world.namespace.check_lease(&peer(1), taken.id.as_str()).is_ok());
    world.namespace.connection_gone(ConnectionId(7));
    let ended = world.namespace.check_lease(&peer(1), taken.id.as_str()).unwrap_err();
    let end = LeaseEnd::ConnectionGone;
    assert_eq!(ended, RegistryError::LeaseEnded { lease: taken.id, end }.into());
    world.agree();
}

#[test]
fn descent_from_a_leased_process_is_asked_for() {
    let world = World::new();
    let id = world.open("chat", &ANY).session.id;
    lease(&world, LeaseKind::Shared, 5);
    let refused = NamespaceError::from(RegistryError::NotFromInside { session: id });
    let child = peer(105);
    assert_eq!(world.namespace.rotate_session(&child, "chat"), Err(refused.clone()));
    assert_eq!(world.namespace.close_session(&child, "chat", true), Err(refused.clone()));
    assert_eq!(world.namespace.check_outside(&child), Err(refused));
    world.namespace.check_outside(&peer(106)).unwrap();
    world.namespace.close_session(&peer(106), "chat", true).unwrap();
    world.agree();
}

#[test]
fn a_retired_generation_counts_against_its_session_until_it_is_gone() {
    let world = World::new();
    let policy = PolicyRequest { size: Some(100), inodes: Some(10), ..ANY };
    let id = world.open("chat", &policy).session.id;
    let first = lease(&world, LeaseKind::Shared, 5);
    let full = Room { size: Some(100), inodes: Some(10) };
    assert_eq!(world.books.open().trees[&first.key].room, full);
    world.books.use_up(first.key, 60, 4);
    world.namespace.rotate_session(&peer(1), "chat").unwrap();
    let second = lease(&world, LeaseKind::Shared, 6);
    // Whoever still works in the first one has room there, too.
    let rooms = |size, inodes| Room { size: Some(size), inodes: Some(inodes) };
    assert_eq!(world.books.open().trees[&first.key].room, rooms(80, 7));
    assert_eq!(world.books.open().trees[&second.key].room, rooms(20, 3));

    world.books.use_up(first.key, 80, 7);
    world.books.use_up(second.key, 20, 2);
    world.namespace.rotate_session(&peer(1), "chat").unwrap();
    let error = NamespaceError::SessionFull { session: id, limit: 100, held: 100 };
    let kind = LeaseKind::Shared;
    let refused = world.namespace.acquire_lease(&peer(1), "chat", kind, Binding::Unbound);
    assert_eq!(refused, Err(error.clone()));
    assert_eq!(world.namespace.check(&peer(1), "chat"), Err(error));
    world.agree();
    world.books.use_up(second.key, 10, 3);
    let error = NamespaceError::SessionOutOfInodes { session: id, limit: 10, held: 10 };
    assert_eq!(world.namespace.check(&peer(1), "chat"), Err(error));

    // Gone, though nobody was told yet: then it holds nothing.
    world.namespace.process_gone(process(5));
    let mut reaped = world.books.reap();
    let gone = reaped.remove(&first.key).unwrap();
    assert_eq!(world.namespace.check(&peer(1), "chat").unwrap().generations.len(), 2);
    gone();
    let third = lease(&world, LeaseKind::Shared, 7);
    assert_eq!(world.books.open().trees[&second.key].room, rooms(55, 6));
    assert_eq!(world.books.open().trees[&third.key].room, rooms(45, 4));
    world.namespace.process_gone(process(6));
    world.reap();
    assert_eq!(world.books.open().trees[&third.key].room, rooms(100, 10));
    world.agree();
}

#[test]
fn what_a_retired_generation_lets_go_the_current_one_gets() {
    let world = World::new();
    world.open("chat", &PolicyRequest { size: Some(100), ..ANY });
    let first = lease(&world, LeaseKind::Shared, 5);
    world.books.use_up(first.key, 20, 1);
    world.namespace.rotate_session(&peer(1), "chat").unwrap();
    let second = lease(&world, LeaseKind::Shared, 6);
    let sizes = || {
        let pages = world.books.open();
        [first.key, second.key].map(|key| pages.trees[&key].room.size.unwrap())
    };
    assert_eq!(sizes(), [60, 40]);
    world.books.use_up(first.key, 60, 1);
    assert!(!world.namespace.look_at_room(true).near);
    assert_eq!(sizes(), [80, 20]);
    world.books.use_up(first.key, 10, 1);
    world.namespace.look_at_room(true);
    assert_eq!(sizes(), [55, 45]);
    // One that can't be shrunk keeps what it has, and nothing is given out twice.
    world.books.use_up(first.key, 0, 1);
    world.books.fail(Step::Resize, GroundError::Unfit);
    world.namespace.look_at_room(true);
    assert_eq!(sizes(), [55, 45]);
}

#[test]
fn all_sessions_together_keep_to_the_total() {
    let world = World::with_total(1000);
    world.open("chat", &ANY);
    world.open("other", &PolicyRequest { size: Some(300), ..ANY });
    let one = lease(&world, LeaseKind::Shared, 5);
    let kind = LeaseKind::Shared;
    let acquire = |name| world.namespace.acquire_lease(&peer(1), name, kind, Binding::Unbound);
    let two = acquire("other").unwrap();
    let sizes = || {
        let pages = world.books.open();
        [one.key, two.key].map(|key| pages.trees[&key].room.size.unwrap())
    };
    assert_eq!(sizes(), [1000, 300]);
    // Two begin to write before either has written anything.
    world.books.open().written.extend([one.key, two.key]);
    assert!(!world.namespace.look_at_room(false).near);
    assert_eq!(sizes(), [500, 300]);
    assert!(!world.namespace.look_at_room(true).near, "they have begun");
    assert!(!world.namespace.look_at_room(true).near, "neither goes on");
    assert_eq!(sizes(), [1000, 300]);

    world.books.use_up(one.key, 700, 1);
    assert!(world.namespace.look_at_room(true).near, "it is near");
    assert_eq!(sizes(), [1000, 300]);
    world.books.use_up(two.key, 20, 1);
    assert!(world.namespace.look_at_room(true).near);
    // The first has stopped, and 280 are left for the second.
    assert_eq!(sizes(), [980, 300]);
    world.books.use_up(one.key, 750, 1);
    world.books.use_up(two.key, 50, 1);
    assert!(world.namespace.look_at_room(true).near);
    // Both have grown, so they share the last 200.
    assert_eq!(sizes(), [850, 150]);
    world.books.use_up(one.key, 850, 1);
    world.books.use_up(two.key, 150, 1);
    assert!(world.namespace.look_at_room(true).near);
    assert_eq!(sizes(), [850, 150]);
    assert_eq!(world.namespace.total(), Some(Total { limit: 1000, used: 1000 }));
    world.open("third", &ANY);
    let full = NamespaceError::TotalReached { limit: 1000, used: 1000 };
    assert_eq!(world.namespace.check(&peer(1), "third").unwrap_err(), full);
    assert_eq!(acquire("third").unwrap_err(), full);
    // Nobody needs more for a lease on what is there.
    assert_eq!(acquire("other").unwrap().generation, 1);
    world.namespace.close_session(&peer(1), "chat", true).unwrap();
    world.reap();
    assert!(!world.namespace.look_at_room(true).near, "it is far again");
    assert_eq!(world.books.open().trees[&two.key].room.size, Some(300));
    assert_eq!(acquire("third").unwrap().generation, 1);
    world.agree();
}

#[test]
fn other_limits_reach_the_current_generation() {
    let world = World::new();
    let policy = PolicyRequest { size: Some(100), ..ANY };
    let id = world.open("chat", &policy).session.id;
    let resize = |size| world.namespace.resize_session(&peer(1), "chat", Some(size), None);
    assert_eq!(resize(200).unwrap().policy.size, Some(200));
    let first = lease(&world, LeaseKind::Shared, 5);
    world.books.use_up(first.key, 60, 4);
    world.namespace.rotate_session(&peer(1), "chat").unwrap();
    let second = lease(&world, LeaseKind::Shared, 6);
    resize(100).unwrap();
    let size = |size| Room { size: Some(size), inodes: None };
    assert_eq!(world.books.open().trees[&first.key].room, size(80));
    assert_eq!(world.books.open().trees[&second.key].room, size(20));
    let full = NamespaceError::SessionFull { session: id, limit: 60, held: 60 };
    assert_eq!(resize(60), Err(full));
    assert_eq!(show(&world).policy.size, Some(100));
}

#[test]
fn many_threads_and_a_reaper_leave_nothing_behind() {
    const ROUNDS: u32 = 200;
    let world = World::new();
    thread::scope(|scope| {
        for thread in 1..=4_u32 {
            let namespace = &world.namespace;
            scope.spawn(move || {
                let (peer, name) = (peer(thread), format!("of {thread}"));
                for round in 0..ROUNDS {
                    let opened =
                        namespace.open_session(&peer, Some(&name), &ANY, held(thread)).unwrap();
                    let kind = if round % 2 == 0 { LeaseKind::Private } else { LeaseKind::Shared };
                    let binding = Binding::Process(process(thread + 10));
                    let taken = namespace.acquire_lease(&peer, &name, kind, binding).unwrap();
                    namespace.rotate_session(&peer, &name).unwrap();
                    namespace.release_lease(&peer, taken.id.as_str()).unwrap();
                    namespace.release_session(&peer, &name, opened.token.as_str()).unwrap();
                }
            });
        }
        let (books, namespace) = (&world.books, &world.namespace);
        scope.spawn(move || {
            let mut gone = 0;
            while gone < 4 * ROUNDS {
                for say in books.reap().into_values() {
                    say();
                    gone += 1;
                }
                thread::yield_now();
            }
            assert_eq!(namespace.counts().generations, 0);
        });
    });
    world.agree();
    assert_eq!(world.namespace.counts(), Counts::default());
}
