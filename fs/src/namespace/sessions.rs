//! What clients ask for about sessions.
//!
//! It must never record what the ground could not make.

use super::ground::{GroundError, Owner, Room};
use super::{Namespace, NamespaceError, State};
use crate::registry::{
    Holder, OpenedSession, Opening, Peer, Policy, PolicyRequest, SessionView, TokenId,
};

impl Namespace {
    /// Opens a session, or attaches to the open one of that name that the caller's uid has. What
    /// the request says of the policy has to be so in a session that it attaches to.
    ///
    /// Whether the caller may name the holder is for the caller's side to know: the kernel tells
    /// there whose process it is.
    ///
    /// # Errors
    /// Where the name, the policy or a limit forbids it, the store can't hold it to its limits, or
    /// the directory can't be made or the session not be kept.
    pub fn open_session(
        &self,
        peer: &Peer,
        name: Option<&str>,
        policy: &PolicyRequest,
        holder: Holder,
    ) -> Result<OpenedSession, NamespaceError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let there = name.and_then(|name| state.registry.open_session_named(peer.uid, name));
        let before = there.and_then(|id| self.before(state, id));
        let State { registry, draw, .. } = state;
        let outcome =
            match registry.open(peer, name, policy, holder, self.clock.now(), draw.as_mut())? {
                Opening::Attached(outcome) => outcome,
                Opening::New(new) => {
                    self.check_limits(new.policy())?;
                    let (uid, gid) = new.owner();
                    let owner = Owner { uid, gid, mode: new.policy().mode };
                    let inode = self.ground.raise_session(&new.id(), owner)?;
                    new.commit(inode)
                }
            };
        let (id, attached) = (outcome.value.session.id, outcome.value.attached);
        let outcome = self.keep_or_undo(state, id, before, outcome).inspect_err(|_| {
            if !attached {
                self.ground.lower_session(&id);
            }
        })?;
        Ok(self.carry_out(state, outcome))
    }

    /// Gives one more owner token of an open session, by its name or id.
    ///
    /// # Errors
    /// Where there is no such session, it is sealed, has too many, or this one can't be kept.
    pub fn retain_session(
        &self,
        peer: &Peer,
        session: &str,
        holder: Holder,
    ) -> Result<TokenId, NamespaceError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let id = state.registry.session(peer, session)?.id;
        let before = self.before(state, id);
        let State { registry, draw, .. } = state;
        let now = self.clock.now();
        let outcome = registry.retain(peer, id.as_str(), holder, now, draw.as_mut())?;
        let outcome = self.keep_or_undo(state, id, before, outcome)?;
        Ok(self.carry_out(state, outcome))
    }

    /// Takes an owner token back; the last one seals the session. A token that was released
    /// before, by whatever cause, is released again without an error.
    ///
    /// # Errors
    /// Where there is no such session or token.
    pub fn release_session(
        &self,
        peer: &Peer,
        session: &str,
        token: &str,
    ) -> Result<(), NamespaceError> {
        let mut state = self.lock();
        let outcome = state.registry.release(peer, session, token, self.clock.now())?;
        self.carry_out(&mut state, outcome);
        Ok(())
    }

    /// Retires the current generation; the next lease makes a fresh one.
    ///
    /// # Errors
    /// Where there is no such session, it is sealed, or the caller is inside a lease of it.
    pub fn rotate_session(
        &self,
        peer: &Peer,
        session: &str,
    ) -> Result<SessionView, NamespaceError> {
        let line = self.lineage.of(peer.process);
        let mut state = self.lock();
        let outcome = state.registry.rotate(peer, &line, session, self.clock.now())?;
        Ok(self.carry_out(&mut state, outcome))
    }

    /// Changes the limits of an open session; what is `None` stays as it is.
    ///
    /// # Errors
    /// Where there is no such session, it is sealed, it holds more than that already, or the store
    /// has no limits.
    pub fn resize_session(
        &self,
        peer: &Peer,
        session: &str,
        size: Option<u64>,
        inodes: Option<u64>,
    ) -> Result<SessionView, NamespaceError> {
        let mut state = self.lock();
        let now = self.clock.now();
        let new = state.registry.resize(peer, session, size, inodes, now)?;
        let (id, policy, same) = (new.session(), new.policy(), new.is_the_same());
        if !same {
            self.check_limits(policy)?;
            let view = state.registry.session(peer, id.as_str())?;
            self.change_room(&mut state, &view, &policy)?;
        }
        state.registry.resize(peer, id.as_str(), size, inodes, now)?.commit();
        self.keep_changes(&mut state);
        self.tell_when_due(&mut state);
        Ok(state.registry.session(peer, session)?)
    }

    /// A session is told at once that its limits can't be held, not by its first lease.
    fn check_limits(&self, policy: Policy) -> Result<(), GroundError> {
        let room = Room { size: policy.size, inodes: policy.inodes };
        if room.is_unlimited() || self.ground.holds_limits() {
            Ok(())
        } else {
            Err(GroundError::NO_LIMITS)
        }
    }

    /// Seals a session whoever retains it. Its leases go on until they end, unless `force` ends
    /// them here.
    ///
    /// # Errors
    /// Where there is no such session, or the caller is inside a lease of it.
    pub fn close_session(
        &self,
        peer: &Peer,
        session: &str,
        force: bool,
    ) -> Result<(), NamespaceError> {
        let line = self.lineage.of(peer.process);
        let mut state = self.lock();
        let outcome = state.registry.close(peer, &line, session, force, self.clock.now())?;
        self.carry_out(&mut state, outcome);
        Ok(())
    }

    /// The sessions that the caller may touch.
    #[must_use]
    pub fn list_sessions(&self, peer: &Peer) -> Vec<SessionView> {
        self.lock().registry.sessions(peer)
    }

    /// The first of them behind an id, in the order of their ids.
    #[must_use]
    pub fn sessions_behind(
        &self,
        peer: &Peer,
        after: Option<&str>,
        at_most: usize,
    ) -> Vec<SessionView> {
        self.lock().registry.sessions_behind(peer, after, at_most)
    }

    /// One session, sealed or not.
    ///
    /// # Errors
    /// Where there is no such session.
    pub fn show_session(&self, peer: &Peer, session: &str) -> Result<SessionView, NamespaceError> {
        Ok(self.lock().registry.session(peer, session)?)
    }

    /// Whether the next lease would be had.
    ///
    /// # Errors
    /// The error that the lease would be refused with.
    pub fn check(&self, peer: &Peer, session: &str) -> Result<SessionView, NamespaceError> {
        let state = self.lock();
        let view = state.registry.leasable(peer, session)?;
        if view.current.is_none() {
            self.check_room(&state, &view)?;
        }
        Ok(view)
    }
}
