//! What clients ask for about leases.
//!
//! It must never record what the ground could not make.

use super::ground::Owner;
use super::{GroundError, Namespace, NamespaceError, State};
use crate::registry::{
    Binding, LeaseKind, LeaseView, Lessee, Peer, Policy, Process, Receipt, RegistryError, SessionId,
};

impl Namespace {
    /// Takes a lease on the current generation, making that if there is none. Where only the
    /// lease's own directory can't be made, or the lease not be kept, the generation stays, as the
    /// current one.
    ///
    /// # Errors
    /// Where there is no such session, it is sealed, or a limit or the store forbids it.
    pub fn acquire_lease(
        &self,
        peer: &Peer,
        session: &str,
        kind: LeaseKind,
        binding: Binding,
    ) -> Result<LeaseView, NamespaceError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Lessee { session: id, uid, gid, policy } = state.registry.lessee(peer, session)?;
        let owner = Owner { uid, gid, mode: policy.mode };
        // From here on by its id, which means one session whatever the names are.
        let session = id.as_str();
        self.ensure_generation(state, peer, session, owner)?;
        let before = self.before(state, id);
        let State { registry, draw, .. } = state;
        let now = self.clock.now();
        let new = registry
            .acquire(peer, session, kind, binding, now, draw.as_mut())?
            .ok_or_else(|| RegistryError::SessionUnknown { session: session.to_owned() })?;
        let inode = match kind {
            LeaseKind::Shared => None,
            LeaseKind::Private => {
                let raised = self.ground.raise_lease(new.generation(), &new.id(), owner);
                Some(raised.map_err(|error| refused(error, id, policy))?)
            }
        };
        let (lease, key) = (new.id(), new.generation());
        let outcome = new.commit(inode);
        let outcome =
            self.keep_or_undo(state, id, before, outcome).inspect_err(|_| match kind {
                LeaseKind::Shared => {}
                LeaseKind::Private => self.ground.take_back_lease(key, &lease),
            })?;
        Ok(self.carry_out(state, outcome))
    }

    /// Hangs a lease on a process, whatever it hung on before. Whether the caller may name that
    /// process is for the caller's side to know.
    ///
    /// # Errors
    /// Where there is no such lease, it has ended, or the change can't be kept.
    pub fn bind_lease(
        &self,
        peer: &Peer,
        lease: &str,
        process: Process,
    ) -> Result<LeaseView, NamespaceError> {
        let mut state = self.lock();
        let session = state.registry.lease(peer, lease)?.session;
        let before = self.before(&state, session);
        let outcome = state.registry.bind(peer, lease, process, self.clock.now())?;
        let outcome = self.keep_or_undo(&mut state, session, before, outcome)?;
        Ok(self.carry_out(&mut state, outcome))
    }

    /// A lease that has not ended.
    ///
    /// # Errors
    /// Where there is no such lease, or it has ended.
    pub fn check_lease(&self, peer: &Peer, lease: &str) -> Result<LeaseView, NamespaceError> {
        Ok(self.lock().registry.lease(peer, lease)?)
    }

    /// Ends a lease. For one that has ended already, the receipt is given again for a while.
    ///
    /// # Errors
    /// Where there is no such lease.
    pub fn release_lease(&self, peer: &Peer, lease: &str) -> Result<Receipt, NamespaceError> {
        let mut state = self.lock();
        let outcome = state.registry.release_lease(peer, lease, self.clock.now())?;
        let id = self.carry_out(&mut state, outcome);
        Ok(state.registry.receipt(peer, id)?)
    }

    /// The leases that the caller may touch.
    #[must_use]
    pub fn list_leases(&self, peer: &Peer) -> Vec<LeaseView> {
        self.lock().registry.leases(peer)
    }

    /// The first of them behind an id, in the order of their ids.
    #[must_use]
    pub fn leases_behind(
        &self,
        peer: &Peer,
        after: Option<&str>,
        at_most: usize,
    ) -> Vec<LeaseView> {
        self.lock().registry.leases_behind(peer, after, at_most)
    }

    fn ensure_generation(
        &self,
        state: &mut State,
        peer: &Peer,
        session: &str,
        owner: Owner,
    ) -> Result<(), NamespaceError> {
        let Some(new) = state.registry.new_generation(peer, session)? else { return Ok(()) };
        let view = new.session();
        let room = self.make_room(state, &view)?;
        let Some(new) = state.registry.new_generation(peer, session)? else { return Ok(()) };
        let (number, key) = (new.number(), new.key());
        match self.ground.raise_generation(&view.id, number, key, room, owner) {
            Ok(inode) => {
                new.commit(inode);
                state.rooms.gave(key, room);
            }
            Err(error) => {
                // What retired ones were to give up for it they keep.
                self.share_again(state, &view);
                return Err(refused(error, view.id, view.policy));
            }
        }
        self.keep_changes(state);
        Ok(())
    }
}

/// Where a limit of the session is the reason, it is named.
fn refused(error: GroundError, id: SessionId, policy: Policy) -> NamespaceError {
    match (error, policy.size, policy.inodes) {
        (GroundError::Full, Some(limit), _) => {
            NamespaceError::SessionFull { session: id, limit, held: limit }
        }
        (GroundError::OutOfInodes, _, Some(limit)) => {
            NamespaceError::SessionOutOfInodes { session: id, limit, held: limit }
        }
        (error, _, _) => error.into(),
    }
}
