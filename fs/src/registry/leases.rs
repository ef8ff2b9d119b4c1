//! What is asked for about leases: taking, binding and giving them back; and the generations that
//! they are on.
//!
//! It must never make or remove a directory.

use super::lease::Lease;
use super::pending::{NewGeneration, NewLease};
use super::session::Session;
use super::{
    Binding, Draw, Effect, LeaseEnd, LeaseId, LeaseKind, LeaseView, Lessee, Limit, Outcome, Peer,
    Process, Receipt, Registry, RegistryError, SessionId, SessionView, Usage, draw_id,
};
use crate::clock::Timestamp;

impl Registry {
    /// The session, if the rules would grant a lease on it now.
    ///
    /// # Errors
    /// The error that the lease would be refused with.
    pub fn leasable(&self, peer: &Peer, session: &str) -> Result<SessionView, RegistryError> {
        self.granting(peer, session).map(Session::view)
    }

    /// To whom a lease on the session would belong, if the rules would grant one now. What this
    /// costs doesn't depend on how many sessions and leases there are.
    ///
    /// # Errors
    /// The error that the lease would be refused with.
    pub fn lessee(&self, peer: &Peer, session: &str) -> Result<Lessee, RegistryError> {
        let session = self.granting(peer, session)?;
        Ok(Lessee {
            session: session.id,
            uid: session.uid,
            gid: session.gid,
            policy: session.policy,
        })
    }

    fn granting(&self, peer: &Peer, session: &str) -> Result<&Session, RegistryError> {
        let id = self.resolve_open(peer, session)?;
        let record = self.resolve(peer, id.as_str())?;
        let uid = record.uid;
        let value = self.bounds.leases_per_session;
        if record.leases.len() >= value {
            return Err(RegistryError::LimitReached { limit: Limit::LeasesPerSession, value });
        }
        let value = self.bounds.leases_per_uid;
        if uid != 0 && self.index.leases_of(uid) >= value {
            return Err(RegistryError::LimitReached { limit: Limit::LeasesPerUid, value });
        }
        if record.current().is_some() {
            return Ok(record);
        }
        let value = self.bounds.generations;
        if self.next_key.is_none() || self.index.generations() >= value {
            return Err(RegistryError::GenerationsExhausted { value });
        }
        let value = self.bounds.generations_per_uid;
        if uid != 0 && self.index.generations_of(uid) >= value {
            return Err(RegistryError::LimitReached { limit: Limit::GenerationsPerUid, value });
        }
        Ok(record)
    }

