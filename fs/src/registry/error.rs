//! Why the registry refused, and the code that each refusal has.
//!
//! It must never carry a path: clients read these.

use thiserror::Error;

use super::{LeaseEnd, LeaseId, Limit, PolicyPart, SessionId};

/// Why the registry refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistryError {
    /// A name that breaks the rules.
    #[error("the name is not one: {fault}")]
    NameInvalid {
        /// Which rule.
        fault: NameFault,
    },
    /// No session of the caller's has this name or id.
    #[error("there is no session {session:?}")]
    SessionUnknown {
        /// What was asked for.
        session: String,
    },
    /// Several users have a session of this name, and the caller may touch them all.
    #[error("several users have a session {session:?}; say its id")]
    SessionAmbiguous {
        /// What was asked for.
        session: String,
    },
    /// No lease, no token, no rotation, ever.
    #[error("session {session} is sealed")]
    SessionSealed {
        /// Which one.
        session: SessionId,
    },
    /// Another user's.
    #[error("session {session} belongs to another user")]
    SessionNotYours {
        /// Which one.
        session: SessionId,
    },
    /// The session is there with another policy than the one that was asked for.
    #[error("session {session} is open with another {}", .part.name())]
    PolicyDiffers {
        /// Which one.
        session: SessionId,
        /// What is different.
        part: PolicyPart,
    },
    /// The session has no such owner token and never had.
    #[error("the session has no such owner token")]
    TokenUnknown,
    /// No lease of the caller's has this id.
    #[error("there is no lease {lease:?}")]
    LeaseUnknown {
        /// What was asked for.
        lease: String,
    },
    /// The lease is over; its receipt can still be asked for.
    #[error("lease {lease} has ended: {}", .end.reason())]
    LeaseEnded {
        /// Which one.
        lease: LeaseId,
        /// How.
        end: LeaseEnd,
    },
    /// A bound was reached.
    #[error("the limit of {} is reached: {value}", .limit.name())]
    LimitReached {
        /// Which one.
        limit: Limit,
        /// What it is.
        value: usize,
    },
    /// There are as many generations as this daemon can hold.
    #[error("all {value} generations are in use")]
    GenerationsExhausted {
        /// How many that are.
        value: usize,
    },
    /// The caller runs inside a lease of the session and is not its owner.
    #[error("not from inside a lease of session {session}")]
    NotFromInside {
        /// Which one.
        session: SessionId,
    },
    /// No ids can be drawn.
    #[error("there are no random numbers to be had")]
    NoRandomness,
}

impl RegistryError {
    /// The stable code that clients, events and metrics know it by.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NameInvalid { .. } => "name-invalid",
            Self::SessionUnknown { .. } | Self::SessionAmbiguous { .. } => "session-unknown",
            Self::SessionSealed { .. } => "session-sealed",
            Self::SessionNotYours { .. } => "session-not-yours",
            Self::PolicyDiffers { .. } => "policy-differs",
            Self::TokenUnknown => "token-unknown",
            Self::LeaseUnknown { .. } | Self::LeaseEnded { .. } => "lease-unknown",
            Self::LimitReached { .. } => "limit-reached",
            Self::GenerationsExhausted { .. } => "generations-exhausted",
            Self::NotFromInside { .. } => "not-from-inside",
            Self::NoRandomness => "not-supported",
        }
    }
}

/// Which rule a name breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameFault {
    /// Nothing in it.
    #[error("it is empty")]
    Empty,
    /// Too much in it.
    #[error("it has {0} bytes; 128 are allowed")]
    TooLong(usize),
    /// A control character.
    #[error("it has a control character")]
    Control,
    /// It would be taken for another session.
    #[error("it is the id of another session")]
    AnId,
}
