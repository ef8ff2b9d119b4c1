//! Leases: one command's claim on one generation.
//!
//! It must never know what lies in the directory that is leased.

use serde::{Deserialize, Serialize};

use super::{ConnectionId, LeaseId, Process};
use crate::clock::Timestamp;

/// What is leased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseKind {
    /// The generation's own directory, together with others.
    #[default]
    Shared,
    /// A directory of the lease's own in the generation.
    Private,
}

/// The connection to the kernel by which a lease was served when it was taken. Handles of
/// directories, and working directories, don't outlive it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Served {
    /// Which of the daemon's connections it is; the first is 1.
    pub epoch: u64,
    /// The device number of its mount, as `st_dev`.
    pub device: u64,
}

/// What a lease hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Binding {
    /// It ends with the process.
    Process(Process),
    /// It ends with the connection that it was asked for on.
    Connection(ConnectionId),
    /// It waits for a process to be bound to; until then, only its release ends it, or the end of
    /// the process that asked for it once the session is sealed.
    Unbound,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseEnd {
    /// It was given back.
    Released,
    /// Its process, or the one that asked for it, is gone.
    ProcessGone,
    /// Its connection is gone.
    ConnectionGone,
    /// Its session was closed by force.
    Closed,
    /// Its directory wasn't there any more when the daemon started again.
    DirectoryGone,
}

impl LeaseEnd {
    /// How to say it.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Released => "it was released",
            Self::ProcessGone => "its process is gone",
            Self::ConnectionGone => "its connection is gone",
            Self::Closed => "its session was closed",
            Self::DirectoryGone => "its directory is gone",
        }
    }
}

/// A lease, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    /// The generation, by its number within the session.
    pub(crate) generation: u32,
    pub(crate) kind: LeaseKind,
    pub(crate) binding: Binding,
    /// Who asked for it.
    pub(crate) asked_by: Process,
    /// Whether that process is gone; known only while the lease is unbound.
    pub(crate) asker_gone: bool,
    pub(crate) since: Timestamp,
    /// The directory that is leased.
    pub(crate) inode: u64,
    /// What served it when it was taken.
    pub(crate) served: Served,
}
