//! Ways to find records that don't lead through the session.
//!
//! It must never hold anything that can't be found by looking through all sessions.

use std::collections::{BTreeMap, BTreeSet};

use super::effect::Effect;
use super::lease::Lease;
use super::session::Session;
use super::token::Token;
use super::{Binding, ConnectionId, Holder, LeaseId, Process, SessionId, TokenId};
use crate::clock::Timestamp;
use crate::node::GenerationKey;

/// What the end of something outside ends here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Anchor {
    Process(Process),
    Connection(ConnectionId),
}

/// What hangs on an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hanging {
    /// A lease that is bound to it, or an unbound one that it asked for.
    Lease(LeaseId),
    Token(SessionId, TokenId),
}

/// Where something belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Home {
    session: SessionId,
    uid: u32,
}

/// How much one uid has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Open sessions.
    open: usize,
    leases: usize,
    generations: usize,
}

/// Ways to find records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Open sessions by uid and name.
    names: BTreeMap<u32, BTreeMap<String, SessionId>>,
    /// How much a uid has; nothing is there for one that has nothing.
    held: BTreeMap<u32, Held>,
    leases: BTreeMap<LeaseId, Home>,
    generations: BTreeMap<GenerationKey, Home>,
    /// Those of the generations that are retired.
    retired: BTreeSet<GenerationKey>,
    /// How many owner tokens there are.
    tokens: usize,
    anchors: BTreeMap<Anchor, BTreeSet<Hanging>>,
    /// How many of the anchors are processes.
    processes: usize,
    expiries: BTreeSet<(Timestamp, SessionId)>,
    expiry_of: BTreeMap<SessionId, Timestamp>,
}

