//! Decisions that hold only if something can be made first.
//!
//! Each holds the registry until it is committed, so nothing can come between; dropped, it leaves
//! no trace. So a store that can't be made must never leave a record behind.

use std::collections::{BTreeMap, BTreeSet};

use super::generation::Generation;
use super::index::Index;
use super::lease::Lease;
use super::session::Session;
use super::token::Token;
use super::{
    LeaseId, LeaseKind, LeaseView, OpenedSession, Outcome, Policy, SessionId, SessionView,
};
use crate::clock::Timestamp;
use crate::node::GenerationKey;

/// What opening a session comes to.
#[derive(Debug)]
pub enum Opening<'r> {
    /// It was there already.
    Attached(Outcome<OpenedSession>),
    /// Its directory has to be made.
    New(NewSession<'r>),
}

/// A session whose directory is to be made.
#[derive(Debug)]
#[must_use = "it is there only once it is committed"]
pub struct NewSession<'r> {
    pub(super) sessions: &'r mut BTreeMap<SessionId, Session>,
    pub(super) index: &'r mut Index,
    pub(super) changed: &'r mut BTreeSet<SessionId>,
    pub(super) session: Session,
    pub(super) token: Token,
}

impl NewSession<'_> {
    /// Its id.
    #[must_use]
    pub const fn id(&self) -> SessionId {
        self.session.id
    }

    /// To whom its directory belongs: user and group.
    #[must_use]
    pub const fn owner(&self) -> (u32, u32) {
        (self.session.uid, self.session.gid)
    }

    /// What it is granted.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.session.policy
    }

    /// The directory was made, and this is its inode.
    pub fn commit(self, inode: u64) -> Outcome<OpenedSession> {
        let Self { sessions, index, changed, mut session, token } = self;
        let mut effects = Vec::new();
        let given = token.id;
        session.inode = inode;
        index.add_open(&session);
        index.add_token(session.id, &token, &mut effects);
        session.tokens.insert(given, token);
        index.set_expiry(&session);
        let value = OpenedSession { session: session.view(), token: given, attached: false };
        changed.insert(session.id);
        sessions.insert(session.id, session);
        Outcome { value, effects }
    }
}

/// A generation whose store is to be made.
#[derive(Debug)]
#[must_use = "it is there only once it is committed"]
pub struct NewGeneration<'r> {
    pub(super) session: &'r mut Session,
    pub(super) index: &'r mut Index,
    pub(super) changed: &'r mut BTreeSet<SessionId>,
    pub(super) next_key: &'r mut Option<GenerationKey>,
    pub(super) key: GenerationKey,
}

impl NewGeneration<'_> {
    /// The session that it will be of.
    #[must_use]
    pub fn session(&self) -> SessionView {
        self.session.view()
    }

    /// What it is known by.
    #[must_use]
    pub const fn key(&self) -> GenerationKey {
        self.key
    }

    /// Its number within the session.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.session.next_number
    }

    /// The store was made, and this is the inode of the generation's directory.
    pub fn commit(self, inode: u64) {
        let Self { session, index, changed, next_key, key } = self;
        let number = session.next_number;
        session.next_number += 1;
        session.generations.insert(number, Generation { key, number, inode, retired: false });
        *next_key = GenerationKey::new(key.get() + 1);
        index.add_generation(session.id, session.uid, key);
        changed.insert(session.id);
    }
}

/// A lease whose directory is to be made, if it has one of its own.
#[derive(Debug)]
#[must_use = "it is there only once it is committed"]
pub struct NewLease<'r> {
    pub(super) session: &'r mut Session,
    pub(super) index: &'r mut Index,
    pub(super) changed: &'r mut BTreeSet<SessionId>,
    pub(super) generation: Generation,
    pub(super) lease: Lease,
}

impl NewLease<'_> {
    /// Its id.
    #[must_use]
    pub const fn id(&self) -> LeaseId {
        self.lease.id
    }

    /// The generation that is leased.
    #[must_use]
    pub const fn generation(&self) -> GenerationKey {
        self.generation.key
    }

    /// Whether a directory has to be made.
    #[must_use]
    pub const fn kind(&self) -> LeaseKind {
        self.lease.kind
    }

    /// The directory was made, and this is its inode; `None` for a shared lease, which has the
    /// generation's.
    pub fn commit(self, inode: Option<u64>) -> Outcome<LeaseView> {
        let Self { session, index, changed, generation, mut lease } = self;
        let mut effects = Vec::new();
        lease.inode = inode.unwrap_or(generation.inode);
        session.touch(lease.since);
        let value = session.view_of(&lease, &generation);
        index.add_lease(session.id, session.uid, &lease, &mut effects);
        session.leases.insert(lease.id, lease);
        index.set_expiry(session);
        changed.insert(session.id);
        Outcome { value, effects }
    }
}

/// Other limits, which the current generation is to be given first.
#[derive(Debug)]
#[must_use = "it is so only once it is committed"]
pub struct NewPolicy<'r> {
    pub(super) session: &'r mut Session,
    pub(super) index: &'r mut Index,
    pub(super) changed: &'r mut BTreeSet<SessionId>,
    pub(super) policy: Policy,
    pub(super) now: Timestamp,
}

impl NewPolicy<'_> {
    /// The session.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session.id
    }

    /// What it will be granted.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether it is what it is granted already.
    #[must_use]
    pub fn is_the_same(&self) -> bool {
        self.policy == self.session.policy
    }

    /// Its generations have the new limits.
    pub fn commit(self) {
        let Self { session, index, changed, policy, now } = self;
        session.policy = policy;
        session.touch(now);
        index.set_expiry(session);
        changed.insert(session.id);
    }
}
