//! Clients of every kind at a real socket: what each gets, and that the others get on.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::control::testing::{Desk, HANG, Raw, Sleeper, answer};

/// Whether the daemon still answers.
fn goes_on(desk: &Desk) {
    let status = desk.client().call("Status", json!({})).expect("a status");
    assert_eq!(status["epoch"], 1);
}

fn is_code(refused: &(String, Value), name: &str, code: &str) {
    assert_eq!(refused.0, format!("org.holdfast.Namespace.{name}"));
    assert_eq!(refused.1["code"], code);
    for part in ["message", "remedy"] {
        let text = refused.1[part].as_str().expect("text");
        assert!(!text.is_empty(), "no {part} in {refused:?}");
        assert!(!text.contains("/mount") && !text.contains("/tmp"), "a path in {refused:?}");
    }
}

#[test]
fn a_client_that_says_nothing_holds_up_nobody() {
    let desk = Desk::open();
    let silent = desk.client();
    let mut halfway = desk.client();
    halfway.send(b"{\"method\":\"org.holdfast");
    goes_on(&desk);
    drop((silent, halfway));
    goes_on(&desk);
    desk.close();
}

#[test]
fn a_client_that_never_reads_holds_up_nobody() {
    let desk = Desk::open();
    let mut deaf = desk.client();
    deaf.send(&b"{\"method\":\"org.holdfast.Namespace.Describe\"}\0".repeat(1000));
    goes_on(&desk);
    desk.close();
}

#[test]
fn what_is_no_request_is_refused_and_ends_the_connection() {
    let deep = format!("{{\"method\":{}", "[".repeat(10_000));
    let requests: [&[u8]; 9] = [
        b"\0",
        b"hello\0",
        b"[]\0",
        b"{}\0",
        b"{\"method\":7}\0",
        b"{\"method\":\"a.b.C\",\"oneway\":7}\0",
        b"{\"method\":\"a.b.C\"} and more\0",
        b"{\"method\":\"\xff\xfe\"}\0",
        &[deep.as_bytes(), b"\0"].concat(),
    ];
    let desk = Desk::open();
    for request in requests {
        let mut client = desk.client();
        client.send(request);
        let refused = answer(client.receive().expect("an answer")).expect_err("a refusal");
        is_code(&refused, "RequestInvalid", "request-invalid");
        assert_eq!(client.receive(), None, "{:?}", String::from_utf8_lossy(request));
    }
    goes_on(&desk);
    desk.close();
}

#[test]
fn a_request_that_is_too_long_is_refused_and_ends_the_connection() {
    let desk = Desk::open();
    for length in [wire::LONGEST_REQUEST, wire::LONGEST_REQUEST + 1, 4 << 20] {
        let mut client = desk.client();
        client.send(&vec![b' '; length]);
        let refused = answer(client.receive().expect("an answer")).expect_err("a refusal");
        is_code(&refused, "RequestTooLarge", "request-too-large");
        assert_eq!(client.receive(), None);
    }
    goes_on(&desk);
    desk.close();
}

#[test]
fn the_longest_request_is_answered() {
    let desk = Desk::open();
    let request = "{\"method\":\"org.holdfast.Namespace.Status\"}";
    let mut bytes = request.as_bytes().to_vec();
    bytes.resize(wire::LONGEST_REQUEST - 1, b' ');
    bytes.push(0);
    let mut client = desk.client();
    client.send(&bytes);
    answer(client.receive().expect("an answer")).expect("a status");
    desk.close();
}

#[test]
fn requests_are_answered_in_order_however_they_come() {
    let desk = Desk::open();
    let one = |name: &str| {
        let parameters = json!({ "session": name });
        let method = "org.holdfast.Namespace.ShowSession";
        format!("{}\0", json!({ "method": method, "parameters": parameters }))
    };
    let all: String = (0..100).map(|number| one(&format!("s{number}"))).collect();
    let mut at_once = desk.client();
    at_once.send(all.as_bytes());
    let mut by_bytes = desk.client();
    for byte in all.as_bytes() {
        by_bytes.send(&[*byte]);
    }
    for client in [&mut at_once, &mut by_bytes] {
        for number in 0..100 {
            let refused = answer(client.receive().expect("an answer")).expect_err("unknown");
            let message = refused.1["message"].as_str().expect("text");
            assert!(message.contains(&format!("\"s{number}\"")), "{message}");
        }
    }
    desk.close();
}

