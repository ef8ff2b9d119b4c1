//! What the rules make of each step.
//!
//! It must never do what the registry does: no index, no effect, nothing that is handed on from
//! one step to the next but facts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index as Pick;

use super::super::super::*;
use super::super::desk::*;
use super::{Bind, Hold, NAMES, PROCESSES, Step};
use crate::saved::record::{Lasting, write};

#[derive(Clone, Debug)]
pub(super) struct ModelLease {
    pub(super) generation: u32,
    pub(super) binding: Binding,
    pub(super) asked_by: Process,
}

#[derive(Clone, Debug)]
pub(super) struct ModelSession {
    pub(super) name: String,
    pub(super) sealed: bool,
    pub(super) tokens: BTreeMap<TokenId, Holder>,
    /// Keys of those that are there, and whether they are retired.
    pub(super) generations: BTreeMap<u32, (GenerationKey, bool)>,
    pub(super) leases: BTreeMap<LeaseId, ModelLease>,
    pub(super) active: Timestamp,
}

impl ModelSession {
    pub(super) fn leased(&self, generation: u32) -> bool {
        self.leases.values().any(|lease| lease.generation == generation)
    }

    pub(super) fn drains(&self) -> impl Iterator<Item = GenerationKey> {
        self.generations
            .iter()
            .filter(|(number, (_, retired))| *retired && !self.leased(**number))
            .map(|(_, (key, _))| *key)
    }
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) desk: Desk,
    pub(super) sessions: BTreeMap<SessionId, ModelSession>,
    pub(super) dead: BTreeSet<Process>,
    /// How often each slot was taken by another process.
    pub(super) lives: [u64; PROCESSES as usize],
    pub(super) released: Vec<(SessionId, TokenId)>,
    pub(super) ended: Vec<LeaseId>,
    /// What was ever given for draining.
    pub(super) drained: BTreeSet<GenerationKey>,
    pub(super) watched: BTreeSet<Process>,
    pub(super) lowered: BTreeSet<SessionId>,
    /// What whoever keeps every change has on the disk.
    pub(super) kept: BTreeMap<SessionId, (Vec<u8>, Vec<u8>)>,
}

const USER: u32 = ALICE;

impl Model {
    pub(super) fn new() -> Self {
        Self {
            desk: Desk::new(),
            sessions: BTreeMap::new(),
            dead: BTreeSet::new(),
            lives: [0; PROCESSES as usize],
            released: Vec::new(),
            ended: Vec::new(),
            drained: BTreeSet::new(),
            watched: BTreeSet::new(),
            lowered: BTreeSet::new(),
            kept: BTreeMap::new(),
        }
    }

    pub(super) fn living(&self, slot: u32) -> Process {
        Process { pid: slot + 10, start: self.lives[slot as usize] }
    }

    pub(super) fn peer(&self, slot: u32) -> Peer {
        Peer { uid: USER, gid: USER, process: self.living(slot) }
    }

    /// Somebody of the same user whom nothing hangs on.
    pub(super) fn stranger(&self) -> Peer {
        peer(USER, 1)
    }

    pub(super) fn holder(&self, hold: Hold) -> Holder {
        match hold {
            Hold::By(slot) => Holder::Process(self.living(slot)),
            Hold::Linger(seconds) => linger(seconds),
        }
    }

    pub(super) fn pick_session(&self, pick: &Pick) -> Option<SessionId> {
        let all: Vec<_> = self.sessions.keys().copied().collect();
        (!all.is_empty()).then(|| *pick.get(&all))
    }

    pub(super) fn pick_token(&self, pick: &Pick) -> Option<(SessionId, TokenId)> {
        let all: Vec<_> = self
            .sessions
            .iter()
            .flat_map(|(id, session)| session.tokens.keys().map(|token| (*id, *token)))
            .collect();
        (!all.is_empty()).then(|| *pick.get(&all))
    }

