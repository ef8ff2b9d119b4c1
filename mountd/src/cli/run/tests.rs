//! What the command is given, and what is looked at before.

use std::os::unix::fs::MetadataExt as _;

use super::*;

fn lease(path: &Path, device: u64, inode: u64) -> wire::Lease {
    let process = wire::Process { pid: 1, start: 1 };
    wire::Lease {
        id: "c5n8t2aa".into(),
        session: "k7q2m9xa".into(),
        name: None,
        generation: 1,
        current: true,
        kind: wire::LeaseKind::Shared,
        path: path.to_str().expect("UTF-8").to_owned(),
        device,
        inode,
        epoch: 1,
        stale: false,
        hold: wire::Hold::Process,
        process: Some(process),
        asked_by: process,
        uid: 0,
        gid: 0,
        policy: wire::Policy {
            size: None,
            inodes: None,
            mode: wire::Mode::Private,
            guard: wire::Guard::Sticky,
        },
        age_ms: 0,
    }
}

#[test]
fn the_leased_directory_is_known_by_device_and_inode() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let found = path.metadata().expect("it is there");
    let (device, inode) = (found.dev(), found.ino());
    let check = |lease: &wire::Lease| check_visible(lease, Path::new("/socket"));
    assert_eq!(check(&lease(path, device, inode)), Ok(()));

    let other = check(&lease(path, device, inode + 1)).expect_err("another one");
    let expected = (device, inode + 1);
    let seen = Seen::Other(device, inode);
    assert_eq!(other, Fault::MountpointNotVisible { path: path.to_owned(), expected, found: seen });

    let missing = path.join("missing");
    let nothing = check(&lease(&missing, device, inode)).expect_err("nothing is there");
    let seen = Seen::Nothing(Errno::NOENT);
    let expected = (device, inode);
    assert_eq!(nothing, Fault::MountpointNotVisible { path: missing, expected, found: seen });
}

#[test]
fn a_link_to_the_leased_directory_is_not_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    std::fs::create_dir(&real).expect("made");
    std::os::unix::fs::symlink(&real, &link).expect("made");
    let found = real.metadata().expect("it is there");
    let refused = check_visible(&lease(&link, found.dev(), found.ino()), Path::new("/socket"));
    assert!(matches!(refused, Err(Fault::MountpointNotVisible { .. })), "{refused:?}");
}

#[test]
fn a_session_for_one_command_hangs_on_its_process() {
    let asked = policy(&PolicyArgs { size: Some(7), ..PolicyArgs::default() });
    assert_eq!(asked.size, Some(7));
    assert_eq!((asked.name, asked.owner_pid, asked.linger_ms), (None, None, None));
}

#[test]
fn a_fault_is_one_line_of_json_on_the_status_descriptor() {
    use std::io::Read as _;
    use std::os::fd::IntoRawFd as _;
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let status = Status::new(writer.into_raw_fd()).expect("an open descriptor");
    let report = Fault::StoreFull.report();
    status.tell(&report);
    let mut told = String::new();
    reader.read_to_string(&mut told).expect("told");
    assert!(told.ends_with('\n'));
    assert_eq!(serde_json::from_str::<FaultReport>(&told).expect("JSON"), report);
    assert!(Status::new(-1).is_err());
}

#[test]
fn a_standard_stream_for_the_status_stays_the_commands() {
    use rustix::io::{FdFlags, fcntl_getfd};
    use std::os::fd::AsRawFd as _;
    let error = io::stderr();
    let before = fcntl_getfd(&error).expect("open");
    let status = Status::new(error.as_raw_fd()).expect("an open descriptor");
    assert!(status.0.as_raw_fd() > 2);
    assert_eq!(fcntl_getfd(&status.0).expect("open"), FdFlags::CLOEXEC);
    drop(status);
    assert_eq!(fcntl_getfd(&error).expect("still open"), before);
}

#[test]
fn a_socket_below_tmp_is_hidden_by_a_lease_there() {
    assert!(hidden("/tmp/holdfast-1/control"));
    assert!(!hidden("/run/holdfast/control") && !hidden("/tmpfs/control"));
}
