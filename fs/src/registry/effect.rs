//! What follows from a decision of the registry.
//!
//! It must never be more than plain values: others carry them out.

use super::{LeaseId, LeaseKind, Process, SessionId};
use crate::node::GenerationKey;

/// What somebody else has to do now. They are to be done in the order in which they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A lease ended; its generation is still there.
    LeaseEnded {
        /// Which one.
        lease: LeaseId,
        /// Whose session it was in.
        uid: u32,
        /// Whether it had a directory of its own.
        kind: LeaseKind,
        /// Its generation.
        generation: GenerationKey,
    },
    /// A retired generation has no lease left: discard it once nothing uses it, then say
    /// [`drained`](super::Registry::drained). Given exactly once for each generation.
    Drain(GenerationKey),
    /// A session is gone, and its generations before it.
    LowerSession(SessionId),
    /// The end of this process matters from now on.
    Watch(Process),
    /// It doesn't any more.
    Unwatch(Process),
}

impl Effect {
    /// Whether it is done to one of these generations.
    pub(crate) fn is_about_any_of(&self, generations: &[GenerationKey]) -> bool {
        match self {
            Self::LeaseEnded { generation: key, .. } | Self::Drain(key) => {
                generations.contains(key)
            }
            Self::LowerSession(_) | Self::Watch(_) | Self::Unwatch(_) => false,
        }
    }
}

/// A decision, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "what follows from a decision has to be done"]
pub struct Outcome<T> {
    /// The decision.
    pub value: T,
    /// What follows.
    pub effects: Vec<Effect>,
}
