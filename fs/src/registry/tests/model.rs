//! Random interleavings against a model that knows the rules, but no bookkeeping: it looks at who
//! is dead and at everything there is, each time anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index as Pick;

use super::super::*;
use super::desk::*;

const PROCESSES: u32 = 5;
const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug)]
enum Hold {
    By(u32),
    Linger(u64),
}

#[derive(Clone, Copy, Debug)]
enum Bind {
    To(u32),
    Connection(u64),
    Later,
}

/// Who acts is a process that lives, by its slot; what is acted on is picked among what there is.
#[derive(Clone, Debug)]
enum Step {
    Open { by: u32, name: usize, hold: Hold },
    Retain { by: u32, session: Pick, hold: Hold },
    Release { token: Pick },
    ReleaseAgain { token: Pick },
    Rebuild { token: Pick },
    Rotate { session: Pick },
    Close { session: Pick, force: bool },
    Acquire { by: u32, session: Pick, kind: LeaseKind, bind: Bind },
    AcquireInVain { by: u32, session: Pick },
    Bind { lease: Pick, to: u32 },
    GiveBack { lease: Pick },
    GiveBackAgain { lease: Pick },
    Dies { slot: u32 },
    Disconnects { connection: u64 },
    Passes { seconds: u64 },
    Jumps { seconds: u64 },
    Drained { generation: Pick },
    Restarts,
}

fn hold() -> impl Strategy<Value = Hold> {
    prop_oneof![3 => (0..PROCESSES).prop_map(Hold::By), 1 => (1..50_u64).prop_map(Hold::Linger)]
}

