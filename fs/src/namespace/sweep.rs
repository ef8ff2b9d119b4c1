//! What is left of what has ended: what could be swept away, and what waits until it is let go.
//!
//! It must never name anything that is leased, nor take away what anybody uses: that is asked anew
//! for each thing at the moment it is to go.

use std::collections::BTreeMap;

use super::ground::{Blockage, GroundError, Remains, Stuck};
use super::observer::Leaving;
use super::{Namespace, State};
use crate::clock::Timestamp;
use crate::node::GenerationKey;
use crate::registry::{LeaseId, Peer, SessionId, Usage};

/// Ended leases that are remembered. What others leave goes with their generation.
const REMEMBERED: usize = 65_536;

/// Something that has ended and is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// What it is.
    pub what: What,
    /// Whose it is.
    pub uid: u32,
    /// Since when it is left, where that is known.
    pub since: Option<Timestamp>,
    /// What it holds, where that can be told.
    pub usage: Option<Usage>,
    /// Whether it stays because something in it is used.
    pub busy: bool,
    /// Whether it was swept away.
    pub swept: bool,
    /// Why it could not be looked at or swept.
    pub refused: Option<GroundError>,
}

/// A kind of leftover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The directory of a private lease that has ended.
    Lease {
        /// Its session.
        session: SessionId,
        /// The number of its generation.
        generation: u32,
        /// The lease.
        lease: LeaseId,
    },
    /// A generation that is to go and waits until it is let go.
    Retired {
        /// Its session.
        session: SessionId,
        /// Its number.
        generation: u32,
    },
    /// A generation that an earlier daemon has left and that no session has.
    Unclaimed {
        /// Its key.
        key: GenerationKey,
    },
}

/// What has ended and is not gone.
#[derive(Debug, Default)]
pub(super) struct Left {
    leases: BTreeMap<GenerationKey, BTreeMap<LeaseId, Ended>>,
    remembered: usize,
    draining: BTreeMap<GenerationKey, Draining>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    inode: u64,
    since: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Draining {
    since: Timestamp,
    /// Whether somebody was told that it is stuck.
    told: bool,
}

impl Left {
    /// A private lease has ended and its directory stays.
    pub(super) fn lease(
        &mut self,
        key: GenerationKey,
        lease: LeaseId,
        inode: Option<u64>,
        since: Timestamp,
    ) {
        if let Some(inode) = inode.filter(|_| self.remembered < REMEMBERED) {
            self.leases.entry(key).or_default().insert(lease, Ended { inode, since });
            self.remembered += 1;
        }
    }

    fn forget_lease(&mut self, key: GenerationKey, lease: &LeaseId) {
        if let Some(leases) = self.leases.get_mut(&key)
            && leases.remove(lease).is_some()
        {
            self.remembered -= 1;
        }
    }

    /// A generation is to go.
    pub(super) fn drains(&mut self, key: GenerationKey, since: Timestamp) {
        self.draining.insert(key, Draining { since, told: false });
    }

    /// A generation is gone; whether somebody was told that it was stuck.
    pub(super) fn forget(&mut self, key: GenerationKey) -> bool {
        self.remembered -= self.leases.remove(&key).map_or(0, |leases| leases.len());
        self.draining.remove(&key).is_some_and(|draining| draining.told)
    }
}

impl State {
    /// Whose a generation is.
    pub(super) fn leaving(&self, key: GenerationKey) -> Option<Leaving> {
        let session = self.registry.record(self.registry.session_of_generation(key)?)?.view();
        let generation = session.generations.iter().find(|generation| generation.key == key)?;
        Some(Leaving { session: session.id, uid: session.uid, number: generation.number })
    }
}

impl Namespace {
    /// What the ground calls where a generation that is drained doesn't go.
    pub(super) fn when_stuck(&self, key: GenerationKey) -> Stuck {
        let this = self.this.clone();
        Box::new(move |why| {
            if let Some(namespace) = this.upgrade() {
                namespace.stuck(key, why);
            }
        })
    }

