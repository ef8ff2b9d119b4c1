//! Sessions, generations, leases and owner tokens: who may have what, and for how long.
//!
//! It is a state machine and nothing else. It must never do anything: no system call, no thread,
//! no lock, no clock; the time is handed in, and what follows from a decision is handed back.

mod bounds;
mod effect;
mod error;
mod generation;
mod id;
mod index;
mod keep;
mod lease;
mod leases;
mod memory;
mod passing;
mod peer;
mod pending;
mod policy;
mod session;
mod sessions;
mod token;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::bounds::{Bounds, Limit};
pub use self::effect::{Effect, Outcome};
pub use self::error::{NameFault, RegistryError};
pub(crate) use self::generation::Generation;
pub use self::id::{Draw, LeaseId, NotAnId, SessionId, TokenId};
use self::index::{Anchor, Hanging, Index};
pub use self::keep::{Contradiction, SessionRecord};
pub(crate) use self::lease::Lease;
pub use self::lease::{Binding, LeaseEnd, LeaseKind, Served};
use self::memory::Memory;
pub use self::peer::{ConnectionId, Peer, Process};
pub use self::pending::{NewGeneration, NewLease, NewPolicy, NewSession, Opening};
pub use self::policy::{Guard, Mode, Policy, PolicyPart, PolicyRequest};
pub(crate) use self::session::Session;
pub use self::token::Holder;
pub(crate) use self::token::Token;
pub use self::view::{
    Counts, GenerationView, LeaseView, Lessee, OpenedSession, Receipt, SessionView, TokenView,
    Usage,
};
use crate::clock::Timestamp;
use crate::node::GenerationKey;

/// How often an id is drawn anew because it was taken. Once is already a rare event.
const DRAWS: usize = 16;

/// All sessions, and everything that hangs on them.
///
/// Between two calls these hold, whatever the calls were:
/// - a session is sealed if and only if it has no owner token, and it stays sealed;
/// - a sealed session has at least one generation, all of them retired;
/// - a lease is on a generation of its session, and only a current one gets new leases;
/// - a generation is retired and without a lease if and only if [`Effect::Drain`] was given for
///   it, once, and [`drained`](Self::drained) was not said yet;
/// - no two sessions of one uid that are open have one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    bounds: Bounds,
    /// `None` when there are no keys left.
    next_key: Option<GenerationKey>,
    sessions: BTreeMap<SessionId, Session>,
    memory: Memory,
    /// What serves the leases that are taken from now on.
    served: Served,
    /// Always what [`Index::of`] makes of the sessions.
    index: Index,
    /// Sessions that are not, or no longer, as they were when this was last asked for.
    changed: BTreeSet<SessionId>,
}

/// A registry as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    next_key: Option<GenerationKey>,
    sessions: Vec<Session>,
    memory: Memory,
}

impl Registry {
    /// A registry without sessions, whose first generation gets this key.
    #[must_use]
    pub fn new(bounds: Bounds, first_key: GenerationKey) -> Self {
        Self {
            bounds,
            next_key: Some(first_key),
            sessions: BTreeMap::new(),
            memory: Memory::default(),
            served: Served::default(),
            index: Index::default(),
            changed: BTreeSet::new(),
        }
    }

    /// Everything that has to be kept for a registry that goes on from here.
    #[must_use]
    pub fn records(&self) -> Records {
        Records {
            next_key: self.next_key,
            sessions: self.sessions.values().cloned().collect(),
            memory: self.memory.clone(),
        }
    }

    /// A registry that goes on where another one stopped. The processes of
    /// [`watched`](Self::watched) are to be watched, and what [`draining`](Self::draining) names
    /// is to be drained.
    #[must_use]
    pub fn from_records(bounds: Bounds, records: Records) -> Self {
        Self {
            bounds,
            next_key: records.next_key,
            index: Index::of(records.sessions.iter()),
            sessions: records.sessions.into_iter().map(|session| (session.id, session)).collect(),
            memory: records.memory,
            served: Served::default(),
            changed: BTreeSet::new(),
        }
    }

    /// Another connection to the kernel serves the leases that are taken from now on.
    pub const fn serve(&mut self, served: Served) {
        self.served = served;
    }

