//! Keeps in the ledger what was decided, before it is answered for.
//!
//! What gives something to a client isn't given where it can't be kept. What takes something back
//! must never fail for that: it is kept as soon as there is room again.

use std::collections::BTreeSet;

use super::ledger::Ledger;
use super::{GroundError, Namespace, State};
use crate::registry::{Outcome, Registry, SessionId, SessionRecord};

impl Namespace {
    /// What a session has to be put back to if the decision that comes next can't be kept.
    pub(super) fn before(&self, state: &State, id: SessionId) -> Option<SessionRecord> {
        self.ledger.as_ref().and_then(|_| state.registry.record(id))
    }

    /// Keeps a decision about one session, or undoes it.
    pub(super) fn keep_or_undo<T>(
        &self,
        state: &mut State,
        id: SessionId,
        before: Option<SessionRecord>,
        outcome: Outcome<T>,
    ) -> Result<Outcome<T>, GroundError> {
        let Some(ledger) = &self.ledger else { return Ok(outcome) };
        // What could not be kept before comes first: together with it, this may make no sense.
        let kept = self
            .keep_each(state, BTreeSet::new())
            .and_then(|()| keep(&**ledger, &state.registry, id));
        if let Err(error) = kept {
            state.registry.undo(id, before);
            self.keep_changes(state);
            return Err(error);
        }
        state.registry.was_kept(id);
        Ok(outcome)
    }

    /// Keeps all that has changed, and what could not be kept before.
    pub(super) fn keep_changes(&self, state: &mut State) {
        let changed = state.registry.take_changed();
        // It was told, and is tried again.
        let _ = self.keep_each(state, changed);
    }

    /// Keeps these sessions after what could not be kept before; the first failure.
    fn keep_each(
        &self,
        state: &mut State,
        changed: BTreeSet<SessionId>,
    ) -> Result<(), GroundError> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let State { registry, unkept, .. } = state;
        let late = std::mem::take(unkept);
        let mut kept = Ok(());
        for id in late.iter().chain(changed.difference(&late)) {
            if let Err(error) = keep(&**ledger, registry, *id) {
                if !late.contains(id) {
                    tracing::error!(session = %id, %error, "a change can't be saved yet");
                }
                unkept.insert(*id);
                kept = kept.and(Err(error));
            }
        }
        kept
    }
}

fn keep(ledger: &dyn Ledger, registry: &Registry, id: SessionId) -> Result<(), GroundError> {
    match registry.record(id) {
        Some(session) => ledger.keep(&session),
        None => ledger.strike(id),
    }
}