    pub(super) fn leases(&self) -> Vec<(SessionId, LeaseId)> {
        self.sessions
            .iter()
            .flat_map(|(id, session)| session.leases.keys().map(|lease| (*id, *lease)))
            .collect()
    }

    pub(super) fn pick_lease(&self, pick: &Pick) -> Option<(SessionId, LeaseId)> {
        let all = self.leases();
        (!all.is_empty()).then(|| *pick.get(&all))
    }

    pub(super) fn session(&mut self, id: SessionId) -> &mut ModelSession {
        self.sessions.get_mut(&id).expect("the model has what it picked")
    }

    pub(super) fn touch(&mut self, id: SessionId) {
        let now = self.desk.now;
        self.session(id).active = now;
    }

    pub(super) fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let now = self.desk.now;
        match step {
            Step::Open { by, name, hold } => {
                let (peer, holder, name) = (self.peer(*by), self.holder(*hold), NAMES[*name]);
                let opened = self.desk.open(&peer, name, holder);
                let there = self
                    .sessions
                    .iter()
                    .find(|(_, session)| !session.sealed && session.name == name)
                    .map(|(id, _)| *id);
                prop_assert_eq!(opened.attached, there.is_some());
                if let Some(id) = there {
                    prop_assert_eq!(opened.session.id, id);
                }
                let session =
                    self.sessions.entry(opened.session.id).or_insert_with(|| ModelSession {
                        name: name.to_owned(),
                        sealed: false,
                        tokens: BTreeMap::new(),
                        generations: BTreeMap::new(),
                        leases: BTreeMap::new(),
                        active: now,
                    });
                session.active = now;
                prop_assert!(session.tokens.insert(opened.token, holder).is_none());
            }
            Step::Retain { by, session, hold } => {
                let Some(id) = self.pick_session(session) else { return Ok(()) };
                let (peer, holder) = (self.peer(*by), self.holder(*hold));
                let retained = self.desk.retain(&peer, id.as_str(), holder);
                if self.session(id).sealed {
                    prop_assert_eq!(retained, Err(RegistryError::SessionSealed { session: id }));
                } else {
                    self.session(id).tokens.insert(retained.unwrap(), holder);
                    self.touch(id);
                }
            }
            Step::Release { token } => {
                let Some((id, token)) = self.pick_token(token) else { return Ok(()) };
                prop_assert_eq!(self.desk.release(&self.stranger(), id.as_str(), token), Ok(()));
                self.session(id).tokens.remove(&token);
                self.released.push((id, token));
            }
            Step::ReleaseAgain { token } => {
                if !self.released.is_empty() {
                    let (id, token) = *token.get(&self.released);
                    let released = self.desk.release(&self.stranger(), id.as_str(), token);
                    prop_assert_eq!(released, Ok(()));
                }
            }
            Step::Rebuild { token } => {
                let Some((id, token)) = self.pick_token(token) else { return Ok(()) };
                let holder = self.session(id).tokens[&token];
                let peer = self.stranger();
                let next = self.desk.retain(&peer, id.as_str(), holder).unwrap();
                prop_assert_eq!(self.desk.release(&peer, id.as_str(), token), Ok(()));
                prop_assert!(!self.desk.view(id).sealed, "a hot rebuild sealed");
                let session = self.session(id);
                session.tokens.remove(&token);
                session.tokens.insert(next, holder);
                self.released.push((id, token));
                self.touch(id);
            }
            Step::Rotate { session } => {
                let Some(id) = self.pick_session(session) else { return Ok(()) };
                let rotated = self.desk.rotate(&self.stranger(), id.as_str());
                if self.session(id).sealed {
                    prop_assert_eq!(rotated, Err(RegistryError::SessionSealed { session: id }));
                } else {
                    prop_assert_eq!(rotated.unwrap().current, None);
                    self.retire_all(id);
                    self.touch(id);
                }
            }
            Step::Close { session, force } => {
                let Some(id) = self.pick_session(session) else { return Ok(()) };
                let closed = self.desk.close(&self.stranger(), id.as_str(), *force);
                prop_assert_eq!(closed, Ok(()));
                let session = self.session(id);
                let tokens = std::mem::take(&mut session.tokens);
                self.released.extend(tokens.into_keys().map(|token| (id, token)));
                if *force {
                    let session = self.sessions.get_mut(&id).expect("it was picked");
                    end_leases(session, &mut self.ended, now, |_| true);
                }
            }
            Step::Acquire { by, session, kind, bind } => {
                let Some(id) = self.pick_session(session) else { return Ok(()) };
                let peer = self.peer(*by);
                let binding = match bind {
                    Bind::To(slot) => Binding::Process(self.living(*slot)),
                    Bind::Connection(connection) => Binding::Connection(ConnectionId(*connection)),
                    Bind::Later => Binding::Unbound,
                };
                let acquired = self.desk.acquire(&peer, id.as_str(), *kind, binding);
                if self.session(id).sealed {
                    prop_assert_eq!(acquired, Err(RegistryError::SessionSealed { session: id }));
                    return Ok(());
                }
                let lease = acquired.unwrap();
                let drained = self.drained.contains(&lease.key);
                prop_assert!(!drained, "a lease on what was given away");
                self.touch(id);
                let session = self.session(id);
                let current = session.generations.iter().find(|(_, (_, retired))| !retired);
                if let Some((number, _)) = current {
                    prop_assert_eq!(*number, lease.generation);
                }
                session.generations.insert(lease.generation, (lease.key, false));
                let asked_by = peer.process;
                let generation = lease.generation;
                session.leases.insert(lease.id, ModelLease { generation, binding, asked_by });
            }
            Step::AcquireInVain { by, session } => {
                let Some(id) = self.pick_session(session) else { return Ok(()) };
                let before = self.desk.registry.clone();
                let peer = self.peer(*by);
                drop(self.desk.registry.new_generation(&peer, id.as_str()));
                let Desk { registry, draw, now, .. } = &mut self.desk;
                let (kind, binding) = (LeaseKind::Private, Binding::Unbound);
                drop(registry.acquire(&peer, id.as_str(), kind, binding, *now, draw));
                prop_assert_eq!(&self.desk.registry, &before);
            }
            Step::Bind { lease, to } => {
                let Some((id, lease)) = self.pick_lease(lease) else { return Ok(()) };
                let process = self.living(*to);
                let registry = &mut self.desk.registry;
                let outcome = registry.bind(&peer(USER, 1), lease.as_str(), process, now).unwrap();
                self.desk.effects.extend(outcome.effects);
                self.touch(id);
                let lease = self.session(id).leases.get_mut(&lease).expect("it was picked");
                lease.binding = Binding::Process(process);
            }
            Step::GiveBack { lease } => {
                let Some((id, lease)) = self.pick_lease(lease) else { return Ok(()) };
                let receipt = self.desk.give_back(&self.stranger(), lease).unwrap();
                prop_assert_eq!(receipt.end, LeaseEnd::Released);
                self.session(id).leases.remove(&lease);
                self.ended.push(lease);
                self.touch(id);
            }
            Step::GiveBackAgain { lease } => {
                if !self.ended.is_empty() {
                    let lease = *lease.get(&self.ended);
                    let receipt = self.desk.give_back(&self.stranger(), lease).unwrap();
                    prop_assert_eq!(receipt.lease, lease);
                }
            }
            Step::Dies { slot } => {
                let process = self.living(*slot);
                let outcome = self.desk.registry.process_gone(process, now);
                self.desk.effects.extend(outcome.effects);
                self.watched.remove(&process);
                self.dead.insert(process);
                self.lives[*slot as usize] += 1;
            }
            Step::Disconnects { connection } => {
                self.desk.disconnects(*connection);
                let gone = Binding::Connection(ConnectionId(*connection));
                for session in self.sessions.values_mut() {
                    end_leases(session, &mut self.ended, now, |lease| lease.binding == gone);
                }
            }
            Step::Passes { seconds } => {
                self.desk.wait(*seconds);
                self.desk.tick();
                self.expire();
                let next = self.desk.registry.next_tick();
                prop_assert!(next.is_none_or(|next| next > self.desk.now));
            }
            // Time that nobody was told of.
            Step::Jumps { seconds } => self.desk.wait(*seconds),
            Step::Drained { generation } => {
                let draining: Vec<_> =
                    self.sessions.values().flat_map(ModelSession::drains).collect();
                if !draining.is_empty() {
                    let key = *generation.get(&draining);
                    prop_assert!(self.desk.drained(key));
                    for session in self.sessions.values_mut() {
                        session.generations.retain(|_, (there, _)| *there != key);
                    }
                }
            }
            Step::Restarts => {
                let records = self.desk.registry.records();
                let again = Registry::from_records(Bounds::default(), records);
                self.keep_changes();
                prop_assert_eq!(&again, &self.desk.registry);
                self.desk.registry = again;
            }
        }
        Ok(())
    }

    /// Keeps what has changed, as it is written down.
    pub(super) fn keep_changes(&mut self) {
        for id in self.desk.registry.take_changed() {
            match self.desk.registry.record(id) {
                Some(session) => {
                    let (lasting, passing) = Lasting::split(&session);
                    self.kept.insert(id, (write(&lasting).unwrap(), write(&passing).unwrap()));
                }
                None => drop(self.kept.remove(&id)),
            }
        }
    }

    pub(super) fn retire_all(&mut self, id: SessionId) {
        for (_, retired) in self.session(id).generations.values_mut() {
            *retired = true;
        }
    }

    pub(super) fn expire(&mut self) {
        let now = self.desk.now;
        for (id, session) in &mut self.sessions {
            if session.leases.is_empty() {
                let idle = now.since(session.active);
                let over = |holder: &Holder| match holder {
                    Holder::Process(_) => false,
                    Holder::Linger { ttl } => idle >= *ttl,
                };
                release_tokens(*id, session, &mut self.released, over);
            }
        }
    }

    /// What the rules make of who is dead.
    pub(super) fn settle(&mut self) {
        let now = self.desk.now;
        let dead = &self.dead;
        for (id, session) in &mut self.sessions {
            release_tokens(*id, session, &mut self.released, |holder| match holder {
                Holder::Process(process) => dead.contains(process),
                Holder::Linger { .. } => false,
            });
            session.sealed |= session.tokens.is_empty();
            let sealed = session.sealed;
            end_leases(session, &mut self.ended, now, |lease| match lease.binding {
                Binding::Process(process) => dead.contains(&process),
                Binding::Connection(_) => false,
                Binding::Unbound => sealed && dead.contains(&lease.asked_by),
            });
            if session.sealed {
                session.generations.values_mut().for_each(|(_, retired)| *retired = true);
            }
        }
        self.sessions.retain(|id, session| {
            let over = session.sealed && session.generations.is_empty();
            if over {
                self.lowered.insert(*id);
            }
            !over
        });
    }
}

fn end_leases(
    session: &mut ModelSession,
    ended: &mut Vec<LeaseId>,
    now: Timestamp,
    over: impl Fn(&ModelLease) -> bool,
) {
    session.leases.retain(|id, lease| {
        let over = over(lease);
        if over {
            ended.push(*id);
            session.active = now;
        }
        !over
    });
}

fn release_tokens(
    id: SessionId,
    session: &mut ModelSession,
    released: &mut Vec<(SessionId, TokenId)>,
    over: impl Fn(&Holder) -> bool,
) {
    session.tokens.retain(|token, holder| {
        let over = over(holder);
        if over {
            released.push((id, *token));
        }
        !over
    });
}