    /// A generation for a session that has no current one; `None` where it has.
    ///
    /// # Errors
    /// Where no lease would be granted, or there can't be another generation.
    pub fn new_generation(
        &mut self,
        peer: &Peer,
        session: &str,
    ) -> Result<Option<NewGeneration<'_>>, RegistryError> {
        let id = self.granting(peer, session)?.id;
        let exhausted = RegistryError::GenerationsExhausted { value: self.bounds.generations };
        let unknown = || RegistryError::SessionUnknown { session: session.to_owned() };
        let session = self.sessions.get_mut(&id).ok_or_else(unknown)?;
        if session.current().is_some() {
            return Ok(None);
        }
        let key = self.next_key.ok_or(exhausted)?;
        let (index, changed) = (&mut self.index, &mut self.changed);
        let next_key = &mut self.next_key;
        Ok(Some(NewGeneration { session, index, changed, next_key, key }))
    }

    /// A lease on the current generation of a session; `None` where it has none.
    ///
    /// # Errors
    /// Where the rules don't grant it.
    pub fn acquire(
        &mut self,
        peer: &Peer,
        session: &str,
        kind: LeaseKind,
        binding: Binding,
        now: Timestamp,
        draw: &mut dyn Draw,
    ) -> Result<Option<NewLease<'_>>, RegistryError> {
        let lessee = self.lessee(peer, session)?;
        let taken = |id: &LeaseId| {
            self.index.session_of_lease(*id).is_some() || self.memory.has_lease(lessee.uid, *id)
        };
        let id = draw_id(draw, LeaseId::from_number, taken)?;
        let unknown = || RegistryError::SessionUnknown { session: session.to_owned() };
        let session = self.sessions.get_mut(&lessee.session).ok_or_else(unknown)?;
        let Some(generation) = session.current().cloned() else { return Ok(None) };
        let lease = Lease {
            id,
            generation: generation.number,
            kind,
            binding,
            asked_by: peer.process,
            asker_gone: false,
            since: now,
            inode: generation.inode,
            served: self.served,
        };
        let (index, changed) = (&mut self.index, &mut self.changed);
        Ok(Some(NewLease { session, index, changed, generation, lease }))
    }

    /// Hangs a lease on a process, whatever it hung on before: so a harness may ask for it on its
    /// own process and hand it on to the command once that is there.
    ///
    /// # Errors
    /// Where there is no such lease, or it has ended.
    pub fn bind(
        &mut self,
        peer: &Peer,
        lease: &str,
        process: Process,
        now: Timestamp,
    ) -> Result<Outcome<LeaseView>, RegistryError> {
        let (session, id) = self.resolve_lease(peer, lease)?;
        let session = session.id;
        let mut effects = Vec::new();
        self.touch(session, now);
        self.rebind(session, id, &mut effects, |lease| lease.binding = Binding::Process(process));
        Ok(Outcome { value: self.lease(peer, lease)?, effects })
    }

    /// Ends a lease; nothing follows for one that has ended already and is remembered.
    ///
    /// # Errors
    /// Where there is no such lease.
    pub fn release_lease(
        &mut self,
        peer: &Peer,
        lease: &str,
        now: Timestamp,
    ) -> Result<Outcome<LeaseId>, RegistryError> {
        let id = match self.resolve_lease(peer, lease) {
            Ok((_, id)) => id,
            Err(RegistryError::LeaseEnded { lease, .. }) => lease,
            Err(error) => return Err(error),
        };
        let mut effects = Vec::new();
        self.end_lease(id, LeaseEnd::Released, now, &mut effects);
        Ok(Outcome { value: id, effects })
    }

    /// The receipt of a lease that has ended, as long as it is remembered.
    ///
    /// # Errors
    /// Where there is none.
    pub fn receipt(&self, peer: &Peer, lease: LeaseId) -> Result<Receipt, RegistryError> {
        self.memory
            .receipt(peer, lease)
            .cloned()
            .ok_or_else(|| RegistryError::LeaseUnknown { lease: lease.to_string() })
    }

    /// Adds to the receipt of a lease what its generation held when it ended.
    pub fn note_usage(&mut self, uid: u32, lease: LeaseId, usage: Usage) {
        self.memory.note_usage(uid, lease, usage);
    }

    /// Ends a lease, by whatever cause; a retired generation without one is drained.
    pub(super) fn end_lease(
        &mut self,
        id: LeaseId,
        end: LeaseEnd,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        let Some(session) =
            self.index.session_of_lease(id).and_then(|session| self.sessions.get_mut(&session))
        else {
            return;
        };
        let Some(lease) = session.leases.remove(&id) else { return };
        self.index.remove_lease(&lease, effects);
        session.touch(now);
        self.index.set_expiry(session);
        self.changed.insert(session.id);
        let receipt = Receipt {
            lease: id,
            session: session.id,
            name: session.name.clone(),
            generation: lease.generation,
            kind: lease.kind,
            end,
            since: lease.since,
            ended: now,
            usage: None,
        };
        self.memory.keep_receipt(session.uid, receipt, self.bounds.remembered_per_uid);
        let Some(generation) = session.generations.get(&lease.generation) else { return };
        effects.push(Effect::LeaseEnded {
            lease: id,
            uid: session.uid,
            kind: lease.kind,
            generation: generation.key,
        });
        if generation.retired && session.leases_on(generation.number) == 0 {
            effects.push(Effect::Drain(generation.key));
        }
    }

    /// Changes what a lease hangs on.
    pub(super) fn rebind(
        &mut self,
        session: SessionId,
        lease: LeaseId,
        effects: &mut Vec<Effect>,
        change: impl FnOnce(&mut Lease),
    ) {
        let Some(lease) =
            self.sessions.get_mut(&session).and_then(|session| session.leases.get_mut(&lease))
        else {
            return;
        };
        let before = lease.clone();
        change(lease);
        self.index.move_lease(&before, lease, effects);
        self.changed.insert(session);
    }
}
