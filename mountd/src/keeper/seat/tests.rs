//! One daemon a seat, and nothing left when it goes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread;

use rustix::process::{getegid, geteuid};

use super::*;
use crate::config::Store;

fn host() -> Host {
    Host { privileged: false, uid: geteuid().as_raw(), gid: getegid().as_raw() }
}

fn settings(socket: PathBuf, own_socket_directory: bool) -> Settings {
    Settings {
        mountpoint: PathBuf::from("/m"),
        socket,
        own_socket_directory,
        store: Store::Tmpfs,
        idle_exit: None,
        context: None,
    }
}

fn seat(settings: &Settings) -> Result<Option<Seat>, Fault> {
    take(host(), settings, Path::new("/m"))
}

fn taken(settings: &Settings) -> Seat {
    match seat(settings) {
        Ok(Some(seat)) => seat,
        other => panic!("not taken: {other:?}"),
    }
}

fn code(settings: &Settings) -> &'static str {
    seat(settings).map_or_else(|fault| fault.code(), |_| "taken or serving")
}

#[test]
fn what_was_made_is_gone_in_the_end() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let directory = room.path().join("d");
    for own in [true, false] {
        let seat = taken(&settings(directory.join("control"), own));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join("control")), 0o600);
        seat.leave();
        assert!(!directory.exists());
    }
}

#[test]
fn a_socket_that_was_left_behind_is_replaced() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let socket = room.path().join("control");
    drop(UnixListener::bind(&socket).expect("bound"));
    taken(&settings(socket.clone(), false)).leave();
    assert!(!socket.exists());
    assert!(room.path().exists());
}

#[test]
fn what_is_not_our_socket_is_left_alone() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let socket = room.path().join("control");
    fs::write(&socket, "precious").expect("written");
    assert_eq!(code(&settings(socket.clone(), false)), "socket-refused");
    assert_eq!(fs::read(&socket).expect("there"), b"precious");
}

#[test]
fn a_long_path_is_no_obstacle() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let directory = room.path().join("d".repeat(120));
    fs::create_dir(&directory).expect("made");
    let seat = taken(&settings(directory.join("control"), false));
    assert!(directory.join("control").exists());
    seat.leave();
    assert!(!directory.join("control").exists());
}

#[test]
fn a_directory_in_which_others_may_write_is_refused() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let open = room.path().join("open");
    fs::create_dir(&open).expect("made");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("chmod");
    assert_eq!(code(&settings(open.join("control"), false)), "socket-refused");
    assert_eq!(code(&settings(open.join("control"), true)), "socket-refused");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("chmod");
    taken(&settings(open.join("control"), false)).leave();
}

#[test]
fn a_lost_socket_does_not_free_the_seat() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let settings = settings(room.path().join("control"), false);
    let first = taken(&settings);
    fs::remove_file(&settings.socket).expect("removed");
    assert_eq!(code(&settings), "daemon-unreachable");
    first.leave();
    taken(&settings).leave();
}

#[test]
fn what_a_daemon_had_made_is_known_to_the_next_one() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let settings = settings(room.path().join("control"), false);
    let mut first = taken(&settings);
    assert!(!first.was_made(Path::new("/m")));
    first.remember_made(Some(Path::new("/m")));
    // As if it had been killed: nothing is removed.
    drop(first);
    let second = taken(&settings);
    assert!(second.was_made(Path::new("/m")));
    assert!(!second.was_made(Path::new("/n")));
    drop(second);
    let third = taken(&settings);
    assert!(third.was_made(Path::new("/m")));
    third.leave();
    let fourth = taken(&settings);
    assert!(!fourth.was_made(Path::new("/m")));
    fourth.leave();
}

/// Answers one call on the seat's socket as a daemon does that serves `mountpoint`.
fn answer_once(seat: &Seat, mountpoint: &str) -> thread::JoinHandle<()> {
    let listener = seat.listener.try_clone().expect("a copy");
    let answer = format!("{{\"parameters\":{{\"mountpoint\":\"{mountpoint}\"}}}}\0");
    thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("asked");
        let mut call = [0; 256];
        assert!(client.read(&mut call).expect("read") > 0);
        client.write_all(answer.as_bytes()).expect("answered");
    })
}

#[test]
fn whoever_comes_second_finds_the_first() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let settings = settings(room.path().join("control"), false);
    let first = taken(&settings);
    let served = answer_once(&first, "/m");
    assert!(matches!(seat(&settings), Ok(None)));
    served.join().expect("served");
    let served = answer_once(&first, "/elsewhere");
    assert_eq!(code(&settings), "socket-in-use");
    served.join().expect("served");
    first.leave();
}

#[test]
fn a_seat_whose_files_are_removed_is_taken_again() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let directory = room.path().join("d");
    for own in [true, false] {
        let settings = settings(directory.join("control"), own);
        let mut seat = taken(&settings);
        assert!(seat.is_found());
        let remove: [&dyn Fn(); 4] = [
            &|| fs::remove_file(directory.join("control")).expect("removed"),
            &|| fs::remove_file(directory.join("control.lock")).expect("removed"),
            &|| fs::remove_dir_all(&directory).expect("removed"),
            &|| {
                fs::rename(&directory, room.path().join("moved")).expect("moved");
                fs::remove_dir_all(room.path().join("moved")).expect("removed");
            },
        ];
        for remove in remove {
            seat.seen();
            remove();
            assert!(!seat.is_found());
            seat.take_again(host(), &settings).expect("taken again");
            assert!(seat.is_found());
            std::os::unix::net::UnixStream::connect(directory.join("control")).expect("it listens");
        }
        // The next one finds the lock held.
        let lock = fs::File::open(directory.join("control.lock")).expect("there");
        let held = rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared);
        assert_eq!(held, Err(Errno::AGAIN));
        seat.leave();
        assert!(!directory.exists());
    }
}

#[test]
fn a_seat_that_somebody_else_has_taken_is_left_alone() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let directory = room.path().join("d");
    let settings = settings(directory.join("control"), true);
    let mut first = taken(&settings);
    fs::remove_dir_all(&directory).expect("removed");
    let second = taken(&settings);
    let refused = first.take_again(host(), &settings).expect_err("it is taken");
    assert_eq!(refused.code(), "socket-in-use");
    assert!(second.is_found());
    first.leave();
    assert!(second.is_found());
    second.leave();
    assert!(!directory.exists());
}
