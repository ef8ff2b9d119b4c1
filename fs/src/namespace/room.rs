//! Holds sessions to their limits and the daemon to its total, by what each generation may hold.
//!
//! It must never count a generation that is gone, and never let the generations of a session
//! together hold more than its limit: what shrinks comes before what grows.

use std::collections::{BTreeMap, BTreeSet};

use super::ground::{GroundError, Room};
use super::share::{Part, Spare, share};
use super::{Namespace, NamespaceError, State};
use crate::node::GenerationKey;
use crate::registry::{Policy, Registry, SessionId, SessionView, Usage};

/// How often it is looked again where a generation has grown while it was looked at.
const TRIES: usize = 4;

/// Inodes are counted one by one.
const ONE: u64 = 1;

/// What generations may hold, and held when it was looked last.
#[derive(Debug)]
pub(super) struct Rooms {
    /// Bytes that all generations together may hold, where there is a limit.
    total: Option<u64>,
    given: BTreeMap<GenerationKey, Room>,
    held: BTreeMap<GenerationKey, u64>,
    /// Those that were written in the second that goes on.
    written: BTreeSet<GenerationKey>,
}

/// What the daemon's total is, and what is held of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// Bytes that all generations together may hold.
    pub limit: u64,
    /// Bytes that they hold.
    pub used: u64,
}

/// How things stand with the daemon's total when it was looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// It has to be looked again although nobody writes.
    pub near: bool,
    /// It matters who begins to write until it is looked again.
    pub tight: bool,
}

/// What one generation of a session holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// `None` for one that is to be made.
    key: Option<GenerationKey>,
    retired: bool,
    usage: Usage,
}

/// What a generation is to be given; without a key, one that is to be made.
type Wanted = (Option<GenerationKey>, Room);

impl Rooms {
    pub(super) const fn new(total: Option<u64>) -> Self {
        Self { total, given: BTreeMap::new(), held: BTreeMap::new(), written: BTreeSet::new() }
    }

    /// A generation was made with this room.
    pub(super) fn gave(&mut self, key: GenerationKey, room: Room) {
        self.given.insert(key, room);
    }

    /// A generation is gone.
    pub(super) fn forget(&mut self, key: GenerationKey) {
        self.given.remove(&key);
        self.held.remove(&key);
        self.written.remove(&key);
    }
}

