//! Every state with everything that can be seen in it.

use super::*;

fn fault(code: &str) -> FaultReport {
    let path = PathBuf::from("/m");
    match code {
        "symlink" => Fault::MountpointSymlink { path: path.clone(), target: path },
        "file" => Fault::MountpointNotDirectory { path, found: "regular file" },
        code => panic!("no such fault here: {code}"),
    }
    .report()
}

const OURS: Sight = Sight::Ours;
const FREE: Sight = Sight::Free;

fn unfit() -> Sight {
    Sight::Unfit(fault("symlink"))
}

/// Served, and the path leads there.
fn serving() -> Supervisor {
    Supervisor::serving(PathBuf::from("/m"))
}

/// Sees a mount that can be attached.
fn see(supervisor: &mut Supervisor, connected: bool, path: Sight) -> Vec<Action> {
    supervisor.step(&Seen { connected, attachable: true, path, socket: true })
}

/// Sees a mount that the helper has attached.
fn see_helped(supervisor: &mut Supervisor, connected: bool, path: Sight) -> Vec<Action> {
    supervisor.step(&Seen { connected, attachable: false, path, socket: true })
}

fn code(supervisor: &Supervisor) -> Option<String> {
    supervisor.standing().map(|fault| fault.code)
}

fn note(note: Note) -> Action {
    Action::Note(note)
}

fn raised() -> Action {
    note(Note::Raised(fault("symlink")))
}

#[test]
fn what_is_seen_while_serving() {
    let table = [
        (true, OURS, vec![], None),
        (true, FREE, vec![note(Note::Detached), Action::PutBack], Some("mount-detached")),
        (true, unfit(), vec![note(Note::Detached), raised()], Some("mountpoint-symlink")),
        (false, OURS, vec![note(Note::Aborted), Action::ClearAway], Some("connection-aborted")),
        (false, FREE, vec![note(Note::Aborted), Action::Renew], Some("connection-aborted")),
        (false, unfit(), vec![note(Note::Aborted), raised()], Some("mountpoint-symlink")),
    ];
    for (connected, path, actions, standing) in table {
        let mut supervisor = serving();
        assert_eq!(see(&mut supervisor, connected, path.clone()), actions, "{connected} {path:?}");
        assert_eq!(code(&supervisor).as_deref(), standing, "{connected} {path:?}");
        assert_eq!(supervisor.is_content(), standing.is_none());
    }
}

#[test]
fn what_is_seen_while_detached() {
    let table = [
        (true, OURS, vec![note(Note::Reattached)], None),
        (true, FREE, vec![Action::PutBack], Some("mount-detached")),
        (true, unfit(), vec![raised()], Some("mountpoint-symlink")),
        (false, OURS, vec![note(Note::Aborted), Action::ClearAway], Some("connection-aborted")),
        (false, FREE, vec![note(Note::Aborted), Action::Renew], Some("connection-aborted")),
        (false, unfit(), vec![note(Note::Aborted), raised()], Some("mountpoint-symlink")),
    ];
    for (connected, path, actions, standing) in table {
        let mut supervisor = serving();
        see(&mut supervisor, true, FREE);
        assert_eq!(see(&mut supervisor, connected, path.clone()), actions, "{connected} {path:?}");
        assert_eq!(code(&supervisor).as_deref(), standing, "{connected} {path:?}");
    }
}

#[test]
fn what_is_seen_while_aborted() {
    // A connection that has ended stays so, whatever is said of it.
    let table = [
        (OURS, vec![Action::ClearAway], "connection-aborted"),
        (FREE, vec![Action::Renew], "connection-aborted"),
        (unfit(), vec![raised()], "mountpoint-symlink"),
    ];
    for connected in [true, false] {
        for (path, actions, standing) in &table {
            let mut supervisor = serving();
            see(&mut supervisor, false, OURS);
            assert_eq!(&see(&mut supervisor, connected, path.clone()), actions, "{path:?}");
            assert_eq!(code(&supervisor).as_deref(), Some(*standing), "{path:?}");
        }
    }
}

#[test]
fn what_is_seen_while_a_connection_begins() {
    for connected in [true, false] {
        for path in [OURS, FREE, unfit()] {
            let mut supervisor = serving();
            see(&mut supervisor, false, FREE);
            assert!(supervisor.is_in_between());
            assert_eq!(see(&mut supervisor, connected, path), []);
            assert_eq!(code(&supervisor).as_deref(), Some("connection-aborted"));
        }
    }
}

#[test]
fn a_new_connection_is_put_to_its_path() {
    let mut supervisor = serving();
    see(&mut supervisor, false, FREE);
    supervisor.connected();
    assert!(!supervisor.is_in_between());
    assert_eq!(see(&mut supervisor, true, FREE), [Action::PutBack]);
    assert_eq!(see(&mut supervisor, true, OURS), [note(Note::Remounted)]);
    // The next time it is the same one that comes back.
    see(&mut supervisor, true, FREE);
    assert_eq!(see(&mut supervisor, true, OURS), [note(Note::Reattached)]);
}

