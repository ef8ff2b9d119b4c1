//! A registry with a clock to turn and a ground that never fails, and what followed so far.

use std::time::Duration;

use super::super::*;

/// Numbers that are easy to tell apart.
#[derive(Debug, Default)]
pub(super) struct Sequence(u64);

impl Draw for Sequence {
    fn draw(&mut self) -> Option<u64> {
        self.0 += 1;
        Some(self.0)
    }
}

pub(super) const ALICE: u32 = 1000;
pub(super) const BOB: u32 = 1001;
pub(super) const ANY: PolicyRequest =
    PolicyRequest { size: None, inodes: None, mode: None, guard: None };

pub(super) const fn process(pid: u32) -> Process {
    Process { pid, start: 7 }
}

/// A user's process.
pub(super) const fn peer(uid: u32, pid: u32) -> Peer {
    Peer { uid, gid: uid, process: process(pid) }
}

pub(super) const fn held(pid: u32) -> Holder {
    Holder::Process(process(pid))
}

pub(super) const fn linger(seconds: u64) -> Holder {
    Holder::Linger { ttl: Duration::from_secs(seconds) }
}

pub(super) const fn bound(pid: u32) -> Binding {
    Binding::Process(process(pid))
}

#[derive(Debug)]
pub(super) struct Desk {
    pub(super) registry: Registry,
    pub(super) draw: Sequence,
    pub(super) now: Timestamp,
    /// What followed from everything so far.
    pub(super) effects: Vec<Effect>,
    /// How many were made.
    sessions: u64,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self::with(Bounds::default())
    }

    pub(super) fn with(bounds: Bounds) -> Self {
        Self {
            registry: Registry::new(bounds, GenerationKey::new(1).unwrap()),
            draw: Sequence::default(),
            now: Timestamp::from_start(Duration::from_secs(1000)),
            effects: Vec::new(),
            sessions: 0,
        }
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    /// What followed since this was last asked.
    pub(super) fn followed(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn note<T>(&mut self, outcome: Outcome<T>) -> T {
        self.effects.extend(outcome.effects);
        outcome.value
    }

    pub(super) fn try_open(
        &mut self,
        peer: &Peer,
        name: Option<&str>,
        policy: &PolicyRequest,
        holder: Holder,
    ) -> Result<OpenedSession, RegistryError> {
        let Self { registry, draw, now, sessions, .. } = self;
        let outcome = match registry.open(peer, name, policy, holder, *now, draw)? {
            Opening::Attached(outcome) => outcome,
            Opening::New(new) => {
                *sessions += 1;
                new.commit(100 + *sessions)
            }
        };
        Ok(self.note(outcome))
    }

    pub(super) fn open(&mut self, peer: &Peer, name: &str, holder: Holder) -> OpenedSession {
        self.try_open(peer, Some(name), &ANY, holder).unwrap()
    }

    pub(super) fn retain(
        &mut self,
        peer: &Peer,
        session: &str,
        holder: Holder,
    ) -> Result<TokenId, RegistryError> {
        let Self { registry, draw, now, .. } = self;
        let outcome = registry.retain(peer, session, holder, *now, draw)?;
        Ok(self.note(outcome))
    }

    pub(super) fn release(
        &mut self,
        peer: &Peer,
        session: &str,
        token: TokenId,
    ) -> Result<(), RegistryError> {
        let outcome = self.registry.release(peer, session, token.as_str(), self.now)?;
        self.note(outcome);
        Ok(())
    }

    pub(super) fn rotate(
        &mut self,
        peer: &Peer,
        session: &str,
    ) -> Result<SessionView, RegistryError> {
        let outcome = self.registry.rotate(peer, &[], session, self.now)?;
        Ok(self.note(outcome))
    }

    pub(super) fn close(
        &mut self,
        peer: &Peer,
        session: &str,
        force: bool,
    ) -> Result<(), RegistryError> {
        let outcome = self.registry.close(peer, &[], session, force, self.now)?;
        self.note(outcome);
        Ok(())
    }

    pub(super) fn acquire(
        &mut self,
        peer: &Peer,
        session: &str,
        kind: LeaseKind,
        binding: Binding,
    ) -> Result<LeaseView, RegistryError> {
        let Self { registry, draw, now, .. } = self;
        if let Some(new) = registry.new_generation(peer, session)? {
            let inode = 200 + u64::from(new.key().get());
            new.commit(inode);
        }
        let new = registry.acquire(peer, session, kind, binding, *now, draw)?.unwrap();
        let inode = match new.kind() {
            LeaseKind::Shared => None,
            LeaseKind::Private => Some(300),
        };
        let outcome = new.commit(inode);
        Ok(self.note(outcome))
    }

    /// A shared lease.
    pub(super) fn lease(&mut self, peer: &Peer, session: &str, binding: Binding) -> LeaseView {
        self.acquire(peer, session, LeaseKind::Shared, binding).unwrap()
    }

    pub(super) fn bind(
        &mut self,
        peer: &Peer,
        lease: LeaseId,
        pid: u32,
    ) -> Result<LeaseView, RegistryError> {
        let outcome = self.registry.bind(peer, lease.as_str(), process(pid), self.now)?;
        Ok(self.note(outcome))
    }

    pub(super) fn give_back(
        &mut self,
        peer: &Peer,
        lease: LeaseId,
    ) -> Result<Receipt, RegistryError> {
        let outcome = self.registry.release_lease(peer, lease.as_str(), self.now)?;
        let id = self.note(outcome);
        self.registry.receipt(peer, id)
    }

    pub(super) fn dies(&mut self, pid: u32) {
        let outcome = self.registry.process_gone(process(pid), self.now);
        self.note(outcome);
    }

    pub(super) fn disconnects(&mut self, connection: u64) {
        let outcome = self.registry.connection_gone(ConnectionId(connection), self.now);
        self.note(outcome);
    }

    pub(super) fn tick(&mut self) {
        let outcome = self.registry.tick(self.now);
        self.note(outcome);
    }

    pub(super) fn drained(&mut self, key: GenerationKey) -> bool {
        let outcome = self.registry.drained(key);
        self.note(outcome)
    }

    pub(super) fn view(&self, session: SessionId) -> SessionView {
        self.registry.session(&peer(0, 1), session.as_str()).unwrap()
    }

    pub(super) fn is_gone(&self, session: SessionId) -> bool {
        self.registry.session(&peer(0, 1), session.as_str()).is_err()
    }
}