impl Index {
    /// The index of sessions that were recorded earlier.
    pub(crate) fn of<'s>(sessions: impl Iterator<Item = &'s Session>) -> Self {
        let mut index = Self::default();
        sessions.for_each(|session| index.add(session));
        index
    }

    /// Adds a session that was recorded earlier. What is to be watched is asked for after this.
    pub(crate) fn add(&mut self, session: &Session) {
        let mut effects = Vec::new();
        if !session.sealed {
            self.add_open(session);
        }
        for token in session.tokens.values() {
            self.add_token(session.id, token, &mut effects);
        }
        for generation in session.generations.values() {
            self.add_generation(session.id, session.uid, generation.key);
            if generation.retired {
                self.retire(generation.key);
            }
        }
        for lease in session.leases.values() {
            self.add_lease(session.id, session.uid, lease, &mut effects);
        }
        self.set_expiry(session);
    }

    /// Undoes [`add`](Self::add).
    pub(crate) fn remove(&mut self, session: &Session) {
        let mut effects = Vec::new();
        if !session.sealed {
            self.remove_open(session);
        }
        for token in session.tokens.values() {
            self.remove_token(session.id, token, &mut effects);
        }
        for generation in session.generations.values() {
            self.remove_generation(generation.key);
        }
        for lease in session.leases.values() {
            self.remove_lease(lease, &mut effects);
        }
        self.clear_expiry(session.id);
    }

    pub(crate) fn add_open(&mut self, session: &Session) {
        self.held.entry(session.uid).or_default().open += 1;
        if let Some(name) = &session.name {
            self.names.entry(session.uid).or_default().insert(name.clone(), session.id);
        }
    }

    pub(crate) fn remove_open(&mut self, session: &Session) {
        self.hold_less(session.uid, |held| held.open -= 1);
        if let (Some(name), Some(names)) = (&session.name, self.names.get_mut(&session.uid)) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(&session.uid);
            }
        }
    }

    fn hold_less(&mut self, uid: u32, less: impl FnOnce(&mut Held)) {
        if let Some(held) = self.held.get_mut(&uid) {
            less(held);
            if *held == Held::default() {
                self.held.remove(&uid);
            }
        }
    }

    fn held(&self, uid: u32) -> Held {
        self.held.get(&uid).copied().unwrap_or_default()
    }

    pub(crate) fn open_sessions_of(&self, uid: u32) -> usize {
        self.held(uid).open
    }

    pub(crate) fn leases_of(&self, uid: u32) -> usize {
        self.held(uid).leases
    }

    pub(crate) fn generations_of(&self, uid: u32) -> usize {
        self.held(uid).generations
    }

    pub(crate) fn open_sessions(&self) -> usize {
        self.held.values().map(|held| held.open).sum()
    }

    pub(crate) fn named(&self, uid: u32, name: &str) -> Option<SessionId> {
        self.names.get(&uid)?.get(name).copied()
    }

    pub(crate) fn named_by_anyone(&self, name: &str) -> impl Iterator<Item = SessionId> {
        self.names.values().filter_map(move |names| names.get(name).copied())
    }

    pub(crate) fn add_generation(&mut self, session: SessionId, uid: u32, key: GenerationKey) {
        self.generations.insert(key, Home { session, uid });
        self.held.entry(uid).or_default().generations += 1;
    }

    pub(crate) fn retire(&mut self, key: GenerationKey) {
        self.retired.insert(key);
    }

    pub(crate) fn remove_generation(&mut self, key: GenerationKey) {
        self.retired.remove(&key);
        if let Some(home) = self.generations.remove(&key) {
            self.hold_less(home.uid, |held| held.generations -= 1);
        }
    }

    pub(crate) fn session_of_generation(&self, key: GenerationKey) -> Option<SessionId> {
        self.generations.get(&key).map(|home| home.session)
    }

    pub(crate) fn generation_keys(&self) -> impl Iterator<Item = GenerationKey> {
        self.generations.keys().copied()
    }

    pub(crate) fn generations(&self) -> usize {
        self.generations.len()
    }

    pub(crate) fn retired_generations(&self) -> usize {
        self.retired.len()
    }

    pub(crate) fn add_lease(
        &mut self,
        session: SessionId,
        uid: u32,
        lease: &Lease,
        effects: &mut Vec<Effect>,
    ) {
        self.leases.insert(lease.id, Home { session, uid });
        self.held.entry(uid).or_default().leases += 1;
        self.hang_lease(lease, effects);
    }

    pub(crate) fn remove_lease(&mut self, lease: &Lease, effects: &mut Vec<Effect>) {
        if let Some(home) = self.leases.remove(&lease.id) {
            self.hold_less(home.uid, |held| held.leases -= 1);
        }
        self.unhang_lease(lease, effects);
    }

    pub(crate) fn session_of_lease(&self, lease: LeaseId) -> Option<SessionId> {
        self.leases.get(&lease).map(|home| home.session)
    }

    /// All leases in the order of their ids, each with its session and whose it is.
    pub(crate) fn all_leases(&self) -> impl Iterator<Item = (LeaseId, SessionId, u32)> {
        self.leases.iter().map(|(id, home)| (*id, home.session, home.uid))
    }

    pub(crate) fn leases(&self) -> usize {
        self.leases.len()
    }

    pub(crate) const fn tokens(&self) -> usize {
        self.tokens
    }

    /// A lease hangs on something else now.
    pub(crate) fn move_lease(&mut self, before: &Lease, after: &Lease, effects: &mut Vec<Effect>) {
        if anchor_of_lease(before) != anchor_of_lease(after) {
            self.unhang_lease(before, effects);
            self.hang_lease(after, effects);
        }
    }

    fn hang_lease(&mut self, lease: &Lease, effects: &mut Vec<Effect>) {
        if let Some(anchor) = anchor_of_lease(lease) {
            self.hang(anchor, Hanging::Lease(lease.id), effects);
        }
    }

    fn unhang_lease(&mut self, lease: &Lease, effects: &mut Vec<Effect>) {
        if let Some(anchor) = anchor_of_lease(lease) {
            self.unhang(anchor, Hanging::Lease(lease.id), effects);
        }
    }

    pub(crate) fn add_token(
        &mut self,
        session: SessionId,
        token: &Token,
        effects: &mut Vec<Effect>,
    ) {
        self.tokens += 1;
        match token.holder {
            Holder::Process(process) => {
                let hanging = Hanging::Token(session, token.id);
                self.hang(Anchor::Process(process), hanging, effects);
            }
            Holder::Linger { .. } => {}
        }
    }

    pub(crate) fn remove_token(
        &mut self,
        session: SessionId,
        token: &Token,
        effects: &mut Vec<Effect>,
    ) {
        self.tokens -= 1;
        match token.holder {
            Holder::Process(process) => {
                let hanging = Hanging::Token(session, token.id);
                self.unhang(Anchor::Process(process), hanging, effects);
            }
            Holder::Linger { .. } => {}
        }
    }

    /// Takes everything off an anchor that is gone, leases first.
    pub(crate) fn cut(&mut self, anchor: Anchor) -> BTreeSet<Hanging> {
        let hanging = self.anchors.remove(&anchor);
        if let (Some(_), Anchor::Process(_)) = (&hanging, anchor) {
            self.processes -= 1;
        }
        hanging.unwrap_or_default()
    }

    pub(crate) fn hanging_on(&self, anchor: Anchor) -> impl Iterator<Item = Hanging> {
        self.anchors.get(&anchor).into_iter().flatten().copied()
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = Process> {
        self.anchors.keys().filter_map(|anchor| match anchor {
            Anchor::Process(process) => Some(*process),
            Anchor::Connection(_) => None,
        })
    }

    pub(crate) const fn process_count(&self) -> usize {
        self.processes
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.anchors.keys().filter_map(|anchor| match anchor {
            Anchor::Connection(connection) => Some(*connection),
            Anchor::Process(_) => None,
        })
    }

    pub(crate) fn set_expiry(&mut self, session: &Session) {
        self.clear_expiry(session.id);
        if let Some(at) = session.expires() {
            self.expiry_of.insert(session.id, at);
            self.expiries.insert((at, session.id));
        }
    }

    fn clear_expiry(&mut self, session: SessionId) {
        if let Some(before) = self.expiry_of.remove(&session) {
            self.expiries.remove(&(before, session));
        }
    }

    pub(crate) fn next_expiry(&self) -> Option<(Timestamp, SessionId)> {
        self.expiries.first().copied()
    }

    fn hang(&mut self, anchor: Anchor, hanging: Hanging, effects: &mut Vec<Effect>) {
        let all = self.anchors.entry(anchor).or_default();
        if let (true, Anchor::Process(process)) = (all.is_empty(), anchor) {
            self.processes += 1;
            effects.push(Effect::Watch(process));
        }
        all.insert(hanging);
    }

    fn unhang(&mut self, anchor: Anchor, hanging: Hanging, effects: &mut Vec<Effect>) {
        // Nothing is there where the anchor itself is gone.
        let Some(all) = self.anchors.get_mut(&anchor) else { return };
        all.remove(&hanging);
        if all.is_empty() {
            self.anchors.remove(&anchor);
            if let Anchor::Process(process) = anchor {
                self.processes -= 1;
                effects.push(Effect::Unwatch(process));
            }
        }
    }
}

fn anchor_of_lease(lease: &Lease) -> Option<Anchor> {
    match lease.binding {
        Binding::Process(process) => Some(Anchor::Process(process)),
        Binding::Connection(connection) => Some(Anchor::Connection(connection)),
        Binding::Unbound if lease.asker_gone => None,
        Binding::Unbound => Some(Anchor::Process(lease.asked_by)),
    }
}
