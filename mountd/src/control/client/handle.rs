//! Sessions and leases as values that give themselves back.
//!
//! They must never hide a fault: what giving back at the end of a value's life can't tell, its own
//! method does.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use super::Client;
use crate::control::wire::{
    AcquireLease, AcquiredLease, BindLease, Check, CloseSession, Hold, LeaseKind, Method,
    OpenSession, Receipt, ReleaseLease, ReleaseSession, RotateSession,
};
use crate::fault::FaultReport;

/// A connection that a session and its leases share: one call at a time.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Client>>);

impl Shared {
    fn call<M: Method>(&self, request: &M) -> Result<M::Reply, FaultReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).call(request)
    }
}

/// A session that this value retains. Dropped, its owner token is released, and the last token of
/// a session seals it for ever; so whoever replaces one opens the new before dropping the old.
#[derive(Debug)]
pub struct Session {
    client: Shared,
    id: String,
    token: String,
    attached: bool,
}

impl Session {
    /// Opens a session, or attaches to the open one of that name.
    ///
    /// # Errors
    /// What the daemon refuses with, or that it doesn't answer.
    pub fn open(mut client: Client, request: &OpenSession) -> Result<Self, FaultReport> {
        let opened = client.call(request)?;
        let client = Shared(Arc::new(Mutex::new(client)));
        Ok(Self { client, id: opened.session.id, token: opened.token, attached: opened.attached })
    }

    /// Its id, by which other clients of the same user can name it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether it was there already.
    #[must_use]
    pub const fn attached(&self) -> bool {
        self.attached
    }

    /// Would the next lease be had?
    ///
    /// # Errors
    /// The fault that the lease would be refused with.
    pub fn check(&self) -> Result<(), FaultReport> {
        self.client.call(&Check { session: self.id.clone() }).map(drop)
    }

    /// Takes a lease. Until it is bound to a process it ends with this connection, and so with this
    /// process.
    ///
    /// # Errors
    /// What the daemon refuses with, or that it doesn't answer.
    pub fn lease(&self, kind: LeaseKind) -> Result<Lease, FaultReport> {
        let session = self.id.clone();
        let (kind, hold) = (Some(kind), Some(Hold::Connection));
        let acquired = self.client.call(&AcquireLease { session, kind, hold, pid: None })?;
        Ok(Lease { client: self.client.clone(), acquired, released: false })
    }

    /// Retires the current generation; leases on it keep it, and the next lease has an empty
    /// directory.
    ///
    /// # Errors
    /// What the daemon refuses with, or that it doesn't answer.
    pub fn rotate(&self) -> Result<(), FaultReport> {
        self.client.call(&RotateSession { session: self.id.clone() }).map(drop)
    }

    /// Seals it, whoever else retains it. Leases go on until they end.
    ///
    /// # Errors
    /// What the daemon refuses with, or that it doesn't answer; then it is only released.
    pub fn close(self) -> Result<(), FaultReport> {
        let (session, force) = (self.id.clone(), None);
        self.client.call(&CloseSession { session, force }).map(drop)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (session, token) = (self.id.clone(), self.token.clone());
        if let Err(error) = self.client.call(&ReleaseSession { session, token }) {
            // The token hangs on this process as well.
            tracing::debug!(%error, "an owner token isn't released yet");
        }
    }
}

/// A lease on the current generation of a session. Dropped, it is given back, and a command that
/// still runs then has no claim on it any more but what it has open.
#[derive(Debug)]
pub struct Lease {
    client: Shared,
    acquired: AcquiredLease,
    released: bool,
}

/// Why a command doesn't run under a lease.
#[derive(Debug, Error)]
pub enum SpawnError {
    /// It can't be started.
    #[error("the command can't be started: {0}")]
    Start(#[from] io::Error),
    /// The lease can't be bound to it. It was ended.
    #[error("the lease can't be bound to the command: {0}")]
    Bind(#[from] FaultReport),
}

impl Lease {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.acquired.lease.id
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(&self.acquired.lease.path)
    }

    /// What is to be set in the environment of the command: `TMPDIR` and its kind, and what makes it
    /// a member of the session.
    #[must_use]
    pub const fn environment(&self) -> &BTreeMap<String, String> {
        &self.acquired.environment
    }

    /// Everything that the daemon answered with.
    #[must_use]
    pub const fn acquired(&self) -> &AcquiredLease {
        &self.acquired
    }

    /// Starts a command with the lease as its `TMPDIR`, and binds the lease to it, so that it lasts
    /// as long as the command though this process may be gone before.
    ///
    /// # Errors
    /// Where it can't be started, or the lease not be bound to it.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, SpawnError> {
        let mut child = command.envs(&self.acquired.environment).spawn()?;
        let (lease, pid) = (self.acquired.lease.id.clone(), Some(child.id()));
        if let Err(report) = self.client.call(&BindLease { lease, pid }) {
            child.kill()?;
            child.wait()?;
            return Err(report.into());
        }
        Ok(child)
    }

    /// Gives it back. The receipt says how it fared, also where it has ended before.
    ///
    /// # Errors
    /// What the daemon refuses with, or that it doesn't answer.
    pub fn release(mut self) -> Result<Receipt, FaultReport> {
        self.released = true;
        self.give_back()
    }

    fn give_back(&self) -> Result<Receipt, FaultReport> {
        let lease = self.acquired.lease.id.clone();
        Ok(self.client.call(&ReleaseLease { lease })?.receipt)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.released
            && let Err(error) = self.give_back()
        {
            tracing::debug!(%error, "a lease isn't released yet");
        }
    }
}
