//! From the facts to the verdict: pure.
//!
//! A code that was given must never get another meaning: clients compare it.

use rustix::io::Errno;

use super::target::DIRECTORY;
use crate::control::wire::{Probe, Qualification, Space, Verdict};

/// The code where no answer comes in time.
pub(super) const UNRESPONSIVE: &str = "unresponsive";

/// The record of an examination that has come to its end, with the verdict.
pub(super) fn given(mut record: Qualification) -> Qualification {
    record.waits_for = None;
    record.first = first(&record).map(str::to_owned);
    record.verdict = match &record.first {
        Some(_) => Verdict::Disqualified,
        None => Verdict::Qualified,
    };
    record
}

/// The first fact that disqualifies: what comes before explains what comes after.
fn first(record: &Qualification) -> Option<&'static str> {
    if let Some(error) = &record.error {
        return Some(match Errno::from_raw_os_error(error.number) {
            Errno::NOENT => "missing",
            Errno::NOTDIR => "not-a-directory",
            _ => "unreachable",
        });
    }
    let Some(object) = &record.object else { return Some("unreachable") };
    if object.kind != DIRECTORY {
        return Some("not-a-directory");
    }
    if !record.links.is_empty() {
        return Some("symlink-in-path");
    }
    if record.space.as_ref().is_some_and(|space| space.read_only) {
        return Some("read-only");
    }
    if record.access.as_ref().is_some_and(|access| !access.writable) {
        return Some("not-writable");
    }
    if let Some(probe) = &record.probe
        && probe.failed.is_some()
    {
        return Some(of_probe(probe, record.space.as_ref()));
    }
    if let Some(code) = record.space.as_ref().and_then(lack) {
        return Some(code);
    }
    match &record.git {
        Some(git) if git.meaning == "not-ignored" => Some("not-ignored-by-git"),
        Some(_) | None => None,
    }
}

fn of_probe(probe: &Probe, space: Option<&Space>) -> &'static str {
    match probe.error.as_ref().map(|error| Errno::from_raw_os_error(error.number)) {
        Some(Errno::NOSPC | Errno::DQUOT) => space.and_then(lack).unwrap_or("no-space"),
        Some(_) | None => "probe-failed",
    }
}

/// What there is none left of. A filesystem may count neither.
const fn lack(space: &Space) -> Option<&'static str> {
    match space {
        Space { bytes: 1.., bytes_free: 0, .. } => Some("no-space"),
        Space { inodes: 1.., inodes_free: 0, .. } => Some("no-inodes"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::wire::{Access, GitAnswer, Link, Object};
    use crate::qualify::refused;

    fn good() -> Qualification {
        Qualification {
            fault: None,
            object: Some(Object {
                kind: DIRECTORY.into(),
                mode: "0700".into(),
                uid: 1,
                gid: 1,
                device: 1,
                inode: 1,
            }),
            access: Some(Access { writable: true, error: None }),
            probe: Some(Probe { failed: None, error: None, left: None }),
            space: Some(space(9, 9)),
            git: Some(GitAnswer {
                meaning: "not-in-repository".into(),
                command: "git".into(),
                status: Some(128),
                stderr: String::new(),
            }),
            ..refused("")
        }
    }

    fn space(bytes_free: u64, inodes_free: u64) -> Space {
        Space { read_only: false, bytes: 10, bytes_free, inodes: 10, inodes_free }
    }

    fn failed(step: &str, errno: Errno) -> Option<Probe> {
        Some(Probe { failed: Some(step.into()), error: Some(errno.into()), left: None })
    }

    #[test]
    fn a_good_directory_is_qualified() {
        let record = given(Qualification { waits_for: Some("git".into()), ..good() });
        assert_eq!((record.verdict, record.first), (Verdict::Qualified, None));
        assert_eq!(record.waits_for, None);
        let uncounted =
            Space { bytes: 0, bytes_free: 0, inodes: 0, inodes_free: 0, read_only: false };
        assert_eq!(first(&Qualification { space: Some(uncounted), ..good() }), None);
    }

    #[test]
    fn each_fact_has_its_code() {
        let file = good().object.map(|object| Object { kind: "fifo".into(), ..object });
        let link = Link { component: "/a".into(), target: "b".into() };
        let no_access = Some(Access { writable: false, error: Some(Errno::ACCESS.into()) });
        let git = good().git.map(|git| GitAnswer { meaning: "not-ignored".into(), ..git });
        let with_error = |errno: Errno| Qualification { error: Some(errno.into()), ..good() };
        for (record, code) in [
            (with_error(Errno::NOENT), "missing"),
            (with_error(Errno::NOTDIR), "not-a-directory"),
            (with_error(Errno::NOTCONN), "unreachable"),
            (Qualification { object: file, ..good() }, "not-a-directory"),
            (
                Qualification { links: vec![link], access: no_access.clone(), ..good() },
                "symlink-in-path",
            ),
            (
                Qualification {
                    space: Some(Space { read_only: true, ..space(9, 9) }),
                    access: no_access.clone(),
                    ..good()
                },
                "read-only",
            ),
            (Qualification { access: no_access, ..good() }, "not-writable"),
            (Qualification { probe: failed("rename", Errno::IO), ..good() }, "probe-failed"),
            (Qualification { probe: failed("write", Errno::NOSPC), ..good() }, "no-space"),
            (Qualification { probe: failed("write", Errno::DQUOT), ..good() }, "no-space"),
            (
                Qualification {
                    probe: failed("create", Errno::NOSPC),
                    space: Some(space(9, 0)),
                    ..good()
                },
                "no-inodes",
            ),
            (Qualification { space: Some(space(0, 9)), ..good() }, "no-space"),
            (Qualification { git, ..good() }, "not-ignored-by-git"),
        ] {
            let record = given(record);
            assert_eq!(record.first.as_deref(), Some(code));
            assert_eq!(record.verdict, Verdict::Disqualified);
        }
    }
}
