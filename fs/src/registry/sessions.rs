//! What is asked for about sessions: opening, retaining, releasing, rotating, resizing, closing.
//!
//! It must never make or remove a directory.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pending::{NewPolicy, NewSession, Opening};
use super::session::{Session, check_name};
use super::token::Token;
use super::{
    Binding, Draw, Effect, Holder, LeaseEnd, LeaseId, Limit, NameFault, OpenedSession, Outcome,
    Peer, PolicyRequest, Process, Registry, RegistryError, SessionId, SessionView, TokenId,
    draw_id,
};
use crate::clock::Timestamp;

impl Registry {
    /// Opens a session, or attaches to the open one of that name that the peer's uid has: whoever
    /// attaches may leave parts of the policy unsaid, but what it says has to be so.
    ///
    /// Whether the peer may speak for the holder is not known here.
    ///
    /// # Errors
    /// Where the name, the policy or a limit forbids it.
    pub fn open(
        &mut self,
        peer: &Peer,
        name: Option<&str>,
        policy: &PolicyRequest,
        holder: Holder,
        now: Timestamp,
        draw: &mut dyn Draw,
    ) -> Result<Opening<'_>, RegistryError> {
        if let Some(name) = name {
            check_name(name).map_err(|fault| RegistryError::NameInvalid { fault })?;
            if let Some(id) = self.index.named(peer.uid, name) {
                return self.attach(peer, id, policy, holder, now, draw).map(Opening::Attached);
            }
            if self.is_own_id(peer, name) {
                return Err(RegistryError::NameInvalid { fault: NameFault::AnId });
            }
        }
        let value = self.bounds.sessions_per_uid;
        if self.index.open_sessions_of(peer.uid) >= value {
            return Err(RegistryError::LimitReached { limit: Limit::SessionsPerUid, value });
        }
        let id = draw_id(draw, SessionId::from_number, |id| {
            self.sessions.contains_key(id) || self.index.named(peer.uid, id.as_str()).is_some()
        })?;
        let token = draw_id(draw, TokenId::from_number, |_| false)?;
        let token = Token { id: token, holder, asked_by: peer.process, since: now };
        let policy = policy.granted();
        let session = Session {
            id,
            name: name.map(str::to_owned),
            uid: peer.uid,
            gid: peer.gid,
            policy,
            opened_with: policy,
            sealed: false,
            opened: now,
            active: now,
            inode: 0,
            tokens: BTreeMap::new(),
            generations: BTreeMap::new(),
            next_number: 1,
            leases: BTreeMap::new(),
        };
        Ok(Opening::New(NewSession {
            sessions: &mut self.sessions,
            index: &mut self.index,
            changed: &mut self.changed,
            session,
            token,
        }))
    }

    /// Gives one more owner token of an open session.
    ///
    /// # Errors
    /// Where there is no such session, it is sealed, or has too many tokens.
    pub fn retain(
        &mut self,
        peer: &Peer,
        session: &str,
        holder: Holder,
        now: Timestamp,
        draw: &mut dyn Draw,
    ) -> Result<Outcome<TokenId>, RegistryError> {
        let id = self.resolve_open(peer, session)?;
        self.add_token(peer, id, holder, now, draw)
    }

    /// Takes an owner token back; the last one seals the session. One that was taken back before,
    /// or whose process is gone, is taken back again without an error.
    ///
    /// # Errors
    /// Where there is no such session, or it never had the token as far as is remembered.
    pub fn release(
        &mut self,
        peer: &Peer,
        session: &str,
        token: &str,
        now: Timestamp,
    ) -> Result<Outcome<()>, RegistryError> {
        let found = self.resolve(peer, session).map(|session| (session.id, &session.tokens));
        let parsed = token.parse().ok();
        let live = match (&found, parsed) {
            (Ok((id, tokens)), Some(token)) if tokens.contains_key(&token) => Some((*id, token)),
            (Ok(_) | Err(_), Some(_) | None) => None,
        };
        let mut effects = Vec::new();
        if let Some((id, token)) = live {
            self.remove_token(id, token, now, &mut effects);
        } else if !parsed.is_some_and(|token| self.memory.has_token(peer, session, token)) {
            return Err(found.err().unwrap_or(RegistryError::TokenUnknown));
        }
        Ok(Outcome { value: (), effects })
    }

    /// Retires the current generation, if there is one; the next lease makes a fresh one. `line`
    /// is the peer's process and what it descends from.
    ///
    /// # Errors
    /// Where there is no such session, it is sealed, or the peer is inside a lease of it.
    pub fn rotate(
        &mut self,
        peer: &Peer,
        line: &[Process],
        session: &str,
        now: Timestamp,
    ) -> Result<Outcome<SessionView>, RegistryError> {
        let id = self.resolve_open(peer, session)?;
        self.check_outside(peer, line, Some(id))?;
        let mut effects = Vec::new();
        self.retire_current(id, &mut effects);
        self.touch(id, now);
        Ok(Outcome { value: self.view(id, session)?, effects })
    }

    /// Changes the limits of a session; what is `None` stays as it is.
    ///
    /// # Errors
    /// Where there is no such session, or it is sealed.
    pub fn resize(
        &mut self,
        peer: &Peer,
        session: &str,
        size: Option<u64>,
        inodes: Option<u64>,
        now: Timestamp,
    ) -> Result<NewPolicy<'_>, RegistryError> {
        let id = self.resolve_open(peer, session)?;
        let unknown = || RegistryError::SessionUnknown { session: session.to_owned() };
        let record = self.sessions.get_mut(&id).ok_or_else(unknown)?;
        let mut policy = record.policy;
        policy.size = size.or(policy.size);
        policy.inodes = inodes.or(policy.inodes);
        let (index, changed) = (&mut self.index, &mut self.changed);
        Ok(NewPolicy { session: record, index, changed, policy, now })
    }

    /// Seals a session whoever retains it. Leases go on until they end by themselves, unless
    /// `force` ends them here. `line` is the peer's process and what it descends from.
    ///
    /// # Errors
    /// Where there is no such session, or the peer is inside a lease of it.
    pub fn close(
        &mut self,
        peer: &Peer,
        line: &[Process],
        session: &str,
        force: bool,
        now: Timestamp,
    ) -> Result<Outcome<()>, RegistryError> {
        let record = self.resolve(peer, session)?;
        let id = record.id;
        let tokens: Vec<TokenId> = record.tokens.keys().copied().collect();
        let leases: Vec<LeaseId> =
            if force { record.leases.keys().copied().collect() } else { Vec::new() };
        self.check_outside(peer, line, Some(id))?;
        let mut effects = Vec::new();
        // Leases first: a session with its last token gone and no lease may be gone itself.
        for lease in leases {
            self.end_lease(lease, LeaseEnd::Closed, now, &mut effects);
        }
        for token in tokens {
            self.remove_token(id, token, now, &mut effects);
        }
        Ok(Outcome { value: (), effects })
    }

    fn attach(
        &mut self,
        peer: &Peer,
        id: SessionId,
        policy: &PolicyRequest,
        holder: Holder,
        now: Timestamp,
        draw: &mut dyn Draw,
    ) -> Result<Outcome<OpenedSession>, RegistryError> {
        let session = self
            .sessions
            .get(&id)
            .ok_or_else(|| RegistryError::SessionUnknown { session: id.to_string() })?;
        if let Some(part) = policy.differs_from(&session.opened_with, &session.policy) {
            return Err(RegistryError::PolicyDiffers { session: id, part });
        }
        let Outcome { value: token, effects } = self.add_token(peer, id, holder, now, draw)?;
        let session = self.view(id, id.as_str())?;
        Ok(Outcome { value: OpenedSession { session, token, attached: true }, effects })
    }

    fn add_token(
        &mut self,
        peer: &Peer,
        id: SessionId,
        holder: Holder,
        now: Timestamp,
        draw: &mut dyn Draw,
    ) -> Result<Outcome<TokenId>, RegistryError> {
        let value = self.bounds.tokens_per_session;
        let session = self
            .sessions
            .get_mut(&id)
            .ok_or_else(|| RegistryError::SessionUnknown { session: id.to_string() })?;
        let (mut holder, mut replaced) = (holder, None);
        if session.tokens.len() >= value {
            let Some((ttl, _, old)) = replaceable(session, &holder) else {
                return Err(RegistryError::LimitReached { limit: Limit::TokensPerSession, value });
            };
            (holder, replaced) = (Holder::Linger { ttl }, Some(old));
        }
        let taken = |token: &TokenId| {
            session.tokens.contains_key(token) || self.memory.has_token(peer, id.as_str(), *token)
        };
        let given = draw_id(draw, TokenId::from_number, taken)?;
        let token = Token { id: given, holder, asked_by: peer.process, since: now };
        let mut effects = Vec::new();
        self.index.add_token(id, &token, &mut effects);
        session.tokens.insert(given, token);
        session.touch(now);
        self.index.set_expiry(session);
        self.changed.insert(id);
        if let Some(old) = replaced {
            self.remove_token(id, old, now, &mut effects);
        }
        Ok(Outcome { value: given, effects })
    }

    /// Takes a token away, by whatever cause; the last one seals.
    pub(super) fn remove_token(
        &mut self,
        id: SessionId,
        token: TokenId,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(token) = session.tokens.remove(&token) else { return };
        self.index.remove_token(id, &token, effects);
        self.index.set_expiry(session);
        self.changed.insert(id);
        let (name, remembered) = (session.name.clone(), self.bounds.remembered_per_uid);
        self.memory.keep_token(session.uid, token.id, id, name, remembered);
        if session.tokens.is_empty() {
            self.seal(id, now, effects);
        }
    }

    fn seal(&mut self, id: SessionId, now: Timestamp, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.sealed = true;
        self.index.remove_open(session);
        // Nobody who asked for these is there to bind them any more.
        let abandoned: Vec<LeaseId> = session
            .leases
            .values()
            .filter(|lease| lease.asker_gone && lease.binding == Binding::Unbound)
            .map(|lease| lease.id)
            .collect();
        self.retire_current(id, effects);
        for lease in abandoned {
            self.end_lease(lease, LeaseEnd::ProcessGone, now, effects);
        }
        self.forget_if_over(id, effects);
    }

    /// Retires the current generation, and has it drained if nobody leases it.
    fn retire_current(&mut self, id: SessionId, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(number) = session.current().map(|generation| generation.number) else { return };
        let leased = session.leases_on(number) > 0;
        if let Some(generation) = session.generations.get_mut(&number) {
            generation.retired = true;
            self.index.retire(generation.key);
            self.changed.insert(id);
            if !leased {
                effects.push(Effect::Drain(generation.key));
            }
        }
    }

    /// A sealed session without a generation is gone.
    pub(super) fn forget_if_over(&mut self, id: SessionId, effects: &mut Vec<Effect>) {
        let over = self
            .sessions
            .get(&id)
            .is_some_and(|session| session.sealed && session.generations.is_empty());
        if over {
            self.sessions.remove(&id);
            self.changed.insert(id);
            effects.push(Effect::LowerSession(id));
        }
    }

    pub(super) fn touch(&mut self, id: SessionId, now: Timestamp) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.touch(now);
            self.index.set_expiry(session);
            self.changed.insert(id);
        }
    }

    pub(super) fn resolve_open(&self, peer: &Peer, text: &str) -> Result<SessionId, RegistryError> {
        let session = self.resolve(peer, text)?;
        if session.sealed {
            Err(RegistryError::SessionSealed { session: session.id })
        } else {
            Ok(session.id)
        }
    }

    fn view(&self, id: SessionId, asked: &str) -> Result<SessionView, RegistryError> {
        self.sessions
            .get(&id)
            .map(Session::view)
            .ok_or_else(|| RegistryError::SessionUnknown { session: asked.to_owned() })
    }

    fn is_own_id(&self, peer: &Peer, name: &str) -> bool {
        name.parse()
            .ok()
            .and_then(|id: SessionId| self.sessions.get(&id))
            .is_some_and(|session| session.uid == peer.uid)
    }
}

/// The token in whose place one more that lingers may come where there is room for no more: the
/// one that lingers least, and of such the oldest. The new one lingers as long as both would, so
/// that nobody who only ever attaches keeps others from attaching.
fn replaceable(session: &Session, holder: &Holder) -> Option<(Duration, Timestamp, TokenId)> {
    let asked = match holder {
        Holder::Process(_) => return None,
        Holder::Linger { ttl } => *ttl,
    };
    let lingering = session.tokens.values().filter_map(|token| match token.holder {
        Holder::Process(_) => None,
        Holder::Linger { ttl } => Some((ttl, token.since, token.id)),
    });
    lingering.min().map(|(ttl, since, token)| (ttl.max(asked), since, token))
}
