//! Why the namespace refused, and the code that each refusal has.
//!
//! It must never carry a path: clients read these.

use thiserror::Error;

use super::ground::GroundError;
use crate::registry::{RegistryError, SessionId};

/// Why the namespace refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NamespaceError {
    /// The rules of sessions and leases.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The filesystem beneath.
    #[error(transparent)]
    Ground(#[from] GroundError),
    /// The generations of a session, retired ones that are still used too, hold all the bytes that
    /// it may have.
    #[error("session {session} is full: {held} of its {limit} bytes are held")]
    SessionFull {
        /// Which one.
        session: SessionId,
        /// Its limit.
        limit: u64,
        /// What its generations hold.
        held: u64,
    },
    /// The generations of a session, retired ones that are still used too, hold all the inodes that
    /// it may have.
    #[error("session {session} is full: {held} of its {limit} inodes are held")]
    SessionOutOfInodes {
        /// Which one.
        session: SessionId,
        /// Its limit.
        limit: u64,
        /// What its generations hold.
        held: u64,
    },
    /// All sessions together hold all the bytes that the daemon may give out.
    #[error("the daemon's total is reached: {used} of {limit} bytes are held by all sessions")]
    TotalReached {
        /// The total.
        limit: u64,
        /// What is held of it.
        used: u64,
    },
}

impl NamespaceError {
    /// The stable code that clients, events and metrics know it by.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Registry(error) => error.code(),
            Self::Ground(error) => error.code(),
            Self::SessionFull { .. } | Self::TotalReached { .. } => "store-full",
            Self::SessionOutOfInodes { .. } => "store-out-of-inodes",
        }
    }
}