#[test]
fn an_unknown_method_or_parameter_is_refused_by_name_and_the_connection_goes_on() {
    let desk = Desk::open();
    let mut client = desk.client();
    let refused = client.call("Fly", json!({})).expect_err("no such method");
    assert_eq!(refused.0, "org.varlink.service.MethodNotFound");
    assert_eq!(refused.1, json!({ "method": "org.holdfast.Namespace.Fly" }));
    for parameters in [
        json!({}),
        json!(["a"]),
        json!("a"),
        json!({ "session": 7 }),
        json!({ "session": "a", "wings": 2 }),
    ] {
        let refused = client.call("Check", parameters).expect_err("other parameters");
        is_code(&refused, "RequestInvalid", "request-invalid");
    }
    let refused = client.call("OpenSession", json!({ "mode": "naked" })).expect_err("no mode");
    assert!(refused.1["message"].as_str().expect("text").contains("naked"));
    let upgrade = json!({ "method": "org.holdfast.Namespace.Status", "upgrade": true });
    let refused = client.request(&upgrade).expect_err("no upgrade");
    assert_eq!(refused.0, "org.varlink.service.InvalidParameter");
    client.call("Status", Value::Null).expect("nothing is as good as an empty object");
    desk.close();
}

#[test]
fn who_wants_no_answer_gets_none() {
    let desk = Desk::open();
    let mut client = desk.client();
    let open = json!({
        "method": "org.holdfast.Namespace.OpenSession",
        "parameters": { "name": "quiet" },
        "oneway": true,
    });
    client.send(format!("{open}\0").as_bytes());
    let shown = client.call("ShowSession", json!({ "session": "quiet" })).expect("it was opened");
    assert_eq!(shown["session"]["name"], "quiet");
    desk.close();
}

#[test]
fn a_user_has_so_many_connections_and_no_more() {
    let desk = Desk::open();
    let most = crate::control::state::CONNECTIONS_PER_UID;
    let mut clients: Vec<Raw> = (0..most).map(|_| desk.client()).collect();
    for client in &mut clients {
        client.call("Status", json!({})).expect("each is served");
    }
    let mut surplus = desk.client();
    let refused = answer(surplus.receive().expect("a reason")).expect_err("a refusal");
    is_code(&refused, "LimitReached", "limit-reached");
    assert_eq!(surplus.receive(), None);
    for client in &mut clients {
        client.call("Status", json!({})).expect("each is served still");
    }
    // The daemon notices by itself that one has left.
    clients.pop();
    let left = || Raw::connect(&desk.socket()).receive_or_status();
    let end = std::time::Instant::now() + HANG;
    while left().is_err() {
        assert!(std::time::Instant::now() < end, "nobody is let in after one has left");
    }
    desk.close();
}

impl Raw {
    /// Asks for the status, where this was let in.
    fn receive_or_status(&mut self) -> Result<Value, (String, Value)> {
        self.send(b"{\"method\":\"org.holdfast.Namespace.Status\"}\0");
        answer(self.receive().expect("an answer"))
    }
}

#[test]
fn a_lease_ends_with_the_connection_that_it_hangs_on() {
    let desk = Desk::open();
    let mut first = desk.client();
    let mut second = desk.client();
    second.call("OpenSession", json!({ "name": "s" })).expect("a session");
    let asked = json!({ "session": "s", "hold": "connection" });
    let acquired = first.call("AcquireLease", asked).expect("a lease");
    assert_eq!(acquired["lease"]["hold"], "connection");
    let id = acquired["lease"]["id"].clone();
    second.call("CheckLease", json!({ "lease": id })).expect("it is there");
    drop(first);
    let end = std::time::Instant::now() + HANG;
    while second.call("CheckLease", json!({ "lease": id })).is_ok() {
        assert!(std::time::Instant::now() < end, "the lease outlives its connection");
    }
    let receipt = second.call("ReleaseLease", json!({ "lease": id })).expect("a receipt");
    assert_eq!(receipt["receipt"]["end"], "connection_gone");
    assert_eq!(receipt["receipt"]["bytes"], 4096);
    desk.close();
}

