//! The form of what is saved, version 1.
//!
//! Another form must never have the same version.

use std::collections::BTreeMap;

use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::SavedError;
use crate::clock::Timestamp;
use crate::registry::{Generation, Lease, Policy, Session, SessionId, SessionRecord, Token};

/// The version that this daemon reads and writes.
pub(crate) const VERSION: u32 = 1;

/// What says of what the other files are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) version: u32,
    /// The boot that the processes and the moments are of.
    pub(super) boot: String,
    /// How many connections to the kernel there were so far.
    pub(super) epoch: u64,
}

/// What lasts of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lasting {
    version: u32,
    id: SessionId,
    name: Option<String>,
    uid: u32,
    gid: u32,
    policy: Policy,
    opened_with: Policy,
    sealed: bool,
    opened: Timestamp,
    inode: u64,
    next_number: u32,
    tokens: Vec<Token>,
    generations: Vec<Generation>,
}

/// What of a session matters only until the machine starts anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Passing {
    version: u32,
    active: Timestamp,
    leases: Vec<Lease>,
}

/// Why a file isn't what it should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is of another version.
    Version(u64),
    /// It isn't that at all.
    Not(String),
}

/// All that is looked at before the version is known.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unread> {
    let not = |error: serde_json::Error| Unread::Not(error.to_string());
    let Versioned { version } = serde_json::from_slice(bytes).map_err(not)?;
    if version != u64::from(VERSION) {
        return Err(Unread::Version(version));
    }
    serde_json::from_slice(bytes).map_err(not)
}

pub(crate) fn write(record: &impl Serialize) -> Result<Vec<u8>, SavedError> {
    let refused = |_| SavedError::Refused { step: "writing down a session", errno: Errno::INVAL };
    let mut bytes = serde_json::to_vec(record).map_err(refused)?;
    bytes.push(b'\n');
    Ok(bytes)
}

impl Lasting {
    pub(crate) fn split(SessionRecord(session): &SessionRecord) -> (Self, Passing) {
        let lasting = Self {
            version: VERSION,
            id: session.id,
            name: session.name.clone(),
            uid: session.uid,
            gid: session.gid,
            policy: session.policy,
            opened_with: session.opened_with,
            sealed: session.sealed,
            opened: session.opened,
            inode: session.inode,
            next_number: session.next_number,
            tokens: session.tokens.values().cloned().collect(),
            generations: session.generations.values().cloned().collect(),
        };
        let leases = session.leases.values().cloned().collect();
        (lasting, Passing { version: VERSION, active: session.active, leases })
    }

    /// The two files are not written at once. A lease on a generation that is gone was left by a
    /// daemon that was ended in between, or had no room to save that the lease ended.
    pub(crate) fn join(self, passing: Option<Passing>) -> SessionRecord {
        let Self { opened, .. } = self;
        let Passing { version: _, active, leases } =
            passing.unwrap_or(Passing { version: VERSION, active: opened, leases: Vec::new() });
        let generations: BTreeMap<_, _> =
            self.generations.into_iter().map(|one| (one.number, one)).collect();
        let leases = leases.into_iter().filter(|lease| generations.contains_key(&lease.generation));
        SessionRecord(Session {
            id: self.id,
            name: self.name,
            uid: self.uid,
            gid: self.gid,
            policy: self.policy,
            opened_with: self.opened_with,
            sealed: self.sealed,
            opened,
            active,
            inode: self.inode,
            tokens: self.tokens.into_iter().map(|token| (token.id, token)).collect(),
            leases: leases.map(|lease| (lease.id, lease)).collect(),
            generations,
            next_number: self.next_number,
        })
    }
}
