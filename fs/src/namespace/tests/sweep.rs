//! What is swept is left over and nobody's; what waits is told.

use super::super::*;
use super::books::*;
use crate::registry::{Binding, LeaseView, PolicyRequest, Usage};

fn lease(world: &World, kind: LeaseKind, pid: u32) -> LeaseView {
    let binding = Binding::Process(process(pid));
    world.namespace.acquire_lease(&peer(1), "chat", kind, binding).unwrap()
}

const STRANGER: Peer = Peer { uid: 1001, ..peer(9) };
const ROOT: Peer = Peer { uid: 0, ..peer(9) };

#[test]
fn directories_of_ended_leases_are_swept_unless_somebody_uses_them() {
    let world = World::new();
    world.open("chat", &PolicyRequest::default());
    let [live, ended, used] = [5, 6, 7].map(|pid| lease(&world, LeaseKind::Private, pid));
    assert_eq!(world.namespace.sweep(&peer(1), true, 10), (vec![], false));
    world.dial.turn(10);
    world.namespace.process_gone(process(6));
    world.namespace.process_gone(process(7));
    world.books.open().in_use.insert(used.id);
    world.dial.turn(10);

    let (plan, more) = world.namespace.sweep(&peer(1), false, 10);
    assert!(!more);
    let of = |lease: &LeaseView| {
        plan.iter()
            .find(|found| matches!(found.what, What::Lease { lease: id, .. } if id == lease.id))
    };
    assert!(of(&live).is_none(), "what is leased is in no plan");
    let found = of(&ended).expect("in the plan");
    assert_eq!((found.busy, found.swept, found.uid), (false, false, 1000));
    assert_eq!(found.since, Some(Timestamp::from_start(std::time::Duration::from_secs(10))));
    assert_eq!(found.usage, Some(Usage { bytes: 10, inodes: 1 }));
    assert!(of(&used).expect("shown").busy);
    assert_eq!(world.namespace.sweep(&STRANGER, true, 10), (vec![], false));
    assert!(world.namespace.sweep(&peer(1), false, 1).1, "there is more");

    let (swept, _) = world.namespace.sweep(&ROOT, true, 10);
    assert_eq!(swept.iter().filter(|found| found.swept).count(), 1);
    assert!(!world.books.open().ended.contains_key(&ended.id));
    world.books.open().in_use.clear();
    let (swept, _) = world.namespace.sweep(&peer(1), true, 10);
    assert_eq!(swept.len(), 1);
    assert_eq!(world.namespace.sweep(&peer(1), true, 10), (vec![], false));
    world.agree();
}

#[test]
fn what_waits_to_be_let_go_is_told_and_never_swept() {
    let world = World::new();
    world.open("chat", &PolicyRequest::default());
    let private = lease(&world, LeaseKind::Private, 5);
    world.namespace.rotate_session(&peer(1), "chat").unwrap();
    let waiting = || world.namespace.sweep(&peer(1), true, 10).0;
    assert_eq!(waiting(), [], "it is leased");
    world.namespace.process_gone(process(5));
    world.told();
    // Its lease's directory goes with it.
    let found = waiting();
    assert_eq!(found.len(), 1);
    assert!(matches!(found[0].what, What::Retired { generation: 1, .. }) && found[0].busy);

    world.books.is_stuck(private.key, Blockage::InUse);
    assert_eq!(world.told(), [Told::Blocked(1, Some(Blockage::InUse))]);
    world.reap();
    assert_eq!(world.told(), [Told::Blocked(1, None)], "it has gone after all");
    assert_eq!(waiting(), []);
    lease(&world, LeaseKind::Shared, 6);
    world.namespace.rotate_session(&peer(1), "chat").unwrap();
    world.namespace.process_gone(process(6));
    world.told();
    world.reap();
    assert_eq!(world.told(), [], "nobody waited");
}

#[test]
fn generations_of_an_earlier_daemon_are_swept_where_no_session_has_them() {
    let world = World::new();
    world.open("chat", &PolicyRequest::default());
    let kept = lease(&world, LeaseKind::Shared, 5);
    let world = world.again(true, &|_| true).unwrap();
    let usage = Usage { bytes: 10, inodes: 1 };
    let key = |key| GenerationKey::new(key).unwrap();
    assert_eq!(kept.key, key(1));
    // The last is not of an earlier daemon: it is being made.
    let left = |(number, uid)| Unclaimed { key: key(number), uid, usage };
    world.books.open().unclaimed = [(1, 1000), (2, 1000)].map(left).into();
    assert_eq!(world.namespace.sweep(&peer(1), true, 10).0, []);

    let (books, dial) = (Arc::new(Books::default()), Arc::new(Dial::default()));
    let (surroundings, _told) = around(&books, &dial);
    let namespace = Namespace::new(Surroundings { first_key: key(9), ..surroundings });
    books.open().unclaimed = [(3, 1000), (4, 1001), (9, 1000)].map(left).into();
    let keys = |found: &[Leftover]| {
        let key = |found: &Leftover| match found.what {
            What::Unclaimed { key } => key.get(),
            What::Lease { .. } | What::Retired { .. } => panic!("{found:?}"),
        };
        found.iter().map(key).collect::<Vec<_>>()
    };
    assert_eq!(keys(&namespace.sweep(&peer(1), false, 10).0), [3]);
    assert_eq!(keys(&namespace.sweep(&ROOT, false, 10).0), [3, 4]);
    let (swept, _) = namespace.sweep(&peer(1), true, 10);
    assert!(swept[0].swept && swept[0].refused.is_none());
    assert_eq!(keys(&namespace.sweep(&ROOT, false, 10).0), [4]);
}
