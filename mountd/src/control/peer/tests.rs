//! What `/proc` says of processes that are there, that are not, and that are somebody else's.

use std::os::unix::net::UnixStream;
use std::os::unix::process::parent_id;

use super::*;
use crate::control::testing::Sleeper;

fn this_process() -> Process {
    let pid = std::process::id();
    Process { pid, start: start_of(pid).expect("it lives") }
}

fn caller(uid: u32) -> Peer {
    Peer { uid, gid: uid, process: this_process() }
}

#[test]
fn the_kernel_says_who_calls() {
    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    let peer = of(ours.as_fd()).expect("a peer");
    assert_eq!(peer.process, this_process());
    assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
}

#[test]
fn a_command_may_have_any_name() {
    let line = b"7 (a) R 1 (b\n) S 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 4711 22 23\n";
    let stat = Stat::parse(line).expect("a line of the kernel's");
    assert_eq!((stat.parent, stat.start, stat.ended), (3, 4711, false));
    let line = b"7 (z) Z 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 4711 22 23\n";
    assert!(Stat::parse(line).expect("a line of the kernel's").ended);
    for line in [&b""[..], b"7", b"7 (a)", b"7 (a) R x", b"7 (a) R 1 2 3"] {
        assert!(Stat::parse(line).is_none());
    }
}

#[test]
fn a_process_of_the_callers_user_may_be_named() {
    let sleeper = Sleeper::start();
    let uid = rustix::process::geteuid().as_raw();
    let named = named(&caller(uid), sleeper.pid()).expect("it is ours");
    assert_eq!(named.pid, sleeper.pid());
    assert_eq!(Some(named.start), start_of(sleeper.pid()));
    sleeper.end();
}

#[test]
fn nobody_names_what_is_not_there_or_not_theirs() {
    let uid = rustix::process::geteuid().as_raw();
    // Pid 1 is root's, and uid 4711 nobody's.
    for (uid, pid) in [(uid, 0), (uid, u32::MAX), (uid, 1 << 30), (4711, 1)] {
        let refused = named(&caller(uid), pid).expect_err("not to be named");
        assert_eq!(refused, Fault::ProcessUnknown { pid });
    }
}

#[test]
fn a_process_that_has_ended_is_not_there() {
    let mut child = std::process::Command::new("true").spawn().expect("a process");
    let pid = child.id();
    let held = rustix::process::pidfd_open(
        rustix::process::Pid::from_child(&child),
        rustix::process::PidfdFlags::empty(),
    )
    .expect("held");
    poll(&mut [PollFd::new(&held, PollFlags::IN)], None).expect("it ended");
    assert!(has_ended(held.as_fd()));
    let uid = rustix::process::geteuid().as_raw();
    // It hasn't been waited for, so its entry is still there.
    assert_eq!(named(&caller(uid), pid), Err(Fault::ProcessUnknown { pid }));
    let ended = named_or_ended(&caller(uid), pid).expect("its pid is still its own");
    assert_eq!(ended.pid, pid);
    child.wait().expect("waited for");
    assert_eq!(named_or_ended(&caller(uid), pid), Err(Fault::ProcessUnknown { pid }));
}

#[test]
fn a_thread_is_no_process() {
    let uid = rustix::process::geteuid().as_raw();
    let thread = std::thread::spawn(move || {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        (thread, named(&caller(uid), thread))
    });
    let (pid, refused) = thread.join().expect("it didn't panic");
    assert_eq!(refused, Err(Fault::ProcessUnknown { pid }));
}

#[test]
fn pids_of_another_namespace_are_told_apart() {
    let text = "Name:\tx\nTgid:\t70\nUid:\t5\t6\t7\t8\nNSpid:\t70\t3\n";
    let status = Status::parse(text).expect("a status");
    assert_eq!((status.uid, status.process, status.depth), (5, 70, 2));
    let status = Status::parse("Tgid:\t70\nUid:\t5\t6\t7\t8\n").expect("a status");
    assert_eq!((status.process, status.depth), (70, 1));
    assert!(Status::parse("Tgid:\t70\n").is_none());
}

#[test]
fn a_line_leads_to_the_ancestors() {
    let line = Lines.of(this_process());
    assert_eq!(line.first(), Some(&this_process()));
    assert_eq!(line.get(1).map(|process| process.pid), Some(parent_id()));
    let other = Process { start: this_process().start + 1, ..this_process() };
    assert_eq!(Lines.of(other), [], "another process had that pid");
}
