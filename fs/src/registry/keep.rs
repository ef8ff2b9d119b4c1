//! Sessions as they are kept for a registry that goes on later: what has to be kept, what it takes
//! back, and whether it can be true.
//!
//! It must never mend what can't be: whoever reads it has to hear of that.

use std::collections::BTreeSet;

use thiserror::Error;

use super::index::Index;
use super::memory::Memory;
use super::session::{Session, check_name};
use super::{
    Bounds, ConnectionId, Effect, LeaseEnd, LeaseId, LeaseView, Outcome, Registry, Served,
    SessionId, SessionView,
};
use crate::clock::Timestamp;
use crate::node::{GenerationKey, Node};

/// A session with everything that hangs on it, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord(pub(crate) Session);

/// Kept sessions that no registry has ever had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("session {session} can't be as it is kept: {rule}")]
pub struct Contradiction {
    /// The session.
    pub session: SessionId,
    /// What can't be.
    pub rule: &'static str,
}

impl SessionRecord {
    /// The id of the session.
    #[must_use]
    pub const fn id(&self) -> SessionId {
        self.0.id
    }

    /// The session as clients see it.
    #[must_use]
    pub fn view(&self) -> SessionView {
        self.0.view()
    }

    /// Its leases.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseView> {
        self.0.leases.keys().filter_map(|id| self.0.lease_view(*id)).collect()
    }

    /// The machine has started anew, and on its clock it is `now`. No command outlives that, so
    /// there are no leases. Idle times begin anew with the clock, and everything else is as long
    /// ago as it was when the session was last active, as far as the clock goes back.
    pub(crate) fn start_anew(&mut self, now: Timestamp) {
        let last = self.0.active;
        let moved = |moment: Timestamp| now.before(last.since(moment));
        let Session { opened, active, tokens, leases, .. } = &mut self.0;
        *opened = moved(*opened);
        tokens.values_mut().for_each(|token| token.since = moved(token.since));
        leases.clear();
        *active = now;
    }
}

impl Registry {
    /// A registry that goes on with sessions that were kept. What has ended isn't among them, so
    /// nobody is answered twice about it. What follows is as for
    /// [`from_records`](Self::from_records).
    ///
    /// # Errors
    /// Where they can't be what a registry had.
    pub fn of_kept(
        bounds: Bounds,
        first_key: GenerationKey,
        kept: Vec<SessionRecord>,
    ) -> Result<Self, Contradiction> {
        let mut found = Found::default();
        for SessionRecord(session) in &kept {
            let rule = broken_rule(session).or_else(|| found.add(session));
            if let Some(rule) = rule {
                return Err(Contradiction { session: session.id, rule });
            }
        }
        let next_key = match found.keys.last() {
            None => Some(first_key),
            Some(last) => GenerationKey::new(last.get() + 1).map(|next| next.max(first_key)),
        };
        Ok(Self {
            bounds,
            next_key,
            served: Served::default(),
            index: Index::of(kept.iter().map(|SessionRecord(session)| session)),
            sessions: kept.into_iter().map(|record| (record.0.id, record.0)).collect(),
            memory: Memory::default(),
            changed: BTreeSet::new(),
        })
    }

    /// The open session of this name that a uid has.
    #[must_use]
    pub fn open_session_named(&self, uid: u32, name: &str) -> Option<SessionId> {
        self.index.named(uid, name)
    }

    /// A session as it has to be kept; `None` for one that is gone.
    #[must_use]
    pub fn record(&self, id: SessionId) -> Option<SessionRecord> {
        self.sessions.get(&id).cloned().map(SessionRecord)
    }

