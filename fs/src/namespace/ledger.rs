//! Where the namespace keeps its sessions for a daemon that starts again.
//!
//! It must never decide what is kept; and what it says is kept, is.

use super::GroundError;
use crate::registry::{SessionId, SessionRecord};

/// A ledger of sessions. Where files don't outlive the daemon there is none.
///
/// Every call is made with the lock of the [`Namespace`](super::Namespace) held, before the client
/// is answered and before anything follows from what is kept.
pub trait Ledger: Send + Sync {
    /// Keeps a session as it is now, in place of what was kept of it.
    ///
    /// # Errors
    /// Where that can't be. What is kept of it then is the old or the new, and it is told again
    /// later what it is.
    fn keep(&self, session: &SessionRecord) -> Result<(), GroundError>;

    /// A session is gone: nothing is kept of it any more. It may be that nothing was.
    ///
    /// # Errors
    /// Where that can't be.
    fn strike(&self, session: SessionId) -> Result<(), GroundError>;
}
