//! Whole cycles over a real socket, as a client in any language would go through them.

use std::time::Instant;

use serde_json::{Value, json};

use crate::channel::Why;
use crate::control::testing::{Desk, HANG, Raw, Sleeper, answer};
use crate::fault::Fault;

#[test]
fn a_session_goes_from_opening_to_closing() {
    let desk = Desk::open();
    let mut client = desk.client();
    let opened = client
        .call("OpenSession", json!({ "name": "chat", "size": 1048576, "mode": "shared" }))
        .expect("a session");
    let id = opened["session"]["id"].as_str().expect("an id").to_owned();
    assert_eq!(opened["attached"], false);
    assert_eq!(opened["session"]["path"], format!("/mount/{id}"));
    assert_eq!(
        opened["session"]["policy"],
        json!({ "size": 1048576, "mode": "shared", "guard": "sticky" })
    );
    let again = client.call("OpenSession", json!({ "name": "chat" })).expect("attached");
    assert_eq!(again["attached"], true);
    client.call("Check", json!({ "session": id })).expect("a lease would be had");

    let acquired = client
        .call("AcquireLease", json!({ "session": "chat", "kind": "private" }))
        .expect("a lease");
    let lease = acquired["lease"]["id"].as_str().expect("an id").to_owned();
    let path = format!("/mount/{id}/1/{lease}");
    assert_eq!(acquired["lease"]["path"], path);
    assert_eq!(acquired["lease"]["device"], 77);
    assert_eq!(acquired["lease"]["process"]["pid"], std::process::id());
    assert_eq!(
        acquired["environment"],
        json!({
            "TMPDIR": path,
            "TMP": path,
            "TEMP": path,
            "HOLDFAST_SOCKET": desk.socket(),
            "HOLDFAST_MEMBER": format!("{id}:{lease}"),
        })
    );
    assert_eq!(
        acquired["lost_promises"],
        json!([{ "name": "other-users", "why": "it is a test" }])
    );

    let rotated = client.call("RotateSession", json!({ "session": id })).expect("rotated");
    assert_eq!(rotated["session"].get("current"), None);
    assert_eq!(rotated["session"]["generations"][0]["retired"], true);
    let resized =
        client.call("ResizeSession", json!({ "session": id, "size": 2097152 })).expect("resized");
    assert_eq!(resized["session"]["policy"]["size"], 2097152);

    let sleeper = Sleeper::start();
    let bound =
        client.call("BindLease", json!({ "lease": lease, "pid": sleeper.pid() })).expect("bound");
    assert_eq!(bound["lease"]["process"]["pid"], sleeper.pid());
    let leases = client.call("ListLeases", json!({})).expect("leases");
    assert_eq!(leases["leases"].as_array().map(Vec::len), Some(1));
    let released = client.call("ReleaseLease", json!({ "lease": lease })).expect("a receipt");
    assert_eq!(released["receipt"]["end"], "released");
    let again = client.call("ReleaseLease", json!({ "lease": lease })).expect("the same");
    assert_eq!(again["receipt"]["end"], "released");

    client.call("CloseSession", json!({ "session": id })).expect("closed");
    let refused = client.call("AcquireLease", json!({ "session": "chat" }));
    assert_eq!(refused.expect_err("it is closed").1["code"], "session-unknown");
    sleeper.end();
    desk.close();
}

#[test]
fn the_last_token_seals() {
    let desk = Desk::open();
    let mut client = desk.client();
    let opened = client.call("OpenSession", json!({ "name": "s" })).expect("a session");
    let first = opened["token"].clone();
    let second = client.call("RetainSession", json!({ "session": "s" })).expect("a token");
    let second = second["token"].clone();
    client.call("AcquireLease", json!({ "session": "s" })).expect("a lease");
    let release = |token: &Value| json!({ "session": opened["session"]["id"], "token": token });
    client.call("ReleaseSession", release(&first)).expect("released");
    client.call("ReleaseSession", release(&first)).expect("released again");
    client.call("AcquireLease", json!({ "session": "s" })).expect("one is left");
    client.call("ReleaseSession", release(&second)).expect("released");
    let asked = json!({ "session": opened["session"]["id"] });
    let refused = client.call("AcquireLease", asked).expect_err("it is sealed");
    assert_eq!(refused.0, "org.holdfast.Namespace.SessionSealed");
    desk.close();
}