impl Namespace {
    /// Makes room for a new generation of a session; what that may hold.
    pub(super) fn make_room(
        &self,
        state: &mut State,
        session: &SessionView,
    ) -> Result<Room, NamespaceError> {
        let State { registry, rooms, .. } = state;
        let mut tries = 0;
        loop {
            let wanted = self.wanted(registry, rooms, session, &session.policy, true)?;
            match self.give(rooms, &wanted) {
                Ok(()) => return Ok(wanted.last().map(|(_, room)| *room).unwrap_or_default()),
                Err(GroundError::Unfit) if tries < TRIES => tries += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What a new generation of a session would be refused with.
    pub(super) fn check_room(
        &self,
        state: &State,
        session: &SessionView,
    ) -> Result<(), NamespaceError> {
        self.wanted(&state.registry, &state.rooms, session, &session.policy, true).map(drop)
    }

    /// Holds a session to other limits. Where that fails it is held to those that it had.
    pub(super) fn change_room(
        &self,
        state: &mut State,
        session: &SessionView,
        policy: &Policy,
    ) -> Result<(), NamespaceError> {
        let State { registry, rooms, .. } = state;
        let given = self
            .wanted(registry, rooms, session, policy, false)
            .and_then(|wanted| self.give(rooms, &wanted).map_err(NamespaceError::from));
        if given.is_err() {
            self.share_again(state, session);
        }
        given
    }

    /// Shares a session's room anew among the generations that it has.
    pub(super) fn share_again(&self, state: &mut State, session: &SessionView) {
        if !self.ground.holds_limits() {
            return;
        }
        let State { registry, rooms, .. } = state;
        let shared = self
            .wanted(registry, rooms, session, &session.policy, false)
            .and_then(|wanted| self.give(rooms, &wanted).map_err(NamespaceError::from));
        if let Err(error) = shared {
            // Nothing is lost: each generation keeps to the room that it has.
            tracing::debug!(session = %session.id, %error, "its room can't be shared anew");
        }
    }

    /// Looks at what all generations hold, and shares room anew: once a second, and in between
    /// where one more begins to be written.
    pub fn look_at_room(&self, second_is_over: bool) -> Look {
        if !self.ground.holds_limits() {
            return Look::default();
        }
        let mut guard = self.lock();
        let state = &mut *guard;
        let sessions = state.registry.sessions_in_use();
        if second_is_over {
            state.rooms.written.clear();
        }
        let mut used = 0_u64;
        for generation in sessions.iter().flat_map(|session| &session.generations) {
            let Ok(Usage { bytes, .. }) = self.ground.used(generation.key) else { continue };
            used = used.saturating_add(bytes);
            let before = state.rooms.held.insert(generation.key, bytes);
            let opened = self.ground.is_written(generation.key, second_is_over);
            if opened || before.unwrap_or_default() < bytes {
                state.rooms.written.insert(generation.key);
            }
        }
        let writers = state.rooms.written.len();
        let spare = state.rooms.total.map(|total| self.spare(total, used, writers));
        for session in &sessions {
            let wanted = self.shares(session, &session.policy, false, spare);
            let Ok(mut wanted) = wanted else { continue };
            // Parts of a session's own limit belong together.
            if let Some(spare) = spare.filter(|_| session.policy.size.is_none()) {
                wanted.retain(|(key, room)| {
                    let given = key.and_then(|key| state.rooms.given.get(&key)?.size);
                    let written = key.is_some_and(|key| state.rooms.written.contains(&key));
                    written || is_worth_it(given, room.size, spare)
                });
            }
            // One that has grown meanwhile is looked at again in a second.
            if let Err(error) = self.give(&mut state.rooms, &wanted) {
                tracing::debug!(session = %session.id, %error, "its room can't be shared anew");
            }
        }
        let is = |of: fn(Spare) -> bool| spare.is_some_and(of);
        Look { near: is(Spare::is_near), tight: is(Spare::is_tight) }
    }

    /// The daemon's total, where it has one.
    #[must_use]
    pub fn total(&self) -> Option<Total> {
        let state = self.lock();
        let limit = state.rooms.total?;
        Some(Total { limit, used: self.used_by_all(&state.registry) })
    }

    fn used_by_all(&self, registry: &Registry) -> u64 {
        let used = |key| self.ground.used(key).map_or(0, |usage| usage.bytes);
        registry.generations().map(used).fold(0, u64::saturating_add)
    }

    fn spare(&self, total: u64, used: u64, writers: usize) -> Spare {
        Spare::of(total, used, writers, self.ground.grain())
    }

    /// What each generation of a session may hold from now on, the newest last.
    fn wanted(
        &self,
        registry: &Registry,
        rooms: &Rooms,
        session: &SessionView,
        policy: &Policy,
        new: bool,
    ) -> Result<Vec<Wanted>, NamespaceError> {
        if !self.ground.holds_limits() {
            return Ok(vec![(None, Room::default())]);
        }
        let spare = rooms.total.map(|limit| {
            let used = self.used_by_all(registry);
            let writers = rooms.written.len() + usize::from(new);
            (Total { limit, used }, self.spare(limit, used, writers))
        });
        if let Some((Total { limit, used }, spare)) = spare
            && new
            && spare.left() < self.ground.grain()
        {
            return Err(NamespaceError::TotalReached { limit, used });
        }
        self.shares(session, policy, new, spare.map(|(_, spare)| spare))
    }

    fn shares(
        &self,
        session: &SessionView,
        policy: &Policy,
        new: bool,
        spare: Option<Spare>,
    ) -> Result<Vec<Wanted>, NamespaceError> {
        let mut held = Vec::new();
        for generation in &session.generations {
            let usage = self.ground.used(generation.key)?;
            held.push(Held { key: Some(generation.key), retired: generation.retired, usage });
        }
        if new {
            held.push(Held { key: None, retired: false, usage: Usage::default() });
        }
        let grain = self.ground.grain();
        let mut rooms = rooms_of(session.id, policy, &held, grain)?;
        if let Some(spare) = spare {
            for (room, held) in rooms.iter_mut().zip(&held) {
                let most = spare.most(held.usage.bytes, grain);
                room.size = Some(room.size.map_or(most, |size| size.min(most)));
            }
        }
        Ok(held.iter().map(|held| held.key).zip(rooms).collect())
    }

    /// Gives generations room: each first the least of what it has and what it gets.
    fn give(&self, rooms: &mut Rooms, wanted: &[Wanted]) -> Result<(), GroundError> {
        for shrinking in [true, false] {
            for (key, room) in wanted {
                let Some(key) = key else { continue };
                let given = rooms.given.get(key).copied().unwrap_or_default();
                let next = if shrinking { least(given, *room) } else { *room };
                if next != given {
                    self.ground.resize(*key, next)?;
                    rooms.given.insert(*key, next);
                }
            }
        }
        Ok(())
    }
}

/// Whether a generation is given other room in passing: not for a small part of what is left, and
/// rather less than more.
fn is_worth_it(given: Option<u64>, wanted: Option<u64>, spare: Spare) -> bool {
    match (given, wanted) {
        (Some(given), Some(wanted)) if wanted < given => given - wanted > spare.left() / 64,
        (Some(given), Some(wanted)) => wanted - given > spare.left() / 8,
        (given, wanted) => given != wanted,
    }
}

fn least(one: Room, other: Room) -> Room {
    let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    Room { size: least(one.size, other.size), inodes: least(one.inodes, other.inodes) }
}

/// What a policy leaves each of a session's generations.
fn rooms_of(
    session: SessionId,
    policy: &Policy,
    held: &[Held],
    grain: u64,
) -> Result<Vec<Room>, NamespaceError> {
    let mut rooms = vec![Room::default(); held.len()];
    let parts = |used: fn(&Usage) -> u64| {
        let part = |held: &Held| Part { retired: held.retired, used: used(&held.usage) };
        held.iter().map(part).collect::<Vec<_>>()
    };
    if let Some(limit) = policy.size {
        let parts = parts(|usage| usage.bytes);
        let full = |held| NamespaceError::SessionFull { session, limit, held };
        let sizes = share(limit, &parts, grain).ok_or_else(|| short(&parts, full))?;
        rooms.iter_mut().zip(sizes).for_each(|(room, size)| room.size = Some(size));
    }
    if let Some(limit) = policy.inodes {
        let parts = parts(|usage| usage.inodes);
        let full = |held| NamespaceError::SessionOutOfInodes { session, limit, held };
        let counts = share(limit, &parts, ONE).ok_or_else(|| short(&parts, full))?;
        rooms.iter_mut().zip(counts).for_each(|(room, inodes)| room.inodes = Some(inodes));
    }
    Ok(rooms)
}

/// What is wrong where a limit isn't enough for all parts: retired ones leave nothing, or the
/// current one holds more already.
fn short(parts: &[Part], full: impl FnOnce(u64) -> NamespaceError) -> NamespaceError {
    let retired = || parts.iter().filter(|part| part.retired);
    let waits = retired().count() > 0 && parts.iter().all(|part| part.retired || part.used == 0);
    if waits {
        full(retired().map(|part| part.used).fold(0, u64::saturating_add))
    } else {
        GroundError::Unfit.into()
    }
}
