//! Checks of the host: what is fine, what is not, what to do about it, and which promise is lost.
//!
//! It must never change anything that outlives it, nor wait without an end: each check is done by a
//! process of its own, which can be left behind.

mod daemon;
mod host;
mod kernel;
mod places;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::{Flags, Host, Settings};
use crate::errand;
use crate::fault::{Fault, FaultReport};

/// How long one check may take; they are made at the same time.
const PATIENCE: Duration = Duration::from_secs(15);

/// How it stands with one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// As it should be.
    Ok,
    /// It will do, at a cost.
    Warning,
    /// Nothing can be served as long as it is so.
    Problem,
    /// It couldn't be found out, or doesn't matter here.
    Skipped,
}

/// What was found out about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Check {
    /// Its name.
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) finding: Finding,
}

/// How it stands, and what that means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    /// What was found.
    pub(crate) found: String,
    /// The code of the fault that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// What can be done about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// The promises that are lost by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) costs: Vec<String>,
}

/// All that was found out.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    pub(crate) checks: Vec<Check>,
    pub(crate) problems: usize,
    pub(crate) warnings: usize,
}

/// For whom, and with which daemon in mind.
struct Case<'a> {
    host: Host,
    socket: Option<&'a Path>,
}

/// Makes a check.
type Maker = fn(&Case<'_>) -> Finding;

/// What only matters to a daemon of the user's own.
const OF_OWN_DAEMON: [&str; 7] = [
    "privileges",
    "fuse-device",
    "fusermount3",
    "fuse-conf",
    "user-namespaces",
    "fuse-features",
    "descriptors",
];

/// The checks, in the order in which a daemon meets what they are about.
const CHECKS: [(&str, Maker); 15] = [
    ("settings", places::settings),
    ("privileges", host::privileges),
    ("fuse-device", host::fuse_device),
    ("fusermount3", host::helper),
    ("fuse-conf", host::helper_settings),
    ("user-namespaces", host::user_namespaces),
    ("mount-numbers", kernel::mount_numbers),
    ("fuse-features", kernel::fuse_features),
    ("descriptors", host::descriptors),
    ("mountpoint", places::mountpoint),
    ("other-mounts", places::other_mounts),
    ("store", places::store),
    ("socket", places::socket),
    ("daemon", daemon::answers),
    ("promises", daemon::promises),
];

/// Makes all checks.
pub(crate) fn examine(socket: Option<&Path>) -> Diagnosis {
    let checks: Vec<Check> = thread::scope(|scope| {
        let sent = CHECKS.map(|(name, _)| (name, scope.spawn(move || send_for(name, socket))));
        let heard = sent.into_iter().map(|(name, thread)| {
            let finding = thread.join().unwrap_or_else(|_| unmade("its thread panicked"));
            Check { name: name.to_owned(), finding }
        });
        heard.collect()
    });
    let count = |verdict| checks.iter().filter(|check| check.finding.verdict == verdict).count();
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
    Diagnosis { checks, problems, warnings }
}

/// Makes one check in this process; `None` where there is none of this name.
pub(crate) fn make(name: &str, socket: Option<&Path>) -> Option<Finding> {
    let (_, check) = CHECKS.iter().find(|(known, _)| *known == name)?;
    let case = match Host::ask() {
        Ok(host) => Case { host, socket },
        Err(fault) => return Some(Finding::problem(&fault)),
    };
    if OF_OWN_DAEMON.contains(&name)
        && let Ok(Some(described)) = daemon::describe(&case)
        && described.description.uid != case.host.uid
    {
        let uid = described.description.uid;
        return Some(Finding::skipped(format!("not needed: uid {uid}'s daemon serves this user")));
    }
    Some(check(&case))
}

/// Has one check made by a process of its own.
fn send_for(name: &str, socket: Option<&Path>) -> Finding {
    let mut command = errand::this_program();
    command.args(["check-host", name]);
    if let Some(socket) = socket {
        command.arg("--socket").arg(socket);
    }
    match errand::run(&mut command, PATIENCE) {
        Ok(outcome) => match (outcome.status, serde_json::from_slice(&outcome.stdout)) {
            (Some(_), Ok(finding)) => finding,
            (Some(status), Err(_)) => unmade(&status.to_string()),
            (None, _) => unmade(&format!("no answer within {} s", PATIENCE.as_secs())),
        },
        Err(error) => unmade(&error.to_string()),
    }
}

fn unmade(why: &str) -> Finding {
    Finding {
        remedy: Some(
            "something that it touches hangs: see `mount` and the kernel's log".to_owned(),
        ),
        ..Finding::new(Verdict::Problem, format!("the check came to no end: {why}"))
    }
}

impl Finding {
    fn new(verdict: Verdict, found: impl Into<String>) -> Self {
        Self { verdict, found: found.into(), code: None, remedy: None, costs: Vec::new() }
    }

    fn ok(found: impl Into<String>) -> Self {
        Self::new(Verdict::Ok, found)
    }

    fn skipped(why: impl Into<String>) -> Self {
        Self::new(Verdict::Skipped, why)
    }

    fn warning(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(Verdict::Warning, found) }
    }

    fn problem(fault: &Fault) -> Self {
        Self::reported(fault.report())
    }

    fn reported(report: FaultReport) -> Self {
        Self {
            code: Some(report.code),
            remedy: Some(report.remedy),
            ..Self::new(Verdict::Problem, report.cause.unwrap_or(report.message))
        }
    }

    fn costing(mut self, promises: &[&str]) -> Self {
        self.costs = promises.iter().map(|promise| (*promise).to_owned()).collect();
        self
    }
}

impl Case<'_> {
    fn settings(&self) -> Result<Settings, Fault> {
        let socket = self.socket.map(PathBuf::from);
        Settings::read(self.host, Flags { socket, ..Flags::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_comes_back_from_the_process_that_made_it() {
        let finding = Finding::problem(&Fault::StoreFull).costing(&["session-limits"]);
        let check = Check { name: "store".to_owned(), finding: finding.clone() };
        let text = serde_json::to_string(&check).expect("JSON");
        assert_eq!(serde_json::from_str::<Check>(&text).expect("a check"), check);
        assert_eq!(serde_json::from_str::<Finding>(&text).expect("a finding"), finding);
        assert_eq!(finding.code.as_deref(), Some("store-full"));
    }

    #[test]
    fn each_check_has_a_name_of_its_own() {
        let mut names = CHECKS.map(|(name, _)| name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
        assert!(OF_OWN_DAEMON.iter().all(|name| names.contains(name)));
        assert!(make("none", None).is_none());
    }
}
