//! A namespace that goes on with the sessions of an earlier daemon.
//!
//! Until all of it is found to make sense it must never change anything: whoever refuses to start
//! leaves everything as it is.

use std::sync::Arc;

use thiserror::Error;

use super::ground::{Found, GroundError, Owner};
use super::{Namespace, Surroundings};
use crate::clock::Timestamp;
use crate::node::GenerationKey;
use crate::registry::{
    Contradiction, LeaseId, LeaseKind, Outcome, Process, Registry, SessionRecord,
};
use crate::saved::Earlier;

/// Why the sessions of an earlier daemon can't be had again.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// They can't all be true.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// The filesystem beneath.
    #[error(transparent)]
    Ground(#[from] GroundError),
}

/// What is not there any more of what was kept.
#[derive(Debug, Default)]
struct Lost {
    generations: Vec<GenerationKey>,
    leases: Vec<LeaseId>,
}

impl Namespace {
    /// A namespace that goes on with the sessions of an earlier daemon. Of the processes that
    /// something hung on, those of this boot that live are waited for; the others are gone, and so
    /// are all connections. What was to be discarded is discarded. A generation whose tree isn't
    /// there any more is told and forgotten, never made anew.
    ///
    /// # Errors
    /// Where the sessions contradict themselves or each other, or can't be reached. Nothing has
    /// changed then.
    pub fn restore(
        surroundings: Surroundings,
        earlier: Earlier,
        lives: &dyn Fn(Process) -> bool,
    ) -> Result<Arc<Self>, RestoreError> {
        let Earlier { mut sessions, same_boot } = earlier;
        let Surroundings { bounds, first_key, .. } = surroundings;
        let now = surroundings.clock.now();
        if !same_boot {
            sessions.iter_mut().for_each(|session| session.start_anew(now));
        }
        let registry = Registry::of_kept(bounds, first_key, sessions.clone())?;
        let namespace = Self::of(surroundings, registry);
        let lost = namespace.raise(&sessions)?;
        namespace.settle(&sessions, lost, same_boot, now, &|process| same_boot && lives(process));
        Ok(namespace)
    }

    /// Hangs everything where it was, and says what isn't there any more.
    fn raise(&self, sessions: &[SessionRecord]) -> Result<Lost, GroundError> {
        let mut lost = Lost::default();
        for record in sessions {
            let view = record.view();
            let owner = Owner { uid: view.uid, gid: view.gid, mode: view.policy.mode };
            self.ground.restore_session(&view.id, owner, view.inode)?;
            for generation in &view.generations {
                let (number, key) = (generation.number, generation.key);
                match self.ground.restore_generation(&view.id, number, key, generation.inode)? {
                    Found::Whole => {}
                    Found::Missing(what) => {
                        let (session, key) = (view.id, key.get());
                        tracing::warn!(%session, number, key, what, "a generation is lost");
                        lost.generations.push(generation.key);
                    }
                }
            }
            for lease in record.leases() {
                let private = lease.kind == LeaseKind::Private;
                if !private || lost.generations.contains(&lease.key) {
                    continue;
                }
                match self.ground.restore_lease(lease.key, &lease.id, lease.inode)? {
                    Found::Whole => {}
                    Found::Missing(what) => {
                        tracing::warn!(lease = %lease.id, what, "a lease is lost");
                        lost.leases.push(lease.id);
                    }
                }
            }
        }
        Ok(lost)
    }

    /// Does what has to be done before anybody is served.
    fn settle(
        &self,
        sessions: &[SessionRecord],
        lost: Lost,
        same_boot: bool,
        now: Timestamp,
        lives: &dyn Fn(Process) -> bool,
    ) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if !same_boot {
            // Their moments are of another clock on the disk.
            state.unkept.extend(sessions.iter().map(SessionRecord::id));
        }
        let drained: Vec<_> = state.registry.draining();
        let (living, dead): (Vec<_>, Vec<_>) =
            state.registry.watched().into_iter().partition(|process| lives(*process));
        for process in living {
            self.observer.watch(process);
        }
        let mut effects = Vec::new();
        let mut follow = |outcome: Outcome<()>| effects.extend(outcome.effects);
        for process in dead {
            follow(state.registry.process_gone(process, now));
        }
        for connection in state.registry.connections() {
            follow(state.registry.connection_gone(connection, now));
        }
        for lease in lost.leases {
            follow(state.registry.lose_lease(lease, now));
        }
        for key in &lost.generations {
            follow(state.registry.lose_generation(*key, now));
        }
        effects.retain(|effect| !effect.is_about_any_of(&lost.generations));
        self.carry_out(state, Outcome { value: (), effects });
        for key in drained.into_iter().filter(|key| !lost.generations.contains(key)) {
            state.left.drains(key, now);
            self.ground.drain(key, self.when_gone(key), self.when_stuck(key));
        }
    }
}
