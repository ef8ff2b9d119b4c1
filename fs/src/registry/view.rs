//! What clients are shown of the records.
//!
//! It must never show a path: where the namespace is mounted is not the registry's to know.

use serde::{Deserialize, Serialize};

use super::{
    Binding, Holder, LeaseEnd, LeaseId, LeaseKind, Policy, Process, Served, SessionId, TokenId,
};
use crate::clock::Timestamp;
use crate::node::GenerationKey;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// Its id: the name of its directory.
    pub id: SessionId,
    /// The label that its client gave it.
    pub name: Option<String>,
    /// Owner.
    pub uid: u32,
    /// Group of its directories.
    pub gid: u32,
    /// What it was granted.
    pub policy: Policy,
    /// Whether its last owner is gone; it then only waits for leases and uses to end.
    pub sealed: bool,
    /// The number of the current generation; there is none before the first lease and after a
    /// rotation.
    pub current: Option<u32>,
    /// Every generation that is there, oldest first.
    pub generations: Vec<GenerationView>,
    /// Who retains it.
    pub tokens: Vec<TokenView>,
    /// Leases on all its generations.
    pub leases: usize,
    /// When it was opened.
    pub opened: Timestamp,
    /// When it was last asked for anything, or its last lease ended.
    pub active: Timestamp,
    /// When the next token that lingers is released, if nothing happens before.
    pub expires: Option<Timestamp>,
    /// The number of its directory's inode.
    pub inode: u64,
}

impl SessionView {
    /// Where its directory is, from the mountpoint.
    #[must_use]
    pub fn path_below_mount(&self) -> String {
        self.id.to_string()
    }
}

/// A generation of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationView {
    /// Its number within the session: the name of its directory.
    pub number: u32,
    /// What it is known by within the whole namespace.
    pub key: GenerationKey,
    /// Whether it is in the past; it then goes as soon as nobody leases or uses it.
    pub retired: bool,
    /// Leases on it.
    pub leases: usize,
    /// The number of its directory's inode.
    pub inode: u64,
}

/// An owner token. Which one it is is known to whoever it was given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// What it hangs on.
    pub holder: Holder,
    /// Since when.
    pub since: Timestamp,
}

/// What opening a session gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedSession {
    /// The session.
    pub session: SessionView,
    /// The owner token that is the caller's now.
    pub token: TokenId,
    /// Whether the session was there already.
    pub attached: bool,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// Its id: the name of its directory where it has one of its own.
    pub id: LeaseId,
    /// Its session.
    pub session: SessionId,
    /// The label of its session.
    pub name: Option<String>,
    /// The number of its generation within the session.
    pub generation: u32,
    /// What its generation is known by within the whole namespace.
    pub key: GenerationKey,
    /// Whether that generation is still the one that the next lease would be for.
    pub current: bool,
    /// Where the leased directory is, from the mountpoint.
    pub path_below_mount: String,
    /// The number of the leased directory's inode.
    pub inode: u64,
    /// What served it when it was taken.
    pub served: Served,
    /// What is leased.
    pub kind: LeaseKind,
    /// What it hangs on.
    pub binding: Binding,
    /// Who asked for it.
    pub asked_by: Process,
    /// Owner of the directory.
    pub uid: u32,
    /// Group of the directory.
    pub gid: u32,
    /// The policy of its session.
    pub policy: Policy,
    /// Since when.
    pub since: Timestamp,
}

/// To whom a lease would belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lessee {
    /// The session.
    pub session: SessionId,
    /// Owner of its directories.
    pub uid: u32,
    /// Group of its directories.
    pub gid: u32,
    /// What it was granted.
    pub policy: Policy,
}

/// What a generation holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// How a lease fared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The lease.
    pub lease: LeaseId,
    /// Its session.
    pub session: SessionId,
    /// The label of its session.
    pub name: Option<String>,
    /// The number of its generation within the session.
    pub generation: u32,
    /// What was leased.
    pub kind: LeaseKind,
    /// How it ended.
    pub end: LeaseEnd,
    /// Since when it was had.
    pub since: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What its generation held when it ended; `None` where that could not be told.
    pub usage: Option<Usage>,
}

/// How much of everything there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Sessions, sealed ones too.
    pub sessions: usize,
    /// Sessions that are sealed.
    pub sealed: usize,
    /// Generations, retired ones too.
    pub generations: usize,
    /// Generations that are retired.
    pub retired: usize,
    /// Leases.
    pub leases: usize,
    /// Owner tokens.
    pub tokens: usize,
    /// Processes whose end is waited for.
    pub processes: usize,
}
