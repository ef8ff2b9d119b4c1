//! Each fault has a code of its own, and no message tells a path.

use std::collections::BTreeSet;

use super::*;

const PATH: &str = "/secret/place";

/// One of each, in the order of the enum.
fn all() -> Vec<Fault> {
    let path = || PathBuf::from(PATH);
    let errno = Errno::ACCESS;
    let step = "step";
    let session = || "build".to_owned();
    vec![
        Fault::FuseDeviceMissing { device: path(), errno },
        Fault::FusermountMissing { errno },
        Fault::FusermountRefused { path: path(), status: "1".into(), stderr: "no".into() },
        Fault::MountRefused { path: path(), step, errno },
        Fault::UsernsRefused { step, errno },
        Fault::KernelTooOld { missing: "fsopen", errno },
        Fault::MountpointParentMissing { parent: path(), errno },
        Fault::MountpointParentNotDirectory { parent: path() },
        Fault::MountpointParentWritable { parent: path(), owner: 7, mode: 0o777 },
        Fault::MountpointSymlink { path: path(), target: path() },
        Fault::MountpointNotDirectory { path: path(), found: "fifo" },
        Fault::MountpointWrongOwner { path: path(), expected: 0, found: 1 },
        Fault::MountpointWrongMode { path: path(), expected: 0o755, found: 0o700 },
        Fault::MountpointNotEmpty { path: path(), entry: path() },
        Fault::MountpointForeignMount {
            path: path(),
            fstype: "fuse.holdfast".into(),
            source: "holdfast".into(),
            owner: Some(1000),
        },
        Fault::MountpointInUse { path: path() },
        Fault::MountpointUnusable { path: path(), step, errno },
        Fault::MountpointNotVisible { path: path(), expected: (1, 2), found: Seen::Nothing(errno) },
        Fault::MountStale { path: path(), cause: "busy".into() },
        Fault::MountDetached { mountpoint: path() },
        Fault::ConnectionAborted { mountpoint: path() },
        Fault::StoreParentMissing { parent: path(), errno },
        Fault::StoreLocked { path: path() },
        Fault::StoreSymlink { path: path(), target: path() },
        Fault::StoreNotDirectory { path: path(), found: "socket" },
        Fault::StoreWrongOwner { path: path(), expected: 0, found: 1 },
        Fault::StoreWrongMode { path: path(), expected: 0o700, found: 0o755 },
        Fault::StoreUnusable { step: step.into(), errno },
        Fault::SavedVersionUnknown { file: "registry/header".into(), found: 2 },
        Fault::SavedUnreadable { file: "registry/header".into(), reason: "x".into() },
        Fault::StoreFull,
        Fault::StoreOutOfInodes,
        Fault::GenerationsExhausted { limit: 3 },
        Fault::SessionUnknown { session: session() },
        Fault::SessionSealed { session: session() },
        Fault::SessionNotYours { session: session() },
        Fault::PolicyDiffers { session: session(), difference: "size".into() },
        Fault::LeaseUnknown { lease: "c5n8t2aa".into() },
        Fault::TokenUnknown,
        Fault::NotFromInside { session: session() },
        Fault::NameInvalid { reason: "empty".into() },
        Fault::LimitReached { limit: "sessions per user".into(), value: 5 },
        Fault::SessionsAlive { sessions: vec![session()] },
        Fault::DaemonNotYours { owner: 7 },
        Fault::ProcessUnknown { pid: 7 },
        Fault::RequestInvalid { reason: "no method".into() },
        Fault::RequestTooLarge { limit: 65536 },
        Fault::NotSupported { what: "sweep".into() },
        Fault::Stopping,
        Fault::DaemonUnreachable { tried: vec![(path(), "refused".into())] },
        Fault::DaemonUnresponsive { socket: path(), waited: Duration::from_secs(5) },
        Fault::WorkerFailed { status: "signal 9".into() },
        Fault::SettingsInvalid { place: PATH.into(), reason: "unknown key".into() },
        Fault::SocketInUse { socket: path(), found: "uid 7".into() },
        Fault::SocketRefused { path: path(), reason: "a file".into() },
        Fault::System { step, errno },
    ]
}

/// The codes that clients may rely on; a code that leaves this list breaks them.
const CODES: &[&str] = &[
    "fuse-device-missing",
    "fusermount-missing",
    "fusermount-refused",
    "mount-refused",
    "userns-refused",
    "kernel-too-old",
    "mountpoint-parent-missing",
    "mountpoint-parent-not-directory",
    "mountpoint-parent-writable",
    "mountpoint-symlink",
    "mountpoint-not-directory",
    "mountpoint-wrong-owner",
    "mountpoint-wrong-mode",
    "mountpoint-not-empty",
    "mountpoint-foreign-mount",
    "mountpoint-in-use",
    "mountpoint-unusable",
    "mountpoint-not-visible",
    "mount-stale",
    "mount-detached",
    "connection-aborted",
    "store-parent-missing",
    "store-locked",
    "store-symlink",
    "store-not-directory",
    "store-wrong-owner",
    "store-wrong-mode",
    "store-unusable",
    "saved-version-unknown",
    "saved-unreadable",
    "store-full",
    "store-out-of-inodes",
    "generations-exhausted",
    "session-unknown",
    "session-sealed",
    "session-not-yours",
    "policy-differs",
    "lease-unknown",
    "token-unknown",
    "not-from-inside",
    "name-invalid",
    "limit-reached",
    "sessions-alive",
    "daemon-not-yours",
    "process-unknown",
    "request-invalid",
    "request-too-large",
    "not-supported",
    "stopping",
    "daemon-unreachable",
    "daemon-unresponsive",
    "worker-failed",
    "settings-invalid",
    "socket-in-use",
    "socket-refused",
    "system",
];

#[test]
fn codes_are_the_stable_ones_each_once() {
    let codes: Vec<&str> = all().iter().map(Fault::code).collect();
    assert_eq!(codes, CODES);
    assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len());
    for code in codes {
        assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{code}");
    }
}

#[test]
fn a_message_has_no_path_and_nothing_is_left_out() {
    for fault in all() {
        let report = fault.report();
        assert!(!report.message.contains('/'), "{}", report.message);
        assert!(!report.message.is_empty() && !report.remedy.is_empty(), "{}", report.code);
        assert!(!fault.cause().is_empty(), "{}", report.code);
        assert_eq!(fault.report_to_client().cause, None);
    }
}

#[test]
fn a_report_survives_the_wire() {
    for fault in all() {
        for report in [fault.report(), fault.report_to_client()] {
            let wire = serde_json::to_string(&report).expect("a report is plain data");
            assert_eq!(serde_json::from_str::<FaultReport>(&wire).ok(), Some(report));
        }
    }
}
