//! What stands on the wire, word for word, and what tools are told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde_json::json;
use zlink::idl::Interface;

use super::*;

fn session() -> Session {
    Session {
        id: "k7q2m9xa".into(),
        name: Some("chat".into()),
        uid: 1000,
        gid: 100,
        policy: Policy { size: Some(1), inodes: None, mode: Mode::Shared, guard: Guard::Members },
        sealed: false,
        path: "/m/k7q2m9xa".into(),
        inode: 2,
        current: Some(3),
        generations: vec![Generation {
            number: 3,
            path: "/m/k7q2m9xa/3".into(),
            inode: 4,
            retired: false,
            leases: 1,
        }],
        owners: vec![Owner {
            process: Some(Process { pid: 7, start: 8 }),
            linger_ms: None,
            age_ms: 9,
        }],
        leases: 1,
        age_ms: 10,
        idle_ms: 11,
        expires_in_ms: None,
    }
}

fn lease() -> Lease {
    Lease {
        id: "c5n8t2aa".into(),
        session: "k7q2m9xa".into(),
        name: None,
        generation: 3,
        current: true,
        kind: LeaseKind::Private,
        path: "/m/k7q2m9xa/3/c5n8t2aa".into(),
        device: 77,
        inode: 5,
        epoch: 1,
        stale: false,
        hold: Hold::Connection,
        process: None,
        asked_by: Process { pid: 7, start: 8 },
        uid: 1000,
        gid: 100,
        policy: session().policy,
        age_ms: 12,
    }
}

/// What goes out comes back in as it was.
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Value {
    let wire = serde_json::to_value(value).expect("JSON");
    assert_eq!(&serde_json::from_value::<T>(wire.clone()).expect("the same type"), value);
    wire
}

#[test]
fn what_is_sent_is_received() {
    let wire = comes_back(&session());
    assert_eq!(wire["policy"], json!({ "size": 1, "mode": "shared", "guard": "members" }));
    assert_eq!(wire.get("expires_in_ms"), None, "what isn't there isn't sent");
    let wire = comes_back(&lease());
    assert_eq!(wire["hold"], "connection");
    let receipt = Receipt {
        lease: "c5n8t2aa".into(),
        session: "k7q2m9xa".into(),
        name: None,
        generation: 3,
        kind: LeaseKind::Shared,
        end: LeaseEnd::ProcessGone,
        held_ms: 1,
        bytes: Some(2),
        inodes: None,
        qualification: None,
    };
    let wire = comes_back(&ReleasedLease { receipt });
    assert_eq!(wire["receipt"]["end"], "process_gone");
    comes_back(&OpenedSession { session: session(), token: "t".into(), attached: true });
    comes_back(&AcquiredLease {
        lease: lease(),
        environment: BTreeMap::from([("TMPDIR".into(), "/m".into())]),
        lost_promises: vec![LostPromise { name: "n".into(), why: "w".into() }],
    });
    assert_eq!(
        comes_back(&AcquireLease { session: "s".into(), ..AcquireLease::default() }),
        json!({ "session": "s" })
    );
    assert_eq!(comes_back(&Nothing {}), json!({}));
    let event = Event {
        number: 7,
        at_ms: 8,
        kind: EventKind::RemovalRefused,
        message: "m".into(),
        code: None,
        remedy: None,
        cause: None,
        epoch: None,
        device: None,
        took_ms: None,
        session: Some("k7q2m9xa".into()),
        lease: None,
        attempt: Some(Attempt::Replace),
        uid: Some(1000),
        pid: None,
        executable: None,
        path: Some("k7q2m9xa/3".into()),
        count: Some(1),
    };
    let wire = comes_back(&Watched { events: vec![event], missed: 0, last: 7, more: false });
    assert_eq!(
        wire["events"],
        json!([{
            "number": 7, "at_ms": 8, "kind": "removal_refused", "message": "m",
            "session": "k7q2m9xa", "attempt": "replace", "uid": 1000, "path": "k7q2m9xa/3",
            "count": 1,
        }])
    );
}

#[test]
fn a_client_takes_an_answer_that_says_more_than_it_knows() {
    let mut wire =
        serde_json::to_value(ShownLease { lease: lease(), qualification: None }).expect("JSON");
    wire["news"] = json!(1);
    wire["lease"]["news"] = json!(1);
    serde_json::from_value::<ShownLease>(wire).expect("the rest is as it was");
    serde_json::from_value::<Nothing>(json!({ "news": 1 })).expect("nothing is asked of it");
}