#[test]
fn each_refusal_has_its_error() {
    let desk = Desk::open();
    let mut client = desk.client();
    let both = json!({ "owner_pid": 1, "linger_ms": 1 });
    let pid_and_hold = json!({ "session": "s", "hold": "nothing", "pid": 1 });
    client.call("OpenSession", json!({ "name": "s", "mode": "private" })).expect("a session");
    client.call("OpenSession", json!({ "name": "full", "size": 1 })).expect("a session");
    for (method, parameters, error, code) in [
        ("ShowSession", json!({ "session": "x" }), "SessionUnknown", "session-unknown"),
        ("Check", json!({ "session": "x" }), "SessionUnknown", "session-unknown"),
        ("OpenSession", json!({ "name": "" }), "NameInvalid", "name-invalid"),
        ("OpenSession", json!({ "name": "a\nb" }), "NameInvalid", "name-invalid"),
        ("OpenSession", json!({ "name": "x".repeat(129) }), "NameInvalid", "name-invalid"),
        (
            "OpenSession",
            json!({ "name": "s", "mode": "shared" }),
            "PolicyDiffers",
            "policy-differs",
        ),
        ("OpenSession", json!({ "size": u64::MAX }), "RequestInvalid", "request-invalid"),
        ("OpenSession", json!({ "inodes": u64::MAX }), "RequestInvalid", "request-invalid"),
        (
            "ResizeSession",
            json!({ "session": "s", "size": 1_u64 << 63 }),
            "RequestInvalid",
            "request-invalid",
        ),
        ("OpenSession", both, "RequestInvalid", "request-invalid"),
        ("OpenSession", json!({ "owner_pid": 0 }), "ProcessUnknown", "process-unknown"),
        ("AcquireLease", pid_and_hold, "RequestInvalid", "request-invalid"),
        ("AcquireLease", json!({ "session": "full" }), "StoreFull", "store-full"),
        ("BindLease", json!({ "lease": "x" }), "LeaseUnknown", "lease-unknown"),
        ("CheckLease", json!({ "lease": "../.." }), "LeaseUnknown", "lease-unknown"),
        ("ReleaseLease", json!({ "lease": "" }), "LeaseUnknown", "lease-unknown"),
        (
            "ReleaseSession",
            json!({ "session": "s", "token": "x" }),
            "TokenUnknown",
            "token-unknown",
        ),
    ] {
        let asked = format!("{method} {parameters}");
        let refused = client.call(method, parameters).expect_err(&asked);
        assert_eq!(refused.0, format!("org.holdfast.Namespace.{error}"), "{asked}");
        assert_eq!(refused.1["code"], code, "{asked}");
    }
    desk.close();
}

#[test]
fn a_tool_is_told_the_interface() {
    let desk = Desk::open();
    let mut client = desk.client();
    let info = client.request(&json!({ "method": "org.varlink.service.GetInfo" })).expect("info");
    assert_eq!(info["product"], "holdfast");
    assert_eq!(info["interfaces"], json!(["org.holdfast.Namespace", "org.varlink.service"]));
    let ask = |interface: &str| {
        json!({
            "method": "org.varlink.service.GetInterfaceDescription",
            "parameters": { "interface": interface },
        })
    };
    for interface in ["org.holdfast.Namespace", "org.varlink.service"] {
        let told = client.request(&ask(interface)).expect("a description");
        let description = told["description"].as_str().expect("text");
        assert!(description.contains(&format!("interface {interface}\n")), "{description}");
    }
    let refused = client.request(&ask("org.example.other")).expect_err("it has no other");
    assert_eq!(refused.0, "org.varlink.service.InterfaceNotFound");
    let method = "org.varlink.service.GetInterfaceDescription";
    let refused = client.request(&json!({ "method": method })).expect_err("which one");
    assert_eq!(refused.0, "org.varlink.service.InvalidParameter");
    desk.close();
}