#[test]
fn what_hangs_on_a_process_ends_with_it() {
    let desk = Desk::open();
    let mut client = desk.client();
    let sleeper = Sleeper::start();
    let opened = client
        .call("OpenSession", json!({ "name": "s", "owner_pid": sleeper.pid() }))
        .expect("a session");
    assert_eq!(opened["session"]["owners"][0]["process"]["pid"], sleeper.pid());
    let asked = json!({ "session": "s", "pid": sleeper.pid() });
    let acquired = client.call("AcquireLease", asked).expect("a lease");
    sleeper.end();
    // Comes back when the last session is gone.
    client.call("Down", json!({ "mode": "drain" })).expect("drained");
    assert_eq!(acquired["lease"]["hold"], "process");
    assert_eq!(desk.end(), Why::Asked);
}

#[test]
fn a_token_that_lingers_ends_by_itself() {
    let desk = Desk::open();
    let mut client = desk.client();
    let opened = client.call("OpenSession", json!({ "linger_ms": 20 })).expect("a session");
    assert_eq!(opened["session"]["owners"][0]["linger_ms"], 20);
    client.call("Down", json!({ "mode": "drain" })).expect("drained");
    assert_eq!(desk.end(), Why::Asked);
}

#[test]
fn the_daemon_ends_when_it_is_asked_to_and_nobody_lives_in_it() {
    let desk = Desk::open();
    let silent = desk.client();
    let mut client = desk.client();
    client.call("OpenSession", json!({ "name": "build" })).expect("a session");
    let refused = client.call("Down", json!({})).expect_err("a session lives");
    is_code(&refused, "SessionsAlive", "sessions-alive");
    assert_eq!(refused.1["sessions"], json!(["build"]));
    goes_on(&desk);
    client.call("Down", json!({ "mode": "force" })).expect("forced");
    assert_eq!(desk.end(), Why::Asked);
    drop(silent);
}

#[test]
fn no_session_is_opened_while_the_daemon_drains() {
    let desk = Desk::open();
    let mut client = desk.client();
    client.call("OpenSession", json!({ "name": "old" })).expect("a session");
    let socket = desk.socket();
    let drains = std::thread::spawn(move || {
        Raw::connect(&socket).call("Down", json!({ "mode": "drain" })).map(drop)
    });
    let end = std::time::Instant::now() + HANG;
    while client.call("Status", json!({})).expect("a status")["draining"] == json!(false) {
        assert!(std::time::Instant::now() < end, "it doesn't drain");
    }
    let refused = client.call("OpenSession", json!({ "name": "new" })).expect_err("it drains");
    is_code(&refused, "Stopping", "stopping");
    client.call("AcquireLease", json!({ "session": "old" })).expect("what lives goes on");
    client.call("CloseSession", json!({ "session": "old", "force": true })).expect("closed");
    drains.join().expect("it didn't panic").expect("drained");
    assert_eq!(desk.end(), Why::Asked);
}

#[test]
fn a_daemon_that_nobody_uses_leaves() {
    let desk = Desk::with_idle_exit(Some(Duration::from_millis(20)));
    assert_eq!(desk.end(), Why::Idle);
}

#[test]
fn a_daemon_that_somebody_uses_stays() {
    let wait = Duration::from_millis(20);
    let desk = Desk::with_idle_exit(Some(wait));
    let mut client = desk.client();
    client.call("OpenSession", json!({ "name": "s", "linger_ms": 100 })).expect("a session");
    drop(client);
    let begun = std::time::Instant::now();
    assert_eq!(desk.end(), Why::Idle);
    assert!(begun.elapsed() > wait, "it left while there was a session");
}
