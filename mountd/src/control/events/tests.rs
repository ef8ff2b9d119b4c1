//! The ring: order, bound, what late readers are told, and who sees what.

use holdfast_fs::registry::Process;
use holdfast_fs::tempfs::Caller;

use super::*;
use crate::control::page::LENGTH;

/// Somebody who asks a daemon of root's.
fn viewer(uid: u32) -> Viewer {
    let process = Process { pid: 7, start: 7 };
    Viewer { peer: Peer { uid, gid: uid, process }, daemon: 0 }
}

fn removal(owner: u32) -> Happening {
    let caller = Caller { uid: 1001, gid: 1001, thread: 8 };
    let refusal = Refusal {
        caller,
        attempt: Attempt::Remove,
        session: "k7q2m9xa".into(),
        owner,
        lease: Some("c5n8t2aa".into()),
        path: "k7q2m9xa/3/c5n8t2aa".into(),
    };
    Happening::RemovalRefused(Removal {
        refusal,
        pid: Some(9),
        executable: Some("rm".into()),
        count: 2,
    })
}

fn discard(why: Option<Blockage>) -> Happening {
    let session = "k7q2m9xa".parse().expect("an id");
    Happening::Discard(Leaving { session, uid: 1000, number: 3 }, why)
}

fn fault() -> Happening {
    Happening::FaultRaised(FaultReport {
        code: "mountpoint-symlink".into(),
        message: "a symlink is there".into(),
        remedy: "remove it".into(),
        cause: Some("/tmp/mecatl is a symlink".into()),
    })
}

/// Everything that a viewer may see, page by page.
fn all(events: &Events, viewer: &Viewer) -> (Vec<wire::Event>, u64) {
    let (mut seen, mut after, mut missed) = (Vec::new(), 0, 0);
    loop {
        let page = events.behind(Some(after), viewer);
        assert!(page.events.len() <= LENGTH && page.last >= after);
        seen.extend(page.events);
        (after, missed) = (page.last, missed + page.missed);
        if !page.more {
            return (seen, missed);
        }
    }
}

#[test]
fn events_are_numbered_without_a_gap_and_the_last_ones_are_kept() {
    let events = Events::new();
    assert_eq!(all(&events, &viewer(0)), (Vec::new(), 0));
    let many = 3 * KEPT as u64 / 2;
    for epoch in 1..=many {
        events.note(Happening::Aborted { epoch });
    }
    let (seen, missed) = all(&events, &viewer(1000));
    assert_eq!(missed, many - KEPT as u64, "a late reader is told what has gone");
    assert_eq!(seen.len(), KEPT);
    for (event, number) in seen.iter().zip(missed + 1..) {
        assert_eq!((event.number, event.epoch), (number, Some(number)));
    }
    assert!(seen.is_sorted_by_key(|event| event.at_ms));
    // One who has read as far as that has missed nothing.
    let page = events.behind(Some(missed), &viewer(1000));
    assert_eq!((page.missed, page.events[0].number), (0, missed + 1));
    let page = events.behind(Some(missed - 1), &viewer(1000));
    assert_eq!((page.missed, page.events[0].number), (1, missed + 1));
}

#[test]
fn a_reader_begins_where_it_says() {
    let events = Events::new();
    for _ in 0..3 {
        events.note(Happening::SocketBound);
    }
    let numbers = |after| {
        let page = events.behind(after, &viewer(1000));
        assert_eq!((page.last, page.missed, page.more), (3, 0, false));
        page.events.iter().map(|event| event.number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(Some(0)), [1, 2, 3]);
    assert_eq!(numbers(Some(2)), [3]);
    assert!(numbers(Some(3)).is_empty());
    assert!(numbers(None).is_empty());
    assert_eq!(numbers(Some(99)), [1, 2, 3], "a number of an earlier daemon's");
}

#[test]
fn what_concerns_a_session_is_its_owners_and_roots() {
    let events = Events::new();
    events.note(removal(1000));
    events.note(Happening::HandlesDead {
        lease: "c5n8t2aa".into(),
        session: "k7q2m9xa".into(),
        owner: 1000,
        epoch: 1,
    });
    let seen = |uid| all(&events, &viewer(uid)).0.len();
    assert_eq!((seen(1000), seen(0)), (2, 2));
    assert_eq!(seen(1001), 0, "not even what that user did to another one's");
    let page = events.behind(Some(0), &viewer(1001));
    assert_eq!((page.last, page.more), (2, false), "what isn't told isn't asked for again");
}

#[test]
fn the_cause_is_the_operators() {
    let events = Events::new();
    events.note(fault());
    let cause = |viewer: Viewer| all(&events, &viewer).0.remove(0).cause;
    assert!(cause(viewer(0)).is_some());
    assert_eq!(cause(viewer(1000)), None);
    assert!(cause(Viewer { daemon: 1000, ..viewer(1000) }).is_some());
}

#[test]
fn each_kind_says_what_it_knows() {
    use wire::EventKind as Kind;
    let took = Duration::from_millis(12);
    let events = Events::new();
    for (happening, kind, known) in [
        (Happening::Mounted { epoch: 1, device: 77 }, Kind::Mounted, "epoch device"),
        (Happening::Detached, Kind::Detached, ""),
        (Happening::Reattached { took }, Kind::Reattached, "took_ms"),
        (
            Happening::Remounted { epoch: 2, device: 78, took },
            Kind::Remounted,
            "epoch device took_ms",
        ),
        (Happening::Aborted { epoch: 1 }, Kind::Aborted, "epoch"),
        (fault(), Kind::FaultRaised, "code remedy cause"),
        (Happening::FaultCleared { code: "mountpoint-symlink".into() }, Kind::FaultCleared, "code"),
        (Happening::SocketBound, Kind::SocketBound, ""),
        (
            removal(1000),
            Kind::RemovalRefused,
            "session lease attempt uid pid executable path count",
        ),
        (
            Happening::HandlesDead {
                lease: "c5n8t2aa".into(),
                session: "k7q2m9xa".into(),
                owner: 1000,
                epoch: 1,
            },
            Kind::HandlesDead,
            "epoch session lease",
        ),
        (discard(Some(Blockage::InUse)), Kind::DiscardBlocked, "session path"),
        (
            discard(Some(Blockage::Refused("EIO".into()))),
            Kind::DiscardBlocked,
            "session path cause",
        ),
        (discard(None), Kind::Discarded, "session path"),
    ] {
        let last = events.behind(None, &viewer(0)).last;
        events.note(happening);
        let event = events.behind(Some(last), &viewer(0)).events.remove(0);
        assert_eq!(event.kind, kind);
        assert!(!event.message.is_empty() && !event.message.contains('/'), "{}", event.message);
        let told = serde_json::to_value(&event).expect("JSON");
        let told: Vec<&String> = told.as_object().expect("an object").keys().collect();
        let mut wanted: Vec<&str> = ["at_ms", "kind", "message", "number"].into();
        wanted.extend(known.split_whitespace());
        wanted.sort_unstable();
        let mut told: Vec<&str> = told.into_iter().map(String::as_str).collect();
        told.sort_unstable();
        assert_eq!(told, wanted, "{kind:?}");
    }
}
