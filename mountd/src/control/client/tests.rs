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
fn a_session_and_its_leases_give_themselves_back() {
    let desk = Desk::open();
    let connect = || Client::connect(&desk.socket()).expect("a daemon");
    let request = wire::OpenSession { name: Some("s".into()), ..Default::default() };
    let session = Session::open(connect(), &request).expect("a session");
    session.check().expect("a lease would be had");
    let lease = session.lease(wire::LeaseKind::Private).expect("a lease");
    assert_eq!(Some(lease.path()), lease.environment().get("TMPDIR").map(Path::new));
    let command = &mut std::process::Command::new("cat");
    command.stdin(std::process::Stdio::piped());
    let mut child = lease.spawn(command).expect("it is bound");
    let mut client = connect();
    let found = |client: &mut Client| client.call(&wire::ListLeases::default()).expect("a list");
    let bound = found(&mut client).leases.remove(0);
    assert_eq!(bound.process.map(|process| process.pid), Some(child.id()));
    assert_eq!(bound.id, lease.id());
    drop(child.stdin.take());
    child.wait().expect("it ended");
    // Whether the end of the process or the release was first, there is one receipt.
    assert_eq!(lease.release().expect("a receipt").lease, bound.id);
    let missing = &mut std::process::Command::new("/missing");
    let lease = session.lease(wire::LeaseKind::Shared).expect("a lease");
    assert!(matches!(lease.spawn(missing), Err(SpawnError::Start(_))));
    drop(lease);
    assert!(found(&mut client).leases.is_empty());

    let again = Session::open(connect(), &request).expect("the same");
    assert!(again.attached() && again.id() == session.id());
    drop(session);
    again.check().expect("it is retained anew");
    let id = again.id().to_owned();
    again.rotate().expect("rotated");
    drop(again);
    let over = client.call(&wire::Check { session: id }).expect_err("nobody retains it");
    assert!(["session-sealed", "session-unknown"].contains(&over.code.as_str()), "{over}");
    let third = Session::open(connect(), &request).expect("another one");
    third.close().expect("closed");
    desk.close();
}

#[test]
fn a_command_that_is_done_already_can_still_be_told() {
    let desk = Desk::open();
    let mut client = Client::connect(&desk.socket()).expect("a daemon");
    let session = client.call(&wire::OpenSession::default()).expect("a session").session.id;
    let hold = Some(wire::Hold::Nothing);
    let acquire = wire::AcquireLease { session, hold, ..Default::default() };
    let lease = client.call(&acquire).expect("a lease").lease.id;
    let mut child = std::process::Command::new("true").spawn().expect("a process");
    let held = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("held");
    let mut ended = [rustix::event::PollFd::new(&held, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, None).expect("it ended");
    let pid = Some(child.id());
    client.call(&wire::BindLease { lease: lease.clone(), pid }).expect("its pid is its own");
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while !client.call(&wire::ListLeases::default()).expect("a list").leases.is_empty() {
        assert!(std::time::Instant::now() < until, "it hangs on nothing");
    }
    let receipt = client.call(&wire::ReleaseLease { lease }).expect("a receipt").receipt;
    assert_eq!(receipt.end, wire::LeaseEnd::ProcessGone);
    child.wait().expect("waited for");
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

/// A page of a daemon's, with as many events missed as is said.
fn page(missed: u64, continues: bool) -> String {
    let page = Watched { events: Vec::new(), missed, last: 0, more: false };
    let parameters = serde_json::to_value(page).expect("JSON");
    format!("{}\0", serde_json::json!({ "parameters": parameters, "continues": continues }))
}

/// What a client makes of a daemon that sends this to whoever watches, and then is silent or ends;
/// and what it was told.
fn watched(
    words: String,
    ends: bool,
    left: impl Future<Output = ()>,
) -> (Result<End, FaultReport>, Vec<u64>) {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("control");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = [0; 4096];
        let length = stream.read(&mut request).expect("a request");
        assert!(String::from_utf8_lossy(&request[..length]).contains("\"more\":true"));
        stream.write_all(words.as_bytes()).expect("sent");
        if !ends {
            // Until the client is gone.
            assert_eq!(stream.read(&mut request).expect("its end"), 0);
        }
    });
    let mut client = Client::connect(&socket).expect("a daemon");
    client.set_deadline(Some(Duration::from_millis(200)));
    let mut told = Vec::new();
    let end = client.watch(&Watch::default(), left, |page| {
        told.push(page.missed);
        page.missed < 9
    });
    drop(client);
    daemon.join().expect("it didn't panic");
    (end, told)
}

#[test]
fn whoever_watches_is_told_page_by_page_and_why_it_ends() {
    use std::future::{pending, ready};
    let pages = || page(1, true) + &page(2, true);
    let (end, told) = watched(pages() + &page(3, false), false, pending());
    assert_eq!((end, told), (Ok(End::Daemon), vec![1, 2, 3]));
    let (end, told) = watched(pages() + &page(9, true), false, pending());
    assert_eq!((end, told), (Ok(End::Reader), vec![1, 2, 9]), "nobody reads any more");
    let (end, told) = watched(page(1, true), false, ready(()));
    assert_eq!((end, told), (Ok(End::Reader), vec![1]));
    let (end, told) = watched(pages(), true, pending());
    assert_eq!(end.expect_err("it ended without a word").code, "daemon-unreachable");
    assert_eq!(told, [1, 2]);
    let (end, told) = watched(String::new(), false, pending());
    assert_eq!(end.expect_err("not even one page").code, "daemon-unresponsive");
    assert!(told.is_empty());
    // Nothing has to happen within a deadline.
    let late = async { tokio::time::sleep(Duration::from_millis(300)).await };
    assert_eq!(watched(page(1, true), false, late), (Ok(End::Reader), vec![1]));
}
