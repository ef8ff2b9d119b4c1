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
    /// Retired generations that are still leased or used hold all the bytes that the session has.
    #[error(
        "session {session} has no bytes left for a generation: {held} of {limit} are held by retired ones"
    )]
    SessionFull {
        /// Which one.
        session: SessionId,
        /// Its limit.
        limit: u64,
        /// What its retired generations hold.
        held: u64,
    },
    /// Retired generations that are still leased or used hold all the inodes that the session has.
    #[error(
        "session {session} has no inodes left for a generation: {held} of {limit} are held by retired ones"
    )]
    SessionOutOfInodes {
        /// Which one.
        session: SessionId,
        /// Its limit.
        limit: u64,
        /// What its retired generations hold.
        held: u64,
    },
}

impl NamespaceError {
    /// The stable code that clients, events and metrics know it by.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Registry(error) => error.code(),
            Self::Ground(error) => error.code(),
            Self::SessionFull { .. } => "store-full",
            Self::SessionOutOfInodes { .. } => "store-out-of-inodes",
        }
    }
}