#[test]
fn a_request_is_parsed_by_its_name() {
    let name = Check::NAME;
    assert_eq!(name, "org.holdfast.Namespace.Check");
    let parsed = Request::parse(name, json!({ "session": "s" })).expect("a request");
    assert_eq!(parsed.method(), "Check");
    assert!(matches!(parsed, Request::Check(Check { session }) if session == "s"));
    assert_eq!(Request::parse("Check", json!({})).expect_err("half a name"), Unfit::Method);
    let unfit = Request::parse(name, json!({ "sesion": "s" })).expect_err("a slip");
    assert!(matches!(&unfit, Unfit::Parameters(reason) if reason.contains("sesion")), "{unfit:?}");
    assert!(matches!(Request::parse(name, json!([])), Err(Unfit::Parameters(_))));
}

#[test]
fn a_record_in_a_request_has_nothing_unknown_in_it_at_any_depth() {
    let record = crate::qualify::examine(std::path::Path::new("/"), |_| {});
    comes_back(&record);
    let qualify = Qualify { lease: "c5n8t2aa".into(), record: Box::new(record) };
    let mut wire = comes_back(&qualify);
    let parsed = |wire: &Value| Request::parse(Qualify::NAME, wire.clone());
    wire["record"]["error"] = json!(null);
    wire["record"]["links"] = json!([]);
    assert!(parsed(&wire).is_ok(), "what says nothing is no news");
    for place in ["/record", "/record/view", "/record/object", "/record/mounts/0"] {
        let mut wire = wire.clone();
        wire.pointer_mut(place).expect("it is there")["news"] = json!(1);
        let unfit = parsed(&wire).expect_err("unknown");
        assert!(
            matches!(&unfit, Unfit::Parameters(reason) if reason.contains("news")),
            "{unfit:?}"
        );
    }
}

#[test]
fn an_error_is_received_as_it_was_sent() {
    let (code, message, remedy) = ("c".to_owned(), "m".to_owned(), "r".to_owned());
    let sessions = vec!["a".to_owned()];
    let error = Error::SessionsAlive { code, message, remedy, sessions };
    let wire = comes_back(&error);
    assert_eq!(
        wire,
        json!({
            "error": "org.holdfast.Namespace.SessionsAlive",
            "parameters": { "code": "c", "message": "m", "remedy": "r", "sessions": ["a"] },
        })
    );
    let reply: ErrorReply = serde_json::from_value(wire).expect("any error");
    assert_eq!(reply.report(), error.report());
}

#[test]
fn an_error_of_another_interface_is_told_as_well_as_it_can_be() {
    let reply: ErrorReply = serde_json::from_value(json!({ "error": "a.b.C" })).expect("an error");
    assert_eq!(reply.report().message, "a.b.C");
    let wire = json!({ "error": "a.b.C", "parameters": { "code": "new", "why": 7 } });
    let report = serde_json::from_value::<ErrorReply>(wire).expect("an error").report();
    assert_eq!(report.code, "new");
    assert!(report.message.contains("\"why\":7"), "{}", report.message);
}

#[test]
fn the_description_is_one_that_tools_can_read() {
    let written = text(DESCRIPTION);
    let read = Interface::try_from(written.as_str()).expect("a description");
    assert_eq!(text(&read), written, "nothing was lost on the way");
    assert_eq!(read.name(), INTERFACE);
    let methods: BTreeSet<&str> = read.methods().map(|method| method.name().as_str()).collect();
    for wanted in
        ["Describe", "OpenSession", "AcquireLease", "ReleaseLease", "Status", "Watch", "Down"]
    {
        assert!(methods.contains(wanted), "no {wanted} in {methods:?}");
    }
    // Types, methods and errors share one space of names.
    let types = read.custom_types().map(|one| one.name().as_str());
    let errors = read.errors().map(|error| error.name().as_str());
    let all: Vec<&str> =
        read.methods().map(|method| method.name().as_str()).chain(types).chain(errors).collect();
    assert_eq!(
        all.iter().collect::<BTreeSet<_>>().len(),
        all.len(),
        "a name stands twice: {all:?}"
    );
}

#[test]
fn everything_in_the_description_is_explained() {
    for method in DESCRIPTION.methods() {
        assert!(method.comments().count() > 0, "{}", method.name());
        for parameter in method.inputs().chain(method.outputs()) {
            assert!(parameter.comments().count() > 0, "{}.{}", method.name(), parameter.name());
        }
    }
    for error in DESCRIPTION.errors() {
        assert!(error.comments().count() > 0, "{}", error.name());
        let fields: Vec<&str> = error.fields().map(|field| field.name().as_str()).collect();
        assert!(fields.starts_with(&["code", "message", "remedy"]), "{}: {fields:?}", error.name());
    }
}
