//! Who asks, and from where: what can be told without touching any path that is in question.

use std::env;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{getegid, geteuid, getgroups};

use crate::control::wire::{Asker, Qualification, Verdict, View};

/// The marker of a command inside a lease.
pub(crate) const MEMBER: &str = "HOLDFAST_MEMBER";

/// A record with nothing in it yet but who asks, when and from where.
pub(super) fn begin() -> Qualification {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Qualification {
        verdict: Verdict::Disqualified,
        first: None,
        fault: None,
        waits_for: None,
        at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        path: None,
        asker: Asker {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups: getgroups().unwrap_or_default().iter().map(|group| group.as_raw()).collect(),
            pid: std::process::id(),
        },
        view: View {
            mount_namespace: namespace("mnt"),
            user_namespace: namespace("user"),
            pid_namespace: namespace("pid"),
            member: env::var(MEMBER).ok(),
        },
        canonical: None,
        links: Vec::new(),
        object: None,
        error: None,
        mount: None,
        mounts: Vec::new(),
        mounts_count: None,
        access: None,
        probe: None,
        space: None,
        git: None,
    }
}

/// The number of a namespace that this process is in: `mnt:[4026531841]`.
fn namespace(kind: &str) -> Option<u64> {
    let link = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
    link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_told_by_their_numbers() {
        let view = begin().view;
        for number in [view.mount_namespace, view.user_namespace, view.pid_namespace] {
            assert!(number.is_some_and(|number| number > 0), "{view:?}");
        }
        assert_eq!(namespace("none"), None);
    }
}
