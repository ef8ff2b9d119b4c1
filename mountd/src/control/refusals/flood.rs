//! Many attempts as few events: `rm -rf` over thousands of directories must push nothing else out
//! of the ring.
//!
//! The first attempt of a process on a session is told at once; what follows within a while is
//! counted, and told as one when that is over. Where a user has too many processes that try, what
//! the further ones do is counted together for each owner of sessions. Nothing is dropped without
//! being counted. It has no clock: time is passed in.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_fs::clock::Timestamp;

use crate::control::events::Removal;

/// For how long attempts are counted together.
const WHILE: Duration = Duration::from_secs(5);
/// How many processes and sessions of one user are told apart at a time.
const APART: usize = 16;

/// What is counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// What a process does to a session.
    Process { uid: u32, pid: Option<u32>, session: String },
    /// What a user's further processes do to an owner's sessions.
    Rest { uid: u32, owner: u32 },
}

/// What was counted since it was last told.
#[derive(Debug)]
struct Counted {
    until: Timestamp,
    since: Option<Removal>,
}

/// What is being counted.
#[derive(Debug, Default)]
pub(super) struct Flood(BTreeMap<Kind, Counted>);

impl Flood {
    /// An attempt. Given back where it is to be told at once.
    pub(super) fn take(&mut self, removal: Removal, now: Timestamp) -> Option<Removal> {
        let kind = self.kind(&removal);
        match self.0.get_mut(&kind) {
            Some(counted) => {
                counted.since = Some(together(counted.since.take(), removal));
                None
            }
            None => {
                self.0.insert(kind, Counted { until: now.after(WHILE), since: None });
                Some(removal)
            }
        }
    }

    /// When to settle.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.0.values().map(|counted| counted.until).min()
    }

    /// What is to be told now.
    pub(super) fn settle(&mut self, now: Timestamp) -> Vec<Removal> {
        let mut told = Vec::new();
        self.0.retain(|_, counted| {
            if now < counted.until {
                return true;
            }
            counted.until = now.after(WHILE);
            let since = counted.since.take();
            let goes_on = since.is_some();
            told.extend(since);
            goes_on
        });
        told
    }

    fn kind(&self, removal: &Removal) -> Kind {
        let (uid, refusal) = (removal.refusal.caller.uid, &removal.refusal);
        let session = refusal.session.clone();
        let process = Kind::Process { uid, pid: removal.pid, session };
        let apart = self
            .0
            .keys()
            .filter(|kind| matches!(kind, Kind::Process { uid: of, .. } if *of == uid));
        if self.0.contains_key(&process) || apart.count() < APART {
            process
        } else {
            Kind::Rest { uid, owner: refusal.owner }
        }
    }
}

/// Two as one: it tells of the later one, but says nothing of whose it was where that differs.
fn together(before: Option<Removal>, removal: Removal) -> Removal {
    let Some(before) = before else { return removal };
    Removal {
        pid: removal.pid.filter(|pid| before.pid == Some(*pid)),
        executable: removal.executable.filter(|name| before.executable.as_ref() == Some(name)),
        count: before.count + removal.count,
        ..removal
    }
}

#[cfg(test)]
mod tests {
    use holdfast_fs::tempfs::{Attempt, Caller, Refusal};

    use super::*;

    const START: Timestamp = Timestamp::from_start(Duration::from_secs(100));

    fn attempt(pid: u32, session: &str, owner: u32) -> Removal {
        let refusal = Refusal {
            caller: Caller { uid: 1000, gid: 1000, thread: pid },
            attempt: Attempt::Remove,
            session: session.to_owned(),
            owner,
            lease: None,
            path: format!("{session}/1"),
        };
        Removal { refusal, pid: Some(pid), executable: Some("rm".to_owned()), count: 1 }
    }

    #[test]
    fn the_first_is_told_at_once_and_the_rest_as_one() {
        let mut flood = Flood::default();
        assert_eq!(flood.due(), None);
        assert_eq!(flood.take(attempt(7, "a", 1), START), Some(attempt(7, "a", 1)));
        assert_eq!(flood.take(attempt(7, "b", 1), START), Some(attempt(7, "b", 1)));
        for _ in 0..1000 {
            assert_eq!(flood.take(attempt(7, "a", 1), START), None);
        }
        let due = flood.due().expect("something is counted");
        assert_eq!(flood.settle(START), []);
        let rest = Removal { count: 1000, ..attempt(7, "a", 1) };
        assert_eq!(flood.settle(due), [rest]);
        // It may go on; nothing more is told before the next time.
        assert_eq!(flood.take(attempt(7, "a", 1), due), None);
        let next = flood.due().expect("it is counted on");
        assert_eq!(flood.settle(next), [attempt(7, "a", 1)]);
        assert_eq!(flood.settle(next.after(WHILE)), []);
        assert_eq!(flood.due(), None, "nothing is kept of what is over");
    }

    #[test]
    fn too_many_processes_of_a_user_are_counted_together() {
        let mut flood = Flood::default();
        let (mut told, many) = (Vec::new(), 10_000);
        for pid in 1..=many {
            told.extend(flood.take(attempt(pid, "a", pid % 2), START));
        }
        assert_eq!(told.len(), APART + 2, "one more for each owner");
        assert!(flood.0.len() <= APART + 2);
        told.extend(flood.settle(START.after(WHILE)));
        assert_eq!(told.len(), APART + 4);
        let all: u64 = told.iter().map(|removal| removal.count).sum();
        assert_eq!(all, u64::from(many), "none is lost");
        let last = told.last().expect("the rest");
        assert_eq!((last.pid, last.executable.as_deref()), (None, Some("rm")));
        let of_owner = told.iter().filter(|removal| removal.refusal.owner == 1);
        assert_eq!(of_owner.map(|removal| removal.count).sum::<u64>(), u64::from(many / 2));
        // Another user's are told all the same.
        let mut other = attempt(1, "a", 1);
        other.refusal.caller.uid = 1001;
        assert!(flood.take(other, START).is_some());
    }
}