    /// The sessions that are not, or no longer, as they were when this was last asked for.
    pub fn take_changed(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.changed)
    }

    /// A session was kept by itself, as it is now.
    pub fn was_kept(&mut self, id: SessionId) {
        self.changed.remove(&id);
    }

    /// A decision about one session can't be kept: the session is as it was before, and what
    /// followed from the decision must not be done. Whatever was remembered stays so: it answers
    /// only for what isn't there.
    pub fn undo(&mut self, id: SessionId, before: Option<SessionRecord>) {
        if let Some(undone) = self.sessions.remove(&id) {
            self.index.remove(&undone);
        }
        if let Some(SessionRecord(session)) = before {
            self.index.add(&session);
            self.sessions.insert(id, session);
        }
        self.changed.insert(id);
    }

    /// The connections whose end matters.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionId> {
        self.index.connections().collect()
    }

    /// The directory of a private lease isn't there any more.
    pub fn lose_lease(&mut self, lease: LeaseId, now: Timestamp) -> Outcome<()> {
        let mut effects = Vec::new();
        self.end_lease(lease, LeaseEnd::DirectoryGone, now, &mut effects);
        // Nothing is there to be ended.
        effects.retain(|effect| match effect {
            Effect::LeaseEnded { .. } => false,
            Effect::Drain(_) | Effect::LowerSession(_) | Effect::Watch(_) | Effect::Unwatch(_) => {
                true
            }
        });
        Outcome { value: (), effects }
    }

    /// The tree of a generation isn't there any more: its leases end, and it is forgotten without
    /// being drained.
    pub fn lose_generation(&mut self, key: GenerationKey, now: Timestamp) -> Outcome<()> {
        let mut effects = Vec::new();
        let session =
            self.index.session_of_generation(key).and_then(|id| self.sessions.get_mut(&id));
        let Some(session) = session else { return Outcome { value: (), effects } };
        let id = session.id;
        let number = session.generations.values().find(|generation| generation.key == key);
        let Some(number) = number.map(|generation| generation.number) else {
            return Outcome { value: (), effects };
        };
        let leases = session.leases.values().filter(|lease| lease.generation == number);
        let leases: Vec<LeaseId> = leases.map(|lease| lease.id).collect();
        for lease in leases {
            self.end_lease(lease, LeaseEnd::DirectoryGone, now, &mut effects);
        }
        // Nothing is there to be drained, nor to be looked at for a receipt.
        effects.retain(|effect| !effect.is_about_any_of(&[key]));
        if let Some(session) = self.sessions.get_mut(&id) {
            session.generations.remove(&number);
        }
        self.index.remove_generation(key);
        self.changed.insert(id);
        self.forget_if_over(id, &mut effects);
        Outcome { value: (), effects }
    }
}

/// What no two sessions have in common.
#[derive(Default)]
struct Found {
    inodes: BTreeSet<u64>,
    keys: BTreeSet<GenerationKey>,
    leases: BTreeSet<LeaseId>,
    names: BTreeSet<(u32, String)>,
}

impl Found {
    fn add(&mut self, session: &Session) -> Option<&'static str> {
        let open = session.name.clone().filter(|_| !session.sealed);
        if !self.inodes.insert(session.inode) {
            Some("another one has its inode number")
        } else if !session.generations.values().all(|new| self.keys.insert(new.key)) {
            Some("another one has its generation")
        } else if !session.leases.keys().all(|lease| self.leases.insert(*lease)) {
            Some("another one has its lease")
        } else if open.is_some_and(|name| !self.names.insert((session.uid, name))) {
            Some("another open one has its name")
        } else {
            None
        }
    }
}

/// The rule that a session breaks by itself.
fn broken_rule(session: &Session) -> Option<&'static str> {
    let directory = Node::from_raw(session.inode);
    let has_directory = directory.is_above_generations() && directory > Node::ROOT;
    let generations = || session.generations.values();
    let keys = GenerationKey::FIRST..=GenerationKey::MAX;
    let last = generations().next_back().map(|generation| generation.number);
    if session.name.as_deref().is_some_and(|name| check_name(name).is_err()) {
        Some("its name is not one")
    } else if session.uid == u32::MAX || session.gid == u32::MAX {
        Some("its owner is nobody that there can be")
    } else if !has_directory {
        Some("its inode number is not one of a session")
    } else if session.sealed != session.tokens.is_empty() {
        Some("it is sealed if and only if it has no owner")
    } else if session.sealed && (last.is_none() || session.current().is_some()) {
        Some("what is sealed has generations, all of them retired")
    } else if generations().any(|one| !one.retired && Some(one.number) != last) {
        Some("only the last generation is current")
    } else if generations().any(|one| !keys.contains(&one.key)) {
        Some("the key of a generation is not one")
    } else if last.is_some_and(|last| last >= session.next_number)
        || session.next_number == 0
        || session.next_number == u32::MAX
    {
        Some("its next generation has a number that was never used")
    } else if !session.leases.values().all(|one| session.generations.contains_key(&one.generation))
    {
        Some("a lease is on a generation of it")
    } else {
        None
    }
}
