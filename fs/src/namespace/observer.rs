//! What the namespace needs from the daemon around it.
//!
//! It must never be a way to change the namespace: that would be from within a change.

use super::ground::Blockage;
use crate::clock::Timestamp;
use crate::registry::{Process, SessionId};

/// A generation that is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Its session.
    pub session: SessionId,
    /// The owner of that.
    pub uid: u32,
    /// Its number within the session.
    pub number: u32,
}

/// Who is told what the namespace waits for.
///
/// Each call is made with the lock of the [`Namespace`](super::Namespace) held, in the order in
/// which things happen, so none may block or call back into it: put it in a queue.
pub trait Observer: Send + Sync {
    /// [`process_gone`](super::Namespace::process_gone) is to be called when this process ends,
    /// or at once if it has ended already.
    fn watch(&self, process: Process);

    /// Nothing hangs on this process any more. Not called for one that was said to be gone.
    fn unwatch(&self, process: Process);

    /// [`tick`](super::Namespace::tick) is to be called at this moment, and no longer at the one
    /// that was said before.
    fn due(&self, at: Option<Timestamp>);

    /// A session that was sealed is gone, with all that was in it. It may be long after anything
    /// that a client did.
    fn session_gone(&self, session: SessionId);

    /// A generation that is to go doesn't, and why; `None` where it has gone after all.
    fn discard_blocked(&self, generation: Leaving, why: Option<Blockage>);
}

/// Who descends from whom.
pub trait Lineage: Send + Sync {
    /// The process itself, its parent, and so on, as far as they can be seen.
    fn of(&self, process: Process) -> Vec<Process>;
}
