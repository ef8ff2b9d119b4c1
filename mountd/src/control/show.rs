//! Records of the namespace as the wire shows them: with paths, devices and times for clients.
//!
//! It must never decide what a caller may see: the namespace did.

use std::cell::Ref;
use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_fs::clock::Timestamp;
use holdfast_fs::namespace::{Leftover, What};
use holdfast_fs::registry as own;

use super::wire;

/// Numbers on the wire have a sign.
const MOST: u64 = i64::MAX.unsigned_abs();

/// What the records don't know.
pub(super) struct Show<'a> {
    /// Where the namespace appears.
    pub(super) mountpoint: &'a str,
    /// The connections to the kernel that still serve what is open on them.
    pub(super) alive: Ref<'a, BTreeSet<u64>>,
    /// The present moment.
    pub(super) now: Timestamp,
}

impl Show<'_> {
    pub(super) fn session(&self, view: &own::SessionView) -> wire::Session {
        let path = self.path(&view.path_below_mount());
        let generations = view.generations.iter();
        wire::Session {
            id: view.id.to_string(),
            name: view.name.clone(),
            uid: view.uid,
            gid: view.gid,
            policy: policy(&view.policy),
            sealed: view.sealed,
            inode: view.inode,
            current: view.current,
            generations: generations.map(|generation| self.generation(&path, generation)).collect(),
            owners: view.tokens.iter().map(|token| self.owner(token)).collect(),
            leases: count(view.leases),
            age_ms: self.since(view.opened),
            idle_ms: self.since(view.active),
            expires_in_ms: view.expires.map(|at| milliseconds(at.since(self.now))),
            path,
        }
    }

    pub(super) fn lease(&self, view: &own::LeaseView) -> wire::Lease {
        let (hold, bound) = match view.binding {
            own::Binding::Process(bound) => (wire::Hold::Process, Some(process(bound))),
            own::Binding::Connection(_) => (wire::Hold::Connection, None),
            own::Binding::Unbound => (wire::Hold::Nothing, None),
        };
        wire::Lease {
            id: view.id.to_string(),
            session: view.session.to_string(),
            name: view.name.clone(),
            generation: view.generation,
            current: view.current,
            kind: kind(view.kind),
            path: self.path(&view.path_below_mount),
            device: view.served.device,
            inode: view.inode,
            epoch: view.served.epoch,
            stale: !self.alive.contains(&view.served.epoch),
            hold,
            process: bound,
            asked_by: process(view.asked_by),
            uid: view.uid,
            gid: view.gid,
            policy: policy(&view.policy),
            age_ms: self.since(view.since),
        }
    }

    fn generation(&self, session: &str, view: &own::GenerationView) -> wire::Generation {
        wire::Generation {
            number: view.number,
            path: format!("{session}/{}", view.number),
            inode: view.inode,
            retired: view.retired,
            leases: count(view.leases),
        }
    }

    fn owner(&self, token: &own::TokenView) -> wire::Owner {
        let (holder, linger_ms) = match token.holder {
            own::Holder::Process(holder) => (Some(process(holder)), None),
            own::Holder::Linger { ttl } => (None, Some(milliseconds(ttl))),
        };
        wire::Owner { process: holder, linger_ms, age_ms: self.since(token.since) }
    }

    fn path(&self, below: &str) -> String {
        format!("{}/{below}", self.mountpoint)
    }

    fn since(&self, moment: Timestamp) -> u64 {
        milliseconds(self.now.since(moment))
    }
}

