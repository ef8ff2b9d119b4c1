//! Where the reaper's work comes in, and where it waits for more.
//!
//! It must never be locked while the kernel is asked for anything.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use super::sweep::Job;
use crate::namespace::{Gone, Stuck};
use crate::node::{GenerationKey, Node};
use crate::tempfs::Attendant;

/// How long the kernel is given to answer a pruning with forgets before what is left counts as in
/// use. Nothing is lost if it takes longer: the next forget has it looked at again.
const SETTLE: Duration = Duration::from_millis(20);

/// How long a new connection waits at the most until nothing is believed missing any more.
const DOUBT: Duration = Duration::from_secs(1);

/// How soon a generation in use is looked at again, at the soonest: a program that works in it
/// makes the kernel forget something all the time.
const PACE: Duration = Duration::from_millis(200);

/// What the thread is asked to do.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) drain: Vec<(GenerationKey, Gone, Stuck)>,
    pub(super) sweep: Vec<Job>,
    pub(super) lower: Vec<(Node, OsString)>,
    pub(super) descriptors_short: bool,
    pub(super) forgotten: bool,
    /// Who waits until no connection believes any more what was missing before it joined.
    pub(super) joined: Vec<mpsc::SyncSender<()>>,
    pub(super) changed: BTreeSet<Node>,
    pub(super) stop: bool,
}

#[derive(Default)]
pub(super) struct Desk {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, put: impl FnOnce(&mut Inbox)) {
        put(&mut self.lock());
        self.arrived.notify_one();
    }

    /// Waits for anything, but no longer than `limit` if there is one, and takes all of it.
    pub(super) fn take(&self, limit: Option<Duration>) -> Inbox {
        let nothing = |inbox: &mut Inbox| inbox.is_empty();
        let mut inbox = match limit {
            None => self
                .arrived
                .wait_while(self.lock(), nothing)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                self.arrived
                    .wait_timeout_while(self.lock(), limit, nothing)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        std::mem::take(&mut *inbox)
    }

    /// Lets forgets gather, unless there is something else to do.
    pub(super) fn pause_for_more(&self) -> Inbox {
        let (mut inbox, _) = self
            .arrived
            .wait_timeout_while(self.lock(), PACE, |inbox| {
                inbox.is_empty() || inbox.has_only_forgets()
            })
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *inbox)
    }

    /// Waits a little for a forget.
    pub(super) fn wait_for_forget(&self) {
        let (mut inbox, _) = self
            .arrived
            .wait_timeout_while(self.lock(), SETTLE, |inbox| !inbox.forgotten && !inbox.stop)
            .unwrap_or_else(PoisonError::into_inner);
        inbox.forgotten = false;
    }
}

impl Inbox {
    fn is_empty(&self) -> bool {
        !self.forgotten && self.has_nothing_but_forgets()
    }

    pub(super) fn has_only_forgets(&self) -> bool {
        self.forgotten && self.has_nothing_but_forgets()
    }

    fn has_nothing_but_forgets(&self) -> bool {
        self.drain.is_empty()
            && self.sweep.is_empty()
            && self.lower.is_empty()
            && !self.descriptors_short
            && self.joined.is_empty()
            && self.changed.is_empty()
            && !self.stop
    }
}

impl Attendant for Desk {
    fn descriptors_short(&self) {
        self.put(|inbox| inbox.descriptors_short = true);
    }

    fn forgotten(&self) {
        self.put(|inbox| inbox.forgotten = true);
    }

    fn joined(&self) {
        let (done, told) = mpsc::sync_channel(1);
        self.put(|inbox| inbox.joined.push(done));
        // It ends soon, or with the reaper; a kernel that takes longer is not worth the wait.
        let _ = told.recv_timeout(DOUBT);
    }

    fn changed(&self, node: Node) {
        self.put(|inbox| {
            inbox.changed.insert(node);
        });
    }
}