#[test]
fn a_connection_that_ends_before_it_is_served_is_followed_by_another() {
    let mut supervisor = serving();
    see(&mut supervisor, false, FREE);
    supervisor.broken_off();
    assert_eq!(code(&supervisor).as_deref(), Some("connection-aborted"));
    assert_eq!(see(&mut supervisor, false, OURS), [Action::ClearAway]);
    assert_eq!(see(&mut supervisor, false, FREE), [Action::Renew]);
}

#[test]
fn a_mount_that_cannot_come_back_is_replaced() {
    let mut supervisor = serving();
    let actions = see_helped(&mut supervisor, true, FREE);
    assert_eq!(actions, [note(Note::Detached), Action::Renew]);
    // The one before serves on; where there can't be a new one, it isn't taken for ended.
    let actions = supervisor.refused(&fault("file"), true);
    assert_eq!(actions, [note(Note::Raised(fault("file")))]);
    assert_eq!(see_helped(&mut supervisor, true, FREE), [Action::Renew]);
    // The helper has attached it already.
    supervisor.connected();
    let cleared = note(Note::Cleared("mountpoint-not-directory".to_owned()));
    assert_eq!(see_helped(&mut supervisor, true, OURS), [note(Note::Remounted), cleared]);
    assert!(supervisor.is_content());
}

#[test]
fn a_new_mount_that_can_be_attached_once_is() {
    let mut supervisor = serving();
    see_helped(&mut supervisor, true, FREE);
    supervisor.connected();
    assert_eq!(see(&mut supervisor, true, FREE), [Action::PutBack]);
    assert_eq!(see_helped(&mut supervisor, true, OURS), [note(Note::Remounted)]);
}

#[test]
fn a_connection_that_goes_with_its_mount_was_not_aborted() {
    let table = [
        (FREE, vec![note(Note::Detached), Action::Renew]),
        (unfit(), vec![note(Note::Detached), raised()]),
        (OURS, vec![note(Note::Aborted), Action::ClearAway]),
    ];
    for (path, actions) in table {
        assert_eq!(see_helped(&mut serving(), false, path.clone()), actions, "{path:?}");
    }
    let mut supervisor = serving();
    see_helped(&mut supervisor, true, unfit());
    assert_eq!(see_helped(&mut supervisor, false, unfit()), []);
    assert_eq!(see_helped(&mut supervisor, false, FREE), [Action::Renew]);
}

#[test]
fn a_fault_is_told_once_and_another_one_in_its_place() {
    let mut supervisor = serving();
    see(&mut supervisor, true, unfit());
    assert_eq!(see(&mut supervisor, true, unfit()), []);
    let other = Sight::Unfit(fault("file"));
    let cleared = note(Note::Cleared("mountpoint-symlink".to_owned()));
    let actions = see(&mut supervisor, true, other);
    assert_eq!(actions, [cleared, note(Note::Raised(fault("file")))]);
    assert_eq!(code(&supervisor).as_deref(), Some("mountpoint-not-directory"));
    // What is in the way may go before the mount is back: until then the fault stands.
    assert_eq!(see(&mut supervisor, true, FREE), [Action::PutBack]);
    assert_eq!(code(&supervisor).as_deref(), Some("mountpoint-not-directory"));
}

#[test]
fn what_is_refused_is_tried_again() {
    let mut supervisor = serving();
    see(&mut supervisor, true, FREE);
    supervisor.refused(&fault("file"), true);
    assert_eq!(code(&supervisor).as_deref(), Some("mountpoint-not-directory"));
    assert!(!supervisor.is_content());
    assert_eq!(see(&mut supervisor, true, FREE), [Action::PutBack]);

    let mut supervisor = serving();
    see(&mut supervisor, false, FREE);
    supervisor.refused(&fault("file"), false);
    assert_eq!(see(&mut supervisor, false, FREE), [Action::Renew]);
}

#[test]
fn a_lost_socket_is_bound_anew_whatever_the_mount_is_like() {
    let lost = |path, connected| Seen { connected, attachable: true, path, socket: false };
    for connected in [true, false] {
        for path in [OURS, FREE, unfit()] {
            let mut supervisor = serving();
            let actions = supervisor.step(&lost(path.clone(), connected));
            assert_eq!(actions.first(), Some(&Action::BindSocket), "{connected} {path:?}");
            assert!(!supervisor.is_content());
        }
    }
    let mut supervisor = serving();
    supervisor.step(&lost(OURS, true));
    assert_eq!(see(&mut supervisor, true, OURS), []);
    assert!(supervisor.is_content() && supervisor.standing().is_none());
}