    /// The sessions that the peer may touch.
    #[must_use]
    pub fn sessions(&self, peer: &Peer) -> Vec<SessionView> {
        self.touchable(peer).map(Session::view).collect()
    }

    /// The first sessions behind an id that the peer may touch, in the order of their ids. What it
    /// costs to tell a piece of a long list depends on the piece.
    #[must_use]
    pub fn sessions_behind(
        &self,
        peer: &Peer,
        after: Option<&str>,
        at_most: usize,
    ) -> Vec<SessionView> {
        let behind = |session: &&Session| after.is_none_or(|after| session.id.as_str() > after);
        self.touchable(peer).filter(behind).take(at_most).map(Session::view).collect()
    }

    /// The session of this name or id.
    ///
    /// # Errors
    /// Where the peer has none.
    pub fn session(&self, peer: &Peer, session: &str) -> Result<SessionView, RegistryError> {
        Ok(self.resolve(peer, session)?.view())
    }

    /// The leases that the peer may touch.
    #[must_use]
    pub fn leases(&self, peer: &Peer) -> Vec<LeaseView> {
        self.touchable(peer)
            .flat_map(|session| session.leases.keys().filter_map(|id| session.lease_view(*id)))
            .collect()
    }

    /// The first leases behind an id that the peer may touch, in the order of their ids.
    #[must_use]
    pub fn leases_behind(
        &self,
        peer: &Peer,
        after: Option<&str>,
        at_most: usize,
    ) -> Vec<LeaseView> {
        self.index
            .all_leases()
            .filter(|(id, ..)| after.is_none_or(|after| id.as_str() > after))
            .filter(|(.., uid)| peer.may_touch(*uid))
            .take(at_most)
            .filter_map(|(id, session, _)| self.sessions.get(&session)?.lease_view(id))
            .collect()
    }

    /// The lease of this id.
    ///
    /// # Errors
    /// Where the peer has none, or it has ended.
    pub fn lease(&self, peer: &Peer, lease: &str) -> Result<LeaseView, RegistryError> {
        let (session, id) = self.resolve_lease(peer, lease)?;
        session
            .lease_view(id)
            .ok_or_else(|| RegistryError::LeaseUnknown { lease: lease.to_owned() })
    }

    /// The sessions that have a generation.
    #[must_use]
    pub fn sessions_in_use(&self) -> Vec<SessionView> {
        let in_use = |session: &&Session| !session.generations.is_empty();
        self.sessions.values().filter(in_use).map(Session::view).collect()
    }

    /// Every generation that is there.
    pub fn generations(&self) -> impl Iterator<Item = GenerationKey> {
        self.index.generation_keys()
    }

    /// The session that has a generation.
    #[must_use]
    pub fn session_of_generation(&self, key: GenerationKey) -> Option<SessionId> {
        self.index.session_of_generation(key)
    }

    /// The processes whose end matters.
    #[must_use]
    pub fn watched(&self) -> Vec<Process> {
        self.index.processes().collect()
    }

    /// The generations that [`Effect::Drain`] was given for and that are not gone yet.
    #[must_use]
    pub fn draining(&self) -> Vec<GenerationKey> {
        self.sessions
            .values()
            .flat_map(|session| {
                session
                    .retired()
                    .filter(|generation| session.leases_on(generation.number) == 0)
                    .map(|generation| generation.key)
            })
            .collect()
    }

    /// When [`tick`](Self::tick) has something to do, if nothing happens before.
    #[must_use]
    pub fn next_tick(&self) -> Option<Timestamp> {
        self.index.next_expiry().map(|(at, _)| at)
    }

