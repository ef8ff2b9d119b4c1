//! Where the decisions of the registry meet the filesystem: what the control plane calls.
//!
//! It must never decide by itself who gets what, and never touch a file: the registry decides,
//! the ground does.

mod error;
mod ground;
mod observer;

use std::sync::Arc;

pub use self::error::NamespaceError;
pub use self::ground::{Gone, Ground, GroundError, Owner, Room};
pub use self::observer::{Lineage, Observer};
use crate::clock::{Clock, Timestamp};
use crate::node::GenerationKey;
use crate::registry::{
    Binding, Bounds, ConnectionId, Counts, Draw, Holder, LeaseKind, LeaseView, OpenedSession, Peer,
    PolicyRequest, Process, Receipt, SessionView, TokenId,
};

/// What a namespace is given.
pub struct Surroundings {
    /// The filesystem beneath.
    pub ground: Arc<dyn Ground>,
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
    /// The first key for a generation.
    pub first_key: GenerationKey,
}

/// The kernel's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelDraw;

impl Draw for KernelDraw {
    fn draw(&mut self) -> Option<u64> {
        unimplemented!()
    }
}

/// The sessions of a mount, and everything that clients may do with them.
pub struct Namespace {
    _surroundings: Surroundings,
}

impl Namespace {
    /// A namespace without sessions.
    #[must_use]
    pub fn new(surroundings: Surroundings) -> Arc<Self> {
        Arc::new(Self { _surroundings: surroundings })
    }

    /// Opens a session, or attaches to the open one of that name that the caller's uid has.
    ///
    /// # Errors
    /// Where the name, the policy or a limit forbids it.
    pub fn open_session(
        &self,
        _peer: &Peer,
        _name: Option<&str>,
        _policy: &PolicyRequest,
        _holder: Holder,
    ) -> Result<OpenedSession, NamespaceError> {
        unimplemented!()
    }

    /// Gives one more owner token of an open session, by its name or id.
    ///
    /// # Errors
    /// Where there is no such session, or it is sealed, or has too many.
    pub fn retain_session(
        &self,
        _peer: &Peer,
        _session: &str,
        _holder: Holder,
    ) -> Result<TokenId, NamespaceError> {
        unimplemented!()
    }

    /// Takes an owner token back; the last one seals the session. A token that was released
    /// before is released again without an error.
    ///
    /// # Errors
    /// Where there is no such session or token.
    pub fn release_session(
        &self,
        _peer: &Peer,
        _session: &str,
        _token: &str,
    ) -> Result<(), NamespaceError> {
        unimplemented!()
    }

    /// Retires the current generation; the next lease makes a fresh one.
    ///
    /// # Errors
    /// Where there is no such session, it is sealed, or the caller is inside a lease of it.
    pub fn rotate_session(
        &self,
        _peer: &Peer,
        _session: &str,
    ) -> Result<SessionView, NamespaceError> {
        unimplemented!()
    }

    /// Changes the limits of an open session; what is `None` stays as it is.
    ///
    /// # Errors
    /// Where there is no such session, it is sealed, or it holds more than that already.
    pub fn resize_session(
        &self,
        _peer: &Peer,
        _session: &str,
        _size: Option<u64>,
        _inodes: Option<u64>,
    ) -> Result<SessionView, NamespaceError> {
        unimplemented!()
    }

    /// Seals a session whoever retains it. Its leases go on until they end, unless `force` ends
    /// them here.
    ///
    /// # Errors
    /// Where there is no such session, or the caller is inside a lease of it.
    pub fn close_session(
        &self,
        _peer: &Peer,
        _session: &str,
        _force: bool,
    ) -> Result<(), NamespaceError> {
        unimplemented!()
    }

    /// The sessions that the caller may touch.
    #[must_use]
    pub fn list_sessions(&self, _peer: &Peer) -> Vec<SessionView> {
        unimplemented!()
    }

    /// One session, sealed or not.
    ///
    /// # Errors
    /// Where there is no such session.
    pub fn show_session(
        &self,
        _peer: &Peer,
        _session: &str,
    ) -> Result<SessionView, NamespaceError> {
        unimplemented!()
    }

    /// Whether the next lease would be had.
    ///
    /// # Errors
    /// The error that the lease would be refused with.
    pub fn check(&self, _peer: &Peer, _session: &str) -> Result<SessionView, NamespaceError> {
        unimplemented!()
    }

    /// Whether the caller may end the whole namespace: not from inside a lease of a session that
    /// it is no owner of.
    ///
    /// # Errors
    /// Where it may not.
    pub fn check_outside(&self, _peer: &Peer) -> Result<(), NamespaceError> {
        unimplemented!()
    }

    /// Takes a lease on the current generation, making that if there is none.
    ///
    /// # Errors
    /// Where there is no such session, it is sealed, or a limit or the store forbids it.
    pub fn acquire_lease(
        &self,
        _peer: &Peer,
        _session: &str,
        _kind: LeaseKind,
        _binding: Binding,
    ) -> Result<LeaseView, NamespaceError> {
        unimplemented!()
    }

    /// Hangs a lease on a process, whatever it hung on before.
    ///
    /// # Errors
    /// Where there is no such lease, or it has ended.
    pub fn bind_lease(
        &self,
        _peer: &Peer,
        _lease: &str,
        _process: Process,
    ) -> Result<LeaseView, NamespaceError> {
        unimplemented!()
    }

    /// A lease that has not ended.
    ///
    /// # Errors
    /// Where there is no such lease, or it has ended.
    pub fn check_lease(&self, _peer: &Peer, _lease: &str) -> Result<LeaseView, NamespaceError> {
        unimplemented!()
    }

    /// Ends a lease. For one that has ended already, the receipt is given again for a while.
    ///
    /// # Errors
    /// Where there is no such lease.
    pub fn release_lease(&self, _peer: &Peer, _lease: &str) -> Result<Receipt, NamespaceError> {
        unimplemented!()
    }

    /// The leases that the caller may touch.
    #[must_use]
    pub fn list_leases(&self, _peer: &Peer) -> Vec<LeaseView> {
        unimplemented!()
    }

    /// A process is gone: its tokens are released, its leases end.
    pub fn process_gone(&self, _process: Process) {
        unimplemented!()
    }

    /// A connection is gone: its leases end.
    pub fn connection_gone(&self, _connection: ConnectionId) {
        unimplemented!()
    }

    /// Time has passed: tokens whose session was idle for too long are released. When to call it
    /// again, unless something happens before.
    pub fn tick(&self) -> Option<Timestamp> {
        unimplemented!()
    }

    /// The processes whose end is waited for.
    #[must_use]
    pub fn watched_processes(&self) -> Vec<Process> {
        unimplemented!()
    }

    /// How much of everything there is.
    #[must_use]
    pub fn counts(&self) -> Counts {
        unimplemented!()
    }
}
