//! The way from the ground's reaper back to the namespace, which is made after the ground.
//!
//! It must never keep the namespace alive.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use super::Namespace;
use crate::node::GenerationKey;

/// Where the ground's reaper says what is gone; to be handed to the ground and to the namespace.
#[derive(Clone, Default)]
pub struct Reports(Arc<OnceLock<Weak<Namespace>>>);

impl Reports {
    /// A generation that was to be drained was discarded. Nothing of the caller's may be locked.
    pub fn drained(&self, key: GenerationKey) {
        if let Some(namespace) = self.0.get().and_then(Weak::upgrade) {
            namespace.drained(key);
        }
    }

    /// Connects the way. Only the first namespace gets it: no ground belongs to two.
    pub(super) fn connect(&self, namespace: &Arc<Namespace>) {
        if self.0.set(Arc::downgrade(namespace)).is_err() {
            tracing::warn!("the reports of one ground were given to two namespaces");
        }
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reports").finish_non_exhaustive()
    }
}
