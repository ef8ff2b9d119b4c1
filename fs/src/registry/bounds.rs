//! How much of everything there may be.
//!
//! It must never bound bytes or inodes: stores do that.

use serde::{Deserialize, Serialize};

/// How much of everything there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Open sessions of one uid.
    pub sessions_per_uid: usize,
    /// Leases of one session.
    pub leases_per_session: usize,
    /// Leases of one uid other than root, of all its sessions together.
    pub leases_per_uid: usize,
    /// Owner tokens of one session.
    pub tokens_per_session: usize,
    /// Generations alive, of all sessions together: each holds descriptors of the daemon.
    pub generations: usize,
    /// Generations alive of one uid other than root, so that others get some as well.
    pub generations_per_uid: usize,
    /// Ended leases, and released tokens, of one uid that are remembered.
    pub remembered_per_uid: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            sessions_per_uid: 1024,
            leases_per_session: 4096,
            leases_per_uid: 16 * 1024,
            tokens_per_session: 256,
            generations: 4096,
            generations_per_uid: 4096,
            remembered_per_uid: 1024,
        }
    }
}

/// A bound that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Open sessions of one uid.
    SessionsPerUid,
    /// Leases of one session.
    LeasesPerSession,
    /// Leases of one uid.
    LeasesPerUid,
    /// Owner tokens of one session.
    TokensPerSession,
    /// Generations of one uid.
    GenerationsPerUid,
}

impl Limit {
    /// What clients and operators call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SessionsPerUid => "sessions per uid",
            Self::LeasesPerSession => "leases per session",
            Self::LeasesPerUid => "leases per uid",
            Self::TokensPerSession => "owner tokens per session",
            Self::GenerationsPerUid => "generations per uid",
        }
    }
}
