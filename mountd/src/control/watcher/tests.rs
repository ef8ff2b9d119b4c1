//! Clients that watch: what each is sent, when it ends, and that one that doesn't read costs
//! nothing.

use std::time::Instant;

use holdfast_fs::tempfs::{Attempt, Caller, Refusal};
use serde_json::{Value, json};

use crate::channel::Why;
use crate::control::Happening;
use crate::control::testing::{Desk, HANG, Raw, answer};
use crate::fault::FaultReport;

const METHOD: &str = "org.holdfast.Namespace.Watch";

/// Begins to watch, and the first page.
fn watch(desk: &Desk, parameters: &Value) -> (Raw, Value) {
    let mut client = desk.client();
    let request = json!({ "method": METHOD, "parameters": parameters, "more": true });
    client.send(format!("{request}\0").as_bytes());
    let (first, continues) = next(&mut client);
    assert!(continues);
    (client, first)
}

/// The next page, and whether there is to be one more.
fn next(client: &mut Raw) -> (Value, bool) {
    let message = client.receive().expect("a page");
    let continues = message["continues"] == true;
    (answer(message).expect("no error"), continues)
}

fn numbers(page: &Value) -> Vec<u64> {
    let events = page["events"].as_array().expect("events");
    events.iter().map(|event| event["number"].as_u64().expect("a number")).collect()
}

/// Has events happen, and waits until they are noted.
fn happen(desk: &Desk, happenings: impl IntoIterator<Item = Happening>, last: u64) {
    for happening in happenings {
        desk.happens.send(happening).expect("it is served");
    }
    let (mut client, end) = (desk.client(), Instant::now() + HANG);
    while client.call("Watch", json!({})).expect("a page")["last"] != last {
        assert!(Instant::now() < end, "it never came to be");
    }
}

#[test]
fn a_watching_client_is_told_what_happens_until_the_daemon_ends() {
    let desk = Desk::open();
    let (mut new, first) = watch(&desk, &json!({}));
    assert_eq!(first, json!({ "events": [], "missed": 0, "last": 0, "more": false }));
    happen(&desk, [Happening::Detached], 1);
    let (page, continues) = next(&mut new);
    assert_eq!((numbers(&page), continues), (vec![1], true));
    assert_eq!(page["events"][0]["kind"], "detached");
    let (mut late, first) = watch(&desk, &json!({ "after": 0 }));
    assert_eq!(numbers(&first), [1]);
    let (mut known, first) = watch(&desk, &json!({ "after": 1 }));
    assert!(numbers(&first).is_empty());
    happen(&desk, [Happening::SocketBound], 2);
    for client in [&mut new, &mut late, &mut known] {
        assert_eq!(numbers(&next(client).0), [2]);
    }
    desk.stop.ask(Why::Asked);
    for client in [&mut new, &mut late, &mut known] {
        let (page, continues) = next(client);
        assert_eq!((numbers(&page), &page["last"], continues), (vec![], &json!(2), false));
        assert_eq!(client.receive(), None);
    }
    assert_eq!(desk.end(), Why::Asked);
}

#[test]
fn without_more_there_is_one_page() {
    let desk = Desk::open();
    happen(&desk, [Happening::Detached, Happening::SocketBound], 2);
    let mut client = desk.client();
    for (after, seen) in [(json!({ "after": 0 }), vec![1, 2]), (json!({}), vec![])] {
        let page = client.call("Watch", after).expect("a page");
        assert_eq!((numbers(&page), &page["last"]), (seen, &json!(2)));
    }
    client.call("Watch", json!({ "behind": 1 })).expect_err("no such parameter");
    // More is not asked of what has no more.
    client.send(b"{\"method\":\"org.holdfast.Namespace.Status\",\"more\":true}\0");
    assert!(!next(&mut client).1);
    client.call("Status", json!({})).expect("the connection goes on");
    // Nor of what wants no answer.
    let watch = json!({ "method": METHOD, "parameters": {}, "more": true, "oneway": true });
    client.send(format!("{watch}\0").as_bytes());
    client.call("Status", json!({})).expect("the connection goes on");
    desk.close();
}

#[test]
fn a_watching_client_that_leaves_is_noticed_though_nothing_happens() {
    let desk = Desk::open();
    let (client, _) = watch(&desk, &json!({}));
    let mut other = desk.client();
    let mut connections =
        || other.call("Status", json!({})).expect("a status")["counts"]["connections"].clone();
    assert_eq!(connections(), 2);
    drop(client);
    let end = Instant::now() + HANG;
    while connections() != 1 {
        assert!(Instant::now() < end, "it is still counted");
    }
    desk.close();
}

#[test]
fn a_watching_client_that_does_not_read_is_told_what_it_missed() {
    let desk = Desk::open();
    let (mut deaf, _) = watch(&desk, &json!({}));
    let many = 20_000;
    let fault = |number: u64| {
        Happening::FaultRaised(FaultReport {
            code: "mount-stale".into(),
            message: format!("{number:0500}"),
            remedy: "wait".into(),
            cause: None,
        })
    };
    happen(&desk, (1..=many).map(fault), many);
    let (mut last, mut missed) = (0, 0);
    while last < many {
        let (page, _) = next(&mut deaf);
        let gap = page["missed"].as_u64().expect("a number");
        for (number, wanted) in numbers(&page).into_iter().zip(last + gap + 1..) {
            assert_eq!(number, wanted, "neither told nor said to be missed");
        }
        missed += gap;
        last = page["last"].as_u64().expect("a number");
    }
    assert!(missed > many / 2, "{missed}: more was kept for it than the ring has");
    desk.close();
}

#[test]
fn what_the_filesystem_refuses_is_told_with_who_did_it() {
    let desk = Desk::open();
    let (mut client, _) = watch(&desk, &json!({}));
    let refusal = Refusal {
        caller: Caller { uid: 1001, gid: 1001, thread: std::process::id() },
        attempt: Attempt::Rename,
        session: "k7q2m9xa".to_owned(),
        owner: rustix::process::geteuid().as_raw(),
        lease: None,
        path: "k7q2m9xa/3".to_owned(),
    };
    for _ in 0..100 {
        desk.witness.refused(refusal.clone());
    }
    let told = |page: &Value| page["events"][0].clone();
    let event = told(&next(&mut client).0);
    assert_eq!((&event["kind"], &event["attempt"]), (&json!("removal_refused"), &json!("rename")));
    assert_eq!((&event["uid"], &event["pid"]), (&json!(1001), &json!(std::process::id())));
    assert_eq!((&event["session"], &event["path"]), (&json!("k7q2m9xa"), &json!("k7q2m9xa/3")));
    assert_eq!(event["count"], 1);
    let rest = told(&next(&mut client).0);
    assert_eq!((&rest["count"], &rest["number"]), (&json!(99), &json!(2)));
    desk.close();
}