fn bind() -> impl Strategy<Value = Bind> {
    prop_oneof![
        2 => (0..PROCESSES).prop_map(Bind::To),
        1 => (0..2_u64).prop_map(Bind::Connection),
        2 => Just(Bind::Later),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let by = || 0..PROCESSES;
    let kind = || prop_oneof![Just(LeaseKind::Shared), Just(LeaseKind::Private)];
    prop_oneof![
        4 => (by(), 0..NAMES.len(), hold()).prop_map(|(by, name, hold)| Step::Open { by, name, hold }),
        3 => (by(), any::<Pick>(), hold())
            .prop_map(|(by, session, hold)| Step::Retain { by, session, hold }),
        3 => any::<Pick>().prop_map(|token| Step::Release { token }),
        1 => any::<Pick>().prop_map(|token| Step::ReleaseAgain { token }),
        2 => any::<Pick>().prop_map(|token| Step::Rebuild { token }),
        2 => any::<Pick>().prop_map(|session| Step::Rotate { session }),
        1 => (any::<Pick>(), any::<bool>())
            .prop_map(|(session, force)| Step::Close { session, force }),
        6 => (by(), any::<Pick>(), kind(), bind())
            .prop_map(|(by, session, kind, bind)| Step::Acquire { by, session, kind, bind }),
        1 => (by(), any::<Pick>()).prop_map(|(by, session)| Step::AcquireInVain { by, session }),
        3 => (any::<Pick>(), 0..PROCESSES).prop_map(|(lease, to)| Step::Bind { lease, to }),
        3 => any::<Pick>().prop_map(|lease| Step::GiveBack { lease }),
        1 => any::<Pick>().prop_map(|lease| Step::GiveBackAgain { lease }),
        3 => (0..PROCESSES).prop_map(|slot| Step::Dies { slot }),
        1 => (0..2_u64).prop_map(|connection| Step::Disconnects { connection }),
        2 => (0..40_u64).prop_map(|seconds| Step::Passes { seconds }),
        1 => (0..40_u64).prop_map(|seconds| Step::Jumps { seconds }),
        3 => any::<Pick>().prop_map(|generation| Step::Drained { generation }),
        1 => Just(Step::Restarts),
    ]
}

#[derive(Clone, Debug)]
struct ModelLease {
    generation: u32,
    binding: Binding,
    asked_by: Process,
}

#[derive(Clone, Debug)]
struct ModelSession {
    name: String,
    sealed: bool,
    tokens: BTreeMap<TokenId, Holder>,
    /// Keys of those that are there, and whether they are retired.
    generations: BTreeMap<u32, (GenerationKey, bool)>,
    leases: BTreeMap<LeaseId, ModelLease>,
    active: Timestamp,
}

impl ModelSession {
    fn leased(&self, generation: u32) -> bool {
        self.leases.values().any(|lease| lease.generation == generation)
    }

    fn drains(&self) -> impl Iterator<Item = GenerationKey> {
        self.generations
            .iter()
            .filter(|(number, (_, retired))| *retired && !self.leased(**number))
            .map(|(_, (key, _))| *key)
    }
}

#[derive(Debug)]
struct Model {
    desk: Desk,
    sessions: BTreeMap<SessionId, ModelSession>,
    dead: BTreeSet<Process>,
    /// How often each slot was taken by another process.
    lives: [u64; PROCESSES as usize],
    released: Vec<(SessionId, TokenId)>,
    ended: Vec<LeaseId>,
    /// What was ever given for draining.
    drained: BTreeSet<GenerationKey>,
    watched: BTreeSet<Process>,
    lowered: BTreeSet<SessionId>,
}

const USER: u32 = ALICE;

impl Model {
    fn new() -> Self {
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
        }
    }

    fn living(&self, slot: u32) -> Process {
        Process { pid: slot + 10, start: self.lives[slot as usize] }
    }

    fn peer(&self, slot: u32) -> Peer {
        Peer { uid: USER, gid: USER, process: self.living(slot) }
    }

    /// Somebody of the same user whom nothing hangs on.
    fn stranger(&self) -> Peer {
        peer(USER, 1)
    }

    fn holder(&self, hold: Hold) -> Holder {
        match hold {
            Hold::By(slot) => Holder::Process(self.living(slot)),
            Hold::Linger(seconds) => linger(seconds),
        }
    }

    fn pick_session(&self, pick: &Pick) -> Option<SessionId> {
        let all: Vec<_> = self.sessions.keys().copied().collect();
        (!all.is_empty()).then(|| *pick.get(&all))
    }

    fn pick_token(&self, pick: &Pick) -> Option<(SessionId, TokenId)> {
        let all: Vec<_> = self
            .sessions
            .iter()
            .flat_map(|(id, session)| session.tokens.keys().map(|token| (*id, *token)))
            .collect();
        (!all.is_empty()).then(|| *pick.get(&all))
    }

    fn leases(&self) -> Vec<(SessionId, LeaseId)> {
        self.sessions
            .iter()
            .flat_map(|(id, session)| session.leases.keys().map(|lease| (*id, *lease)))
            .collect()
    }

    fn pick_lease(&self, pick: &Pick) -> Option<(SessionId, LeaseId)> {
        let all = self.leases();
        (!all.is_empty()).then(|| *pick.get(&all))
    }

    fn session(&mut self, id: SessionId) -> &mut ModelSession {
        self.sessions.get_mut(&id).expect("the model has what it picked")
    }

    fn touch(&mut self, id: SessionId) {
        let now = self.desk.now;
        self.session(id).active = now;
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
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
                prop_assert_eq!(&again, &self.desk.registry);
                self.desk.registry = again;
            }
        }
        Ok(())
    }

    fn retire_all(&mut self, id: SessionId) {
        for (_, retired) in self.session(id).generations.values_mut() {
            *retired = true;
        }
    }

    fn expire(&mut self) {
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
    fn settle(&mut self) {
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

    /// The effects since the last step keep their promises.
    fn check_effects(&mut self) -> Result<(), TestCaseError> {
        for effect in self.desk.followed() {
            match effect {
                Effect::LeaseEnded { lease, .. } => prop_assert!(self.ended.contains(&lease)),
                Effect::Drain(key) => {
                    prop_assert!(self.drained.insert(key), "drained twice");
                    let leased = self.sessions.values().any(|session| {
                        session
                            .generations
                            .iter()
                            .any(|(number, (there, _))| *there == key && session.leased(*number))
                    });
                    prop_assert!(!leased, "a leased generation was given away");
                }
                Effect::LowerSession(id) => prop_assert!(self.lowered.contains(&id)),
                Effect::Watch(process) => prop_assert!(self.watched.insert(process)),
                Effect::Unwatch(process) => prop_assert!(self.watched.remove(&process)),
            }
        }
        Ok(())
    }

    /// The registry shows what the model says.
    fn check(&self) -> Result<(), TestCaseError> {
        let root = peer(0, 1);
        let views = self.desk.registry.sessions(&root);
        let ids: Vec<_> = views.iter().map(|view| view.id).collect();
        prop_assert_eq!(ids, self.sessions.keys().copied().collect::<Vec<_>>());
        let mut watched = BTreeSet::new();
        let mut draining = BTreeSet::new();
        for view in &views {
            let session = &self.sessions[&view.id];
            prop_assert_eq!(view.sealed, session.sealed);
            prop_assert_eq!(view.active, session.active);
            let holders: Vec<_> = view.tokens.iter().map(|token| token.holder).collect();
            prop_assert_eq!(holders, session.tokens.values().copied().collect::<Vec<_>>());
            let shown: BTreeMap<_, _> = view
                .generations
                .iter()
                .map(|generation| (generation.number, (generation.key, generation.retired)))
                .collect();
            prop_assert_eq!(&shown, &session.generations);
            for (key, _) in session.generations.values().filter(|(_, retired)| *retired) {
                let given = self.drained.contains(key);
                let due = session.drains().any(|drains| drains == *key);
                prop_assert_eq!(given, due, "retired: drained if and only if not leased");
            }
            draining.extend(session.drains());
            watched.extend(session.tokens.values().filter_map(|holder| match holder {
                Holder::Process(process) => Some(*process),
                Holder::Linger { .. } => None,
            }));
            watched.extend(session.leases.values().filter_map(|lease| match lease.binding {
                Binding::Process(process) => Some(process),
                Binding::Connection(_) => None,
                Binding::Unbound => {
                    Some(lease.asked_by).filter(|process| !self.dead.contains(process))
                }
            }));
        }
        let leases: BTreeMap<_, _> = self
            .desk
            .registry
            .leases(&root)
            .iter()
            .map(|lease| (lease.id, (lease.session, lease.generation, lease.binding)))
            .collect();
        let expected: BTreeMap<_, _> = self
            .sessions
            .iter()
            .flat_map(|(id, session)| {
                session
                    .leases
                    .iter()
                    .map(|(lease, model)| (*lease, (*id, model.generation, model.binding)))
            })
            .collect();
        prop_assert_eq!(leases, expected);
        let registry = &self.desk.registry;
        prop_assert_eq!(registry.draining().into_iter().collect::<BTreeSet<_>>(), draining);
        prop_assert_eq!(registry.watched().into_iter().collect::<BTreeSet<_>>(), watched.clone());
        prop_assert_eq!(&self.watched, &watched);
        Ok(())
    }

    /// When everybody is dead and everything drained, nothing is left.
    fn end(&mut self) -> Result<(), TestCaseError> {
        for slot in 0..PROCESSES {
            self.take(&Step::Dies { slot })?;
        }
        for connection in 0..2 {
            self.take(&Step::Disconnects { connection })?;
        }
        self.settle();
        // Only unbound leases of sessions that linger are left: they are given back.
        for (id, lease) in self.leases() {
            self.desk.give_back(&self.stranger(), lease).unwrap();
            self.session(id).leases.remove(&lease);
            self.ended.push(lease);
        }
        self.desk.now = self.desk.now.after(Duration::from_secs(1000));
        self.desk.tick();
        for key in self.desk.registry.draining() {
            prop_assert!(self.desk.drained(key));
        }
        prop_assert_eq!(self.desk.registry.counts(), Counts::default());
        Ok(())
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_rules_hold(steps in vec(step(), 1..150)) {
        let mut model = Model::new();
        for step in &steps {
            model.take(step)?;
            model.settle();
            model.check_effects()?;
            model.check()?;
        }
        model.end()?;
    }
}