    fn stuck(&self, key: GenerationKey, why: Blockage) {
        let mut state = self.lock();
        let Some(leaving) = state.leaving(key) else { return };
        if let Some(draining) = state.left.draining.get_mut(&key) {
            draining.told = true;
        }
        self.observer.discard_blocked(leaving, Some(why));
    }

    /// What is left over of what the caller may touch, at most so much, and whether there is more;
    /// and where it is to be swept, what became of it. It takes as long as that is large, so it
    /// belongs on a thread that nobody waits for.
    pub fn sweep(&self, peer: &Peer, sweep: bool, most: usize) -> (Vec<Leftover>, bool) {
        let mut found = self.waiting(peer);
        for (key, lease, mut leftover) in self.ended(peer) {
            if found.len() >= most {
                return (found, true);
            }
            let remains = self.ground.sweep_lease(key, &lease, leftover.inode, sweep);
            if matches!(remains, Ok(Remains::Nothing | Remains::Swept(_))) {
                self.lock().left.forget_lease(key, &lease);
            }
            if leftover.thing.take_in(remains) {
                found.push(leftover.thing);
            }
        }
        let claimed = |key| self.lock().registry.session_of_generation(key).is_some();
        let unclaimed = self.ground.unclaimed(self.first_key, &claimed).unwrap_or_else(|error| {
            tracing::warn!(%error, "the store can't be looked at");
            Vec::new()
        });
        for generation in unclaimed.into_iter().filter(|found| peer.may_touch(found.uid)) {
            if found.len() >= most {
                return (found, true);
            }
            let what = What::Unclaimed { key: generation.key };
            let mut leftover = Leftover {
                usage: Some(generation.usage),
                ..Leftover::of(what, generation.uid, None)
            };
            // No session ever gets a key of before.
            if sweep && !claimed(generation.key) {
                let swept = self.ground.sweep_generation(generation.key);
                (leftover.swept, leftover.refused) = (swept.is_ok(), swept.err());
            }
            found.push(leftover);
        }
        (found, false)
    }

    /// The generations that wait until they are let go.
    fn waiting(&self, peer: &Peer) -> Vec<Leftover> {
        let state = self.lock();
        let waiting = state.left.draining.iter().filter_map(|(key, draining)| {
            let Leaving { session, uid, number } = state.leaving(*key)?;
            let what = What::Retired { session, generation: number };
            let usage = self.ground.used(*key).ok().filter(|_| self.ground.holds_limits());
            let leftover = Leftover::of(what, uid, Some(draining.since));
            Some(Leftover { usage, busy: true, ..leftover })
        });
        waiting.filter(|leftover| peer.may_touch(leftover.uid)).collect()
    }

    /// The leases that have ended in generations that stay.
    fn ended(&self, peer: &Peer) -> Vec<(GenerationKey, LeaseId, EndedLease)> {
        let state = self.lock();
        let mut ended = Vec::new();
        for (key, leases) in &state.left.leases {
            let Some(Leaving { session, uid, number: generation }) = state.leaving(*key) else {
                continue;
            };
            if !peer.may_touch(uid) || state.left.draining.contains_key(key) {
                continue;
            }
            for (lease, Ended { inode, since }) in leases {
                let what = What::Lease { session, generation, lease: *lease };
                let thing = Leftover::of(what, uid, Some(*since));
                ended.push((*key, *lease, EndedLease { inode: *inode, thing }));
            }
        }
        ended
    }
}

/// A lease that has ended, before it was looked what is left of it.
struct EndedLease {
    inode: u64,
    thing: Leftover,
}

impl Leftover {
    const fn of(what: What, uid: u32, since: Option<Timestamp>) -> Self {
        Self { what, uid, since, usage: None, busy: false, swept: false, refused: None }
    }

    /// What was found of it; whether there is anything.
    fn take_in(&mut self, remains: Result<Remains, GroundError>) -> bool {
        match remains {
            Ok(Remains::Nothing) => return false,
            Ok(Remains::InUse(usage)) => (self.usage, self.busy) = (Some(usage), true),
            Ok(Remains::Unused(usage)) => self.usage = Some(usage),
            Ok(Remains::Swept(usage)) => (self.usage, self.swept) = (Some(usage), true),
            Err(error) => self.refused = Some(error),
        }
        true
    }
}
