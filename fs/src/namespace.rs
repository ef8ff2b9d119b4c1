//! Where the decisions of the registry meet the filesystem: what the control plane calls.
//!
//! It must never decide by itself who gets what, and never touch a file: the registry decides,
//! the ground does.

mod draw;
mod error;
mod ground;
mod keep;
mod leases;
mod ledger;
mod observer;
mod restore;
mod room;
mod sessions;
mod share;
mod sweep;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use self::draw::KernelDraw;
pub use self::error::NamespaceError;
pub use self::ground::{
    Blockage, Found, Gone, Ground, GroundError, Owner, Remains, Room, Stuck, Unclaimed,
};
pub use self::ledger::Ledger;
pub use self::observer::{Leaving, Lineage, Observer};
pub use self::restore::RestoreError;
use self::room::Rooms;
pub use self::room::{Look, Total};
use self::sweep::Left;
pub use self::sweep::{Leftover, What};
use crate::clock::{Clock, Timestamp};
use crate::node::GenerationKey;
use crate::registry::{
    Bounds, ConnectionId, Counts, Draw, Effect, LeaseKind, Outcome, Peer, Process, Registry,
    Served, SessionId,
};

/// What a namespace is given.
pub struct Surroundings {
    /// The filesystem beneath.
    pub ground: Arc<dyn Ground>,
    /// Where sessions are kept for a daemon that starts again; `None` where none are.
    pub ledger: Option<Arc<dyn Ledger>>,
    /// Who watches processes and the time.
    pub observer: Arc<dyn Observer>,
    /// Who knows descent.
    pub lineage: Arc<dyn Lineage>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers; [`KernelDraw`] where there is no reason for others.
    pub draw: Box<dyn Draw + Send>,
    /// How much of everything there may be.
    pub bounds: Bounds,
    /// Bytes that all generations together may hold, where there is a limit.
    pub total: Option<u64>,
    /// The first key for a generation.
    pub first_key: GenerationKey,
}

/// The sessions of a mount, and everything that clients may do with them.
///
/// Lock order: `state` first, then whatever the ground, the ledger or the observer locks within one call. It
/// is held from a decision until everything that follows from it is done, so that the registry
/// and the ground never disagree for anyone who looks. So none of them may
/// call back from within a call; the ground's reaper, with nothing of the ground's locked, may say
/// at any other time that a generation is gone. Whatever serves the mount must never call
/// anything here: the ground may have to wait for it.
pub struct Namespace {
    /// For those who have something to say later; it must not keep the namespace alive.
    this: Weak<Self>,
    ground: Arc<dyn Ground>,
    ledger: Option<Arc<dyn Ledger>>,
    observer: Arc<dyn Observer>,
    lineage: Arc<dyn Lineage>,
    clock: Arc<dyn Clock>,
    /// Generations with a smaller key are an earlier daemon's.
    first_key: GenerationKey,
    state: Mutex<State>,
}

struct State {
    registry: Registry,
    draw: Box<dyn Draw + Send>,
    rooms: Rooms,
    left: Left,
    /// What the observer was told last.
    due: Option<Timestamp>,
    /// Sessions that are kept otherwise than they are, since that failed.
    unkept: BTreeSet<SessionId>,
}

impl Namespace {
    /// A namespace without sessions.
    #[must_use]
    pub fn new(surroundings: Surroundings) -> Arc<Self> {
        let registry = Registry::new(surroundings.bounds, surroundings.first_key);
        Self::of(surroundings, registry)
    }