#[test]
fn the_daemon_tells_what_it_is_and_how_it_does() {
    let desk = Desk::open();
    let mut client = desk.client();
    let described = client.call("Describe", json!({})).expect("a description");
    assert_eq!(described["mountpoint"], "/mount");
    assert_eq!(described["store"], "tmpfs");
    assert_eq!(described["limits"]["request_bytes"], 65536);
    client.call("OpenSession", json!({})).expect("a session");
    let status = client.call("Status", json!({})).expect("a status");
    assert_eq!(status["counts"]["sessions"], 1);
    assert_eq!(status["counts"]["tokens"], 1);
    assert_eq!(status["counts"]["processes"], 1);
    assert_eq!(status["counts"]["connections"], 1);
    desk.close();
}

#[test]
fn a_drain_ends_with_the_client_that_waits_for_it() {
    let desk = Desk::open();
    let mut client = desk.client();
    let draining = |client: &mut Raw| {
        client.call("Status", json!({})).expect("a status")["draining"] == json!(true)
    };
    client.call("OpenSession", json!({ "name": "open" })).expect("a session");
    let mut waiting = desk.client();
    let method = "org.holdfast.Namespace.Down";
    let down = json!({ "method": method, "parameters": { "mode": "drain" } });
    // What else it has sent doesn't count as leaving.
    waiting.send(format!("{down}\0{down}\0").as_bytes());
    until(|| draining(&mut client));
    let refused = client.call("OpenSession", json!({ "name": "new" })).expect_err("it drains");
    assert_eq!(refused.1["code"], "stopping");
    let attached = client.call("OpenSession", json!({ "name": "open" })).expect("attached");
    assert_eq!(attached["attached"], true);
    assert!(draining(&mut client));
    drop(waiting);
    until(|| !draining(&mut client));
    client.call("OpenSession", json!({ "name": "new" })).expect("a session");
    desk.close();
}

#[test]
fn nothing_that_was_sent_along_is_done_after_the_end_was_asked_for() {
    let desk = Desk::open();
    let mut client = desk.client();
    let call = |method: &str, parameters: Value| {
        let method = format!("org.holdfast.Namespace.{method}");
        format!("{}\0", json!({ "method": method, "parameters": parameters }))
    };
    let down = call("Down", json!({ "mode": "force" }));
    client.send(format!("{down}{}", call("OpenSession", json!({}))).as_bytes());
    answer(client.receive().expect("an answer")).expect("it ends");
    assert_eq!(client.receive(), None);
    assert_eq!(desk.end(), Why::Asked);
}

/// Asks again until it is so; each time the daemon is asked over its socket.
fn until(mut so: impl FnMut() -> bool) {
    let end = Instant::now() + HANG;
    while !so() {
        assert!(Instant::now() < end, "it never came to be");
    }
}

#[test]
fn while_there_is_a_fault_no_lease_is_given_and_afterwards_the_next_one_is() {
    let desk = Desk::open();
    let mut client = desk.client();
    client.call("OpenSession", json!({ "name": "chat" })).expect("a session");
    let lease = client.call("AcquireLease", json!({ "session": "chat" })).expect("a lease");
    let path = std::path::PathBuf::from("/some/where");
    *desk.fault.lock().expect("no panic") =
        Some(Fault::MountpointNotEmpty { path: path.clone(), entry: path });
    for method in ["Check", "AcquireLease"] {
        let (error, parameters) =
            client.call(method, json!({ "session": "chat" })).expect_err("refused");
        assert_eq!(error, "org.holdfast.Namespace.Faulted", "{method}");
        assert_eq!(parameters["code"], "mountpoint-not-empty", "{method}");
        assert!(!parameters["message"].to_string().contains('/'), "{parameters}");
        assert_eq!(parameters.get("cause"), None);
    }
    let status = client.call("Status", json!({})).expect("a status");
    assert_eq!(status["fault"]["code"], "mountpoint-not-empty");
    let cause = status["fault"]["cause"].as_str().expect("the owner is told");
    assert!(cause.contains("/some/where"), "{cause}");
    // What was leased before goes on.
    let id = lease["lease"]["id"].as_str().expect("an id");
    let checked = client.call("CheckLease", json!({ "lease": id })).expect("a lease");
    assert_eq!(checked["lease"]["stale"], false);
    // A client that came during the fault is served after it like any other.
    let mut late = desk.client();
    late.call("Check", json!({ "session": "chat" })).expect_err("refused");
    *desk.fault.lock().expect("no panic") = None;
    late.call("AcquireLease", json!({ "session": "chat" })).expect("a lease");
    client.call("Check", json!({ "session": "chat" })).expect("a lease would be had");
    drop((client, late));
    desk.close();
}