pub(super) fn leftover(show: &Show<'_>, left: &Leftover) -> wire::Leftover {
    let (kind, why, session, generation, lease, key) = match left.what {
        What::Lease { session, generation, lease } => {
            let why = "its lease has ended";
            let kind = wire::LeftoverKind::EndedLease;
            (kind, why, Some(session), Some(generation), Some(lease), None)
        }
        What::Retired { session, generation } => {
            let why = "it is to go as soon as it is let go";
            let kind = wire::LeftoverKind::RetiredGeneration;
            (kind, why, Some(session), Some(generation), None, None)
        }
        What::Unclaimed { key } => {
            let why = "an earlier daemon has left it, and no session has it";
            (wire::LeftoverKind::UnclaimedGeneration, why, None, None, None, Some(key.get()))
        }
    };
    let below = match (session, generation, lease) {
        (Some(session), Some(generation), Some(lease)) => {
            Some(format!("{session}/{generation}/{lease}"))
        }
        (Some(session), Some(generation), None) => Some(format!("{session}/{generation}")),
        (_, _, _) => None,
    };
    wire::Leftover {
        kind,
        why: why.to_owned(),
        uid: left.uid,
        session: session.map(|session| session.to_string()),
        generation,
        lease: lease.map(|lease| lease.to_string()),
        path: below.map(|below| show.path(&below)),
        key,
        age_ms: left.since.map(|since| show.since(since)),
        bytes: left.usage.map(|usage| usage.bytes),
        inodes: left.usage.map(|usage| usage.inodes),
        busy: left.busy,
        swept: left.swept,
        refused: left.refused.map(|error| error.to_string()),
    }
}

pub(super) fn receipt(receipt: &own::Receipt) -> wire::Receipt {
    wire::Receipt {
        lease: receipt.lease.to_string(),
        session: receipt.session.to_string(),
        name: receipt.name.clone(),
        generation: receipt.generation,
        kind: kind(receipt.kind),
        end: match receipt.end {
            own::LeaseEnd::Released => wire::LeaseEnd::Released,
            own::LeaseEnd::ProcessGone => wire::LeaseEnd::ProcessGone,
            own::LeaseEnd::ConnectionGone => wire::LeaseEnd::ConnectionGone,
            own::LeaseEnd::Closed => wire::LeaseEnd::Closed,
            own::LeaseEnd::DirectoryGone => wire::LeaseEnd::DirectoryGone,
        },
        held_ms: milliseconds(receipt.ended.since(receipt.since)),
        bytes: receipt.usage.map(|usage| usage.bytes),
        inodes: receipt.usage.map(|usage| usage.inodes),
        qualification: None,
    }
}

pub(super) fn counts(counts: own::Counts, connections: usize) -> wire::Counts {
    wire::Counts {
        sessions: count(counts.sessions),
        sealed: count(counts.sealed),
        generations: count(counts.generations),
        retired: count(counts.retired),
        leases: count(counts.leases),
        tokens: count(counts.tokens),
        processes: count(counts.processes),
        connections: count(connections),
    }
}

pub(super) const fn own_mode(mode: wire::Mode) -> own::Mode {
    match mode {
        wire::Mode::Private => own::Mode::Private,
        wire::Mode::Shared => own::Mode::Shared,
    }
}

pub(super) const fn own_guard(guard: wire::Guard) -> own::Guard {
    match guard {
        wire::Guard::Open => own::Guard::Open,
        wire::Guard::Sticky => own::Guard::Sticky,
        wire::Guard::Members => own::Guard::Members,
    }
}

pub(super) const fn own_kind(kind: wire::LeaseKind) -> own::LeaseKind {
    match kind {
        wire::LeaseKind::Shared => own::LeaseKind::Shared,
        wire::LeaseKind::Private => own::LeaseKind::Private,
    }
}

pub(super) fn count(value: usize) -> u64 {
    u64::try_from(value).map_or(MOST, |value| value.min(MOST))
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).map_or(MOST, |value| value.min(MOST))
}

const fn kind(kind: own::LeaseKind) -> wire::LeaseKind {
    match kind {
        own::LeaseKind::Shared => wire::LeaseKind::Shared,
        own::LeaseKind::Private => wire::LeaseKind::Private,
    }
}

const fn policy(policy: &own::Policy) -> wire::Policy {
    wire::Policy {
        size: policy.size,
        inodes: policy.inodes,
        mode: match policy.mode {
            own::Mode::Private => wire::Mode::Private,
            own::Mode::Shared => wire::Mode::Shared,
        },
        guard: match policy.guard {
            own::Guard::Open => wire::Guard::Open,
            own::Guard::Sticky => wire::Guard::Sticky,
            own::Guard::Members => wire::Guard::Members,
        },
    }
}

const fn process(process: own::Process) -> wire::Process {
    wire::Process { pid: process.pid, start: process.start }
}
