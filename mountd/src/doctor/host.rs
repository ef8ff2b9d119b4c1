//! What the host grants: the device, the helper, namespaces, privileges, descriptors.
//!
//! What is tried is tried in this process, which ends with the check.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::no_new_privs;

use super::{Case, Finding, Verdict};
use crate::config::Store;
use crate::fault::Fault;
use crate::keeper;
use crate::worker::{Budget, enter_user_namespace};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const HELPER_SETTINGS: &str = "/etc/fuse.conf";
const SET_UID: u32 = 0o4000;
const EXECUTABLE: u32 = 0o111;
/// With fewer descriptors, sessions and files that are in use soon run out of them.
const FEW: u64 = 1024;
const NO_HELPER: &str = "not needed: this user mounts without it";

pub(super) fn privileges(case: &Case<'_>) -> Finding {
    if !case.host.privileged {
        let found = "no CAP_SYS_ADMIN: a daemon serves this user alone, and where its mount is \
                     detached it comes back as a new connection over the same store";
        let remedy = "start the daemon as root, where that matters";
        return Finding::warning(found, remedy).costing(&[
            "other-users",
            "same-mount-back",
            "data-passthrough",
        ]);
    }
    match keeper::require_privileges(case.host) {
        Ok(()) => Finding::ok("all capabilities that it takes to serve many users"),
        Err(fault) => Finding::problem(&fault),
    }
}

pub(super) fn fuse_device(_: &Case<'_>) -> Finding {
    match openat(CWD, DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Finding::ok(format!("{DEVICE} can be opened")),
        Err(errno) => Finding::problem(&Fault::FuseDeviceMissing { device: DEVICE.into(), errno }),
    }
}

pub(super) fn helper(case: &Case<'_>) -> Finding {
    if case.host.privileged {
        return Finding::skipped(NO_HELPER);
    }
    let Some((path, facts)) = find_helper() else {
        return Finding::problem(&Fault::FusermountMissing { errno: Errno::NOENT });
    };
    let path = path.display();
    if facts.uid() != 0 || facts.mode() & SET_UID == 0 {
        return Finding {
            remedy: Some(format!("chown root {path} && chmod u+s {path}")),
            code: Some("fusermount-refused".to_owned()),
            ..Finding::new(Verdict::Problem, format!("{path} is not set-uid root"))
        };
    }
    if no_new_privs().unwrap_or(false) {
        return Finding {
            remedy: Some("start the daemon outside of what has set that".to_owned()),
            code: Some("fusermount-refused".to_owned()),
            ..Finding::new(Verdict::Problem, "this process may gain no privileges (no_new_privs)")
        };
    }
    Finding::ok(format!("{path} is set-uid root"))
}

fn find_helper() -> Option<(PathBuf, fs::Metadata)> {
    let places = env::var_os("PATH")?;
    env::split_paths(&places).map(|place| place.join(HELPER)).find_map(|path| {
        let facts = fs::metadata(&path).ok()?;
        (facts.is_file() && facts.mode() & EXECUTABLE != 0).then_some((path, facts))
    })
}

pub(super) fn helper_settings(case: &Case<'_>) -> Finding {
    if case.host.privileged {
        return Finding::skipped(NO_HELPER);
    }
    let text = match fs::read_to_string(HELPER_SETTINGS) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Finding::skipped(format!("{HELPER_SETTINGS}: {error}")),
    };
    let is_set = text.lines().any(|line| line.trim() == "user_allow_other");
    let how = if is_set { "is set" } else { "isn't set" };
    // Even then the files of a daemon of one's own are that user's alone.
    Finding::ok(format!("user_allow_other {how}; a daemon of one's own does without it"))
}

pub(super) fn user_namespaces(case: &Case<'_>) -> Finding {
    if case.host.privileged {
        return Finding::skipped("not needed: this user makes a tmpfs without one");
    }
    let fault = match enter_user_namespace() {
        Ok(()) => return Finding::ok("one can be had, with a mount namespace in it"),
        Err(fault) => fault,
    };
    match case.settings().map(|settings| settings.store) {
        Ok(Store::Dir(_)) => Finding { verdict: Verdict::Warning, ..Finding::problem(&fault) }
            .costing(&["unreadable-files"]),
        Ok(Store::Tmpfs) | Err(_) => Finding::problem(&fault),
    }
}

pub(super) fn descriptors(_: &Case<'_>) -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let number = |limit: Option<u64>| limit.map_or("no".to_owned(), |limit| limit.to_string());
    // A daemon raises the soft one.
    let Budget { inodes, generations } = Budget::of_limit(limit.maximum);
    let found = format!(
        "soft limit {}, hard limit {}: a daemon holds {generations} generations, and an ordinary \
         user's {inodes} inodes that are in use",
        number(limit.current),
        number(limit.maximum)
    );
    if limit.maximum.is_some_and(|most| most < FEW) {
        let remedy = "raise the hard limit (`ulimit -Hn`, `LimitNOFILE=` of a service)";
        return Finding::warning(found, remedy);
    }
    Finding::ok(found)
}