    fn of(surroundings: Surroundings, registry: Registry) -> Arc<Self> {
        let Surroundings {
            ground,
            ledger,
            observer,
            lineage,
            clock,
            draw,
            bounds: _,
            total,
            first_key,
        } = surroundings;
        let (rooms, left, unkept) = (Rooms::new(total), Left::default(), BTreeSet::new());
        let state = Mutex::new(State { registry, draw, rooms, left, due: None, unkept });
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            ground,
            ledger,
            observer,
            lineage,
            clock,
            first_key,
            state,
        })
    }

    /// Whether the caller may end the whole namespace: not from inside a lease of a session that
    /// it is no owner of.
    ///
    /// # Errors
    /// Where it may not.
    pub fn check_outside(&self, peer: &Peer) -> Result<(), NamespaceError> {
        let line = self.lineage.of(peer.process);
        Ok(self.lock().registry.check_outside(peer, &line, None)?)
    }

    /// A process is gone: its tokens are released, its leases end.
    pub fn process_gone(&self, process: Process) {
        let mut state = self.lock();
        let outcome = state.registry.process_gone(process, self.clock.now());
        self.carry_out(&mut state, outcome);
    }

    /// A connection is gone: its leases end.
    pub fn connection_gone(&self, connection: ConnectionId) {
        let mut state = self.lock();
        let outcome = state.registry.connection_gone(connection, self.clock.now());
        self.carry_out(&mut state, outcome);
    }

    /// Time has passed: tokens whose session was idle for too long are released. When to call it
    /// again, unless the observer is told otherwise before.
    pub fn tick(&self) -> Option<Timestamp> {
        let mut state = self.lock();
        let outcome = state.registry.tick(self.clock.now());
        self.carry_out(&mut state, outcome);
        state.due
    }

    /// The processes whose end is waited for.
    #[must_use]
    pub fn watched_processes(&self) -> Vec<Process> {
        self.lock().registry.watched()
    }

    /// Another connection to the kernel serves the leases that are taken from now on.
    pub fn serve(&self, served: Served) {
        self.lock().registry.serve(served);
    }

    /// How much of everything there is.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().registry.counts()
    }

    /// What the ground calls when it has drained a generation.
    fn when_gone(&self, key: GenerationKey) -> Gone {
        let this = Weak::clone(&self.this);
        Box::new(move || {
            if let Some(namespace) = this.upgrade() {
                namespace.drained(key);
            }
        })
    }

    fn drained(&self, key: GenerationKey) {
        let mut state = self.lock();
        let session = state.registry.session_of_generation(key);
        let leaving = state.leaving(key);
        let outcome = state.registry.drained(key);
        if !self.carry_out(&mut state, outcome) {
            tracing::warn!(key = key.get(), "a generation is gone that was not to be drained");
            return;
        }
        state.rooms.forget(key);
        if state.left.forget(key)
            && let Some(leaving) = leaving
        {
            self.observer.discard_blocked(leaving, None);
        }
        // What it held is there for the others of its session.
        if let Some(session) = session.and_then(|id| state.registry.record(id)) {
            self.share_again(&mut state, &session.view());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what follows from a decision.
    fn carry_out<T>(&self, state: &mut State, outcome: Outcome<T>) -> T {
        self.keep_changes(state);
        for effect in outcome.effects {
            match effect {
                Effect::LeaseEnded { lease, uid, kind, generation } => {
                    match self.ground.used(generation) {
                        Ok(usage) => state.registry.note_usage(uid, lease, usage),
                        Err(error) => {
                            tracing::warn!(%lease, %error, "a receipt has to go without figures");
                        }
                    }
                    match kind {
                        LeaseKind::Shared => {}
                        LeaseKind::Private => {
                            let inode = self.ground.end_lease(generation, &lease);
                            state.left.lease(generation, lease, inode, self.clock.now());
                        }
                    }
                }
                Effect::Drain(key) => {
                    state.left.drains(key, self.clock.now());
                    self.ground.drain(key, self.when_gone(key), self.when_stuck(key));
                }
                Effect::LowerSession(session) => {
                    self.ground.lower_session(&session);
                    self.observer.session_gone(session);
                }
                Effect::Watch(process) => self.observer.watch(process),
                Effect::Unwatch(process) => self.observer.unwatch(process),
            }
        }
        self.tell_when_due(state);
        outcome.value
    }

    fn tell_when_due(&self, state: &mut State) {
        let due = state.registry.next_tick();
        if due != state.due {
            state.due = due;
            self.observer.due(due);
        }
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namespace").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