    /// How much of everything there is.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (index, sessions) = (&self.index, self.sessions.len());
        Counts {
            sessions,
            sealed: sessions - index.open_sessions(),
            generations: index.generations(),
            retired: index.retired_generations(),
            leases: index.leases(),
            tokens: index.tokens(),
            processes: index.process_count(),
        }
    }

    /// Refuses a process that runs inside a lease of a session: of this session, or of any where
    /// none is said. `line` is the peer's process and what it descends from, nearest first. Inside
    /// is whoever has no owner between itself and the leased process, that one counted: what an
    /// owner starts acts for the owner.
    ///
    /// # Errors
    /// Where the peer is inside.
    pub fn check_outside(
        &self,
        peer: &Peer,
        line: &[Process],
        session: Option<SessionId>,
    ) -> Result<(), RegistryError> {
        let line: Vec<_> = std::iter::once(peer.process).chain(line.iter().copied()).collect();
        for (nth, process) in line.iter().enumerate() {
            for hanging in self.index.hanging_on(Anchor::Process(*process)) {
                let lease = match hanging {
                    Hanging::Token(..) => continue,
                    Hanging::Lease(lease) => lease,
                };
                let Some(inside) = self.leased_in(lease) else { continue };
                let concerned = session.is_none_or(|id| id == inside.id);
                if concerned && !line[..=nth].iter().any(|process| inside.is_held_by(*process)) {
                    return Err(RegistryError::NotFromInside { session: inside.id });
                }
            }
        }
        Ok(())
    }

    /// The session of a lease that is bound to a process; one that was only asked for by the
    /// process doesn't put it inside.
    fn leased_in(&self, lease: LeaseId) -> Option<&Session> {
        let session = self.sessions.get(&self.index.session_of_lease(lease)?)?;
        match session.leases.get(&lease)?.binding {
            Binding::Process(_) => Some(session),
            Binding::Connection(_) | Binding::Unbound => None,
        }
    }

    fn touchable(&self, peer: &Peer) -> impl Iterator<Item = &Session> {
        self.sessions.values().filter(|session| peer.may_touch(session.uid))
    }

    /// The session that a peer means. An id is never mistaken for somebody else's name; a peer's
    /// own name is never mistaken for somebody else's id.
    fn resolve(&self, peer: &Peer, text: &str) -> Result<&Session, RegistryError> {
        let by_id = text.parse().ok().and_then(|id: SessionId| self.sessions.get(&id));
        if let Some(session) = by_id.filter(|session| peer.may_touch(session.uid)) {
            return Ok(session);
        }
        let by_name = match self.index.named(peer.uid, text) {
            Some(id) => Some(id),
            None => self.named_by_others(peer, text)?,
        };
        if let Some(session) = by_name.and_then(|id| self.sessions.get(&id)) {
            return Ok(session);
        }
        Err(match by_id {
            Some(session) => RegistryError::SessionNotYours { session: session.id },
            None => RegistryError::SessionUnknown { session: text.to_owned() },
        })
    }

    /// The one session of this name among all those that the peer may touch.
    fn named_by_others(&self, peer: &Peer, name: &str) -> Result<Option<SessionId>, RegistryError> {
        let mut named = self
            .index
            .named_by_anyone(name)
            .filter(|id| self.sessions.get(id).is_some_and(|session| peer.may_touch(session.uid)));
        let first = named.next();
        if named.next().is_some() {
            return Err(RegistryError::SessionAmbiguous { session: name.to_owned() });
        }
        Ok(first)
    }

    /// The lease that a peer means, and its session.
    fn resolve_lease(&self, peer: &Peer, text: &str) -> Result<(&Session, LeaseId), RegistryError> {
        let unknown = || RegistryError::LeaseUnknown { lease: text.to_owned() };
        let id: LeaseId = text.parse().map_err(|_| unknown())?;
        let session =
            self.index.session_of_lease(id).and_then(|session| self.sessions.get(&session));
        if let Some(session) = session.filter(|session| peer.may_touch(session.uid)) {
            return Ok((session, id));
        }
        Err(match self.memory.receipt(peer, id) {
            Some(receipt) => RegistryError::LeaseEnded { lease: id, end: receipt.end },
            None => unknown(),
        })
    }
}

/// Draws an id that isn't taken.
fn draw_id<Id>(
    draw: &mut dyn Draw,
    id: impl Fn(u64) -> Id,
    taken: impl Fn(&Id) -> bool,
) -> Result<Id, RegistryError> {
    for _ in 0..DRAWS {
        let drawn = id(draw.draw().ok_or(RegistryError::NoRandomness)?);
        if !taken(&drawn) {
            return Ok(drawn);
        }
    }
    Err(RegistryError::NoRandomness)
}

#[cfg(test)]
mod tests;