#[test]
fn a_lease_keeps_the_record_of_its_examination() {
    let desk = Desk::open();
    let mut client = desk.client();
    client.call("OpenSession", json!({ "name": "s" })).expect("a session");
    let acquired = client.call("AcquireLease", json!({ "session": "s" })).expect("a lease");
    let lease = acquired["lease"]["id"].clone();
    let checked = client.call("CheckLease", json!({ "lease": lease })).expect("a lease");
    assert_eq!(checked.get("qualification"), None);

    let record = |code: &str| {
        serde_json::to_value(crate::qualify::refused(code)).expect("a record is an object")
    };
    for code in ["first", "second"] {
        let asked = json!({ "lease": lease, "record": record(code) });
        client.call("Qualify", asked).expect("kept");
        let checked = client.call("CheckLease", json!({ "lease": lease })).expect("a lease");
        assert_eq!(checked["qualification"]["fault"], code);
    }
    for (lease, record, error) in [
        (json!("aaaaaaaa"), record("x"), "LeaseUnknown"),
        (lease.clone(), json!({ "verdict": "qualified" }), "RequestInvalid"),
        (lease.clone(), record(&"x".repeat(20_000)), "RequestInvalid"),
    ] {
        let asked = json!({ "lease": lease, "record": record });
        let refused = client.call("Qualify", asked).expect_err("refused");
        assert_eq!(refused.0, format!("org.holdfast.Namespace.{error}"));
    }
    for _ in 0..2 {
        let released = client.call("ReleaseLease", json!({ "lease": lease })).expect("a receipt");
        assert_eq!(released["receipt"]["qualification"]["fault"], "second");
    }
    let asked = json!({ "lease": lease, "record": record("late") });
    assert_eq!(client.call("Qualify", asked).expect_err("it has ended").1["code"], "lease-unknown");
    desk.close();
}

#[test]
fn what_is_left_over_is_shown_and_swept() {
    let desk = Desk::open();
    let mut client = desk.client();
    client.call("OpenSession", json!({ "name": "s" })).expect("a session");
    let taken = || json!({ "session": "s", "kind": "private" });
    let lives = client.call("AcquireLease", taken()).expect("a lease");
    let ends = client.call("AcquireLease", taken()).expect("a lease")["lease"].clone();
    client.call("ReleaseLease", json!({ "lease": ends["id"] })).expect("a receipt");
    let mut sweep = |asked| {
        let swept = client.call("Sweep", asked).expect("an answer");
        assert_eq!(swept["more"], false);
        swept["leftovers"].as_array().expect("a list").clone()
    };
    let plan = sweep(json!({ "dry_run": true }));
    assert_eq!(plan.len(), 1, "{plan:?}");
    let found = plan[0].as_object().expect("an object");
    for (name, value) in [
        ("kind", json!("ended_lease")),
        ("lease", ends["id"].clone()),
        ("path", ends["path"].clone()),
        ("busy", json!(false)),
        ("swept", json!(false)),
        ("inodes", json!(1)),
    ] {
        assert_eq!(found[name], value, "{name}");
    }
    assert!(found["age_ms"].is_u64() && found.get("key").is_none());
    assert_eq!(sweep(json!({}))[0]["swept"], true);
    assert!(sweep(json!({})).is_empty());
    client.call("CheckLease", json!({ "lease": lives["lease"]["id"] })).expect("it lives");
    desk.close();
}
