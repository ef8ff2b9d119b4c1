//! Daemons that answer, don't, or say what makes no sense.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use crate::control::testing::Desk;
use crate::control::wire;

#[test]
fn a_call_is_answered_or_refused() {
    let desk = Desk::open();
    let mut client = Client::connect(&desk.socket()).expect("a daemon");
    let opened = client
        .call(&wire::OpenSession { name: Some("s".into()), ..Default::default() })
        .expect("a session");
    assert_eq!(opened.session.name.as_deref(), Some("s"));
    let refused = client
        .call(&wire::Check { session: "other".into() })
        .expect_err("there is no such session");
    assert_eq!(refused.code, "session-unknown");
    let token = opened.token;
    let nothing = client.call(&wire::ReleaseSession { session: "s".into(), token });
    assert_eq!(nothing.expect("released"), wire::Nothing {});
    assert_eq!(client.socket(), desk.socket());
    desk.close();
}

#[test]
fn the_first_daemon_that_answers_is_the_one() {
    let desk = Desk::open();
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    let stale = directory.path().join("stale");
    drop(UnixListener::bind(&stale).expect("a socket"));
    let search = ClientSocket::Search(vec![missing.clone(), stale.clone(), desk.socket()]);
    let client = Client::search(&search).expect("no fault").expect("a daemon");
    assert_eq!(client.socket(), desk.socket());
    drop(client);
    desk.close();

    let search = ClientSocket::Search(vec![missing.clone(), stale.clone()]);
    let not_found = Client::search(&search).expect("no fault").expect_err("nobody answers");
    let Fault::DaemonUnreachable { tried } = Fault::from(not_found) else {
        panic!("another fault")
    };
    let paths: Vec<&PathBuf> = tried.iter().map(|(path, _)| path).collect();
    assert_eq!(paths, [&missing, &stale]);
    let refused = Client::connect(&missing).expect_err("nobody answers");
    assert_eq!(refused.code, "daemon-unreachable");
}

#[test]
fn a_socket_is_reached_however_long_its_path_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let long = directory.path().join("l".repeat(120));
    std::fs::create_dir(&long).expect("made");
    let socket = Place::of(&long.join("control")).expect("a place");
    let _listener = UnixListener::bind(socket.address()).expect("a socket");
    let client = Client::connect(&long.join("control")).expect("reached");
    assert_eq!(client.socket(), long.join("control"));
    let refused = Client::connect(&long.join("missing")).expect_err("nobody is there");
    assert_eq!(refused.code, "daemon-unreachable");
}

#[test]
fn a_daemon_that_says_nothing_is_unresponsive() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("control");
    let _silent = UnixListener::bind(&socket).expect("a socket");
    let mut client = Client::connect(&socket).expect("it lets clients in");
    client.set_deadline(Some(Duration::from_millis(20)));
    let refused = client.call(&wire::Status {}).expect_err("no answer");
    assert_eq!(refused.code, "daemon-unresponsive");
    // A late answer must not be taken for one to another request.
    let refused = client.call(&wire::Status {}).expect_err("it is over");
    assert_eq!(refused.code, "daemon-unreachable");
}

/// What a client makes of a daemon that answers its first request so.
fn answered(words: &'static [u8]) -> FaultReport {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("control");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = [0; 4096];
        let length = stream.read(&mut request).expect("a request");
        assert!(length > 0);
        stream.write_all(words).expect("sent");
    });
    let mut client = Client::connect(&socket).expect("a daemon");
    let refused = client.call(&wire::Status {}).expect_err("no status");
    daemon.join().expect("it didn't panic");
    refused
}

#[test]
fn an_answer_that_makes_no_sense_is_no_panic() {
    for (words, code) in [
        (&b""[..], "daemon-unreachable"),
        (b"{\"parameters\":{\"upt", "daemon-unreachable"),
        (b"garbage\0", "not-supported"),
        (b"{\"parameters\":{}}\0", "not-supported"),
        (b"{}\0", "not-supported"),
        (b"{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":{\"method\":\"x\"}}\0", "not-supported"),
        (b"{\"error\":\"org.holdfast.Namespace.New\",\"parameters\":{\"code\":\"new\",\"message\":\"m\",\"remedy\":\"r\"}}\0", "new"),
    ] {
        assert_eq!(answered(words).code, code, "{}", String::from_utf8_lossy(words));
    }
}

#[test]
fn a_client_that_is_turned_away_learns_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("control");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let mut client = Client::connect(&socket).expect("a daemon");
    let (mut stream, _) = listener.accept().expect("a client");
    let fault = Fault::LimitReached { limit: "connections".into(), value: 7 };
    stream.write_all(&super::super::framing::message(&wire::Error::from(&fault))).expect("sent");
    drop(stream);
    let refused = client.call(&wire::Status {}).expect_err("turned away");
    assert_eq!(refused, fault.report_to_client());
}
