//! The record of one session, and what can be told from it alone.
//!
//! It must never reach for another session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::generation::Generation;
use super::lease::Lease;
use super::token::Token;
use super::{
    GenerationView, Holder, LeaseId, LeaseKind, LeaseView, NameFault, Policy, Process, SessionId,
    SessionView, TokenId, TokenView,
};
use crate::clock::Timestamp;

/// Bytes of the longest name.
const LONGEST_NAME: usize = 128;

/// A session, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) name: Option<String>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) policy: Policy,
    /// What it was granted at first.
    pub(crate) opened_with: Policy,
    /// Never taken back.
    pub(crate) sealed: bool,
    pub(crate) opened: Timestamp,
    /// When it was last asked for anything, or its last lease ended.
    pub(crate) active: Timestamp,
    pub(crate) inode: u64,
    /// Empty if and only if it is sealed.
    pub(crate) tokens: BTreeMap<TokenId, Token>,
    /// By their numbers; only the last can be one that is not retired.
    pub(crate) generations: BTreeMap<u32, Generation>,
    /// The number of the next generation.
    pub(crate) next_number: u32,
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
}

/// Whether a session may be called this.
pub(crate) fn check_name(name: &str) -> Result<(), NameFault> {
    if name.is_empty() {
        Err(NameFault::Empty)
    } else if name.len() > LONGEST_NAME {
        Err(NameFault::TooLong(name.len()))
    } else if name.chars().any(char::is_control) {
        Err(NameFault::Control)
    } else {
        Ok(())
    }
}

impl Session {
    /// The generation that the next lease is for.
    pub(crate) fn current(&self) -> Option<&Generation> {
        self.generations.values().next_back().filter(|generation| !generation.retired)
    }

    pub(crate) fn retired(&self) -> impl Iterator<Item = &Generation> {
        self.generations.values().filter(|generation| generation.retired)
    }

    pub(crate) fn leases_on(&self, generation: u32) -> usize {
        self.leases.values().filter(|lease| lease.generation == generation).count()
    }

    pub(crate) fn is_held_by(&self, process: Process) -> bool {
        self.tokens.values().any(|token| token.holder == Holder::Process(process))
    }

    /// When a token was released for idleness, if nothing happens until then. A session with a
    /// lease is not idle.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        if !self.leases.is_empty() {
            return None;
        }
        self.tokens.values().filter_map(|token| self.token_expires(token)).min()
    }

    /// When this token is released for idleness, counted from the last activity.
    pub(crate) fn token_expires(&self, token: &Token) -> Option<Timestamp> {
        match token.holder {
            Holder::Process(_) => None,
            Holder::Linger { ttl } => Some(self.active.after(ttl)),
        }
    }

    pub(crate) fn view(&self) -> SessionView {
        let mut leases = BTreeMap::new();
        for lease in self.leases.values() {
            *leases.entry(lease.generation).or_default() += 1;
        }
        SessionView {
            id: self.id,
            name: self.name.clone(),
            uid: self.uid,
            gid: self.gid,
            policy: self.policy,
            sealed: self.sealed,
            current: self.current().map(|generation| generation.number),
            generations: self
                .generations
                .values()
                .map(|generation| GenerationView {
                    number: generation.number,
                    key: generation.key,
                    retired: generation.retired,
                    leases: leases.get(&generation.number).copied().unwrap_or_default(),
                    inode: generation.inode,
                })
                .collect(),
            tokens: self
                .tokens
                .values()
                .map(|token| TokenView { holder: token.holder, since: token.since })
                .collect(),
            leases: self.leases.len(),
            opened: self.opened,
            active: self.active,
            expires: self.expires(),
            inode: self.inode,
        }
    }

    /// Notes that something was asked of it.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.active = self.active.max(now);
    }

    /// A lease by its id.
    pub(crate) fn lease_view(&self, id: LeaseId) -> Option<LeaseView> {
        let lease = self.leases.get(&id)?;
        Some(self.view_of(lease, self.generations.get(&lease.generation)?))
    }

    /// A lease of this session, on this generation of it.
    pub(crate) fn view_of(&self, lease: &Lease, generation: &Generation) -> LeaseView {
        let path_below_mount = match lease.kind {
            LeaseKind::Shared => format!("{}/{}", self.id, generation.number),
            LeaseKind::Private => format!("{}/{}/{}", self.id, generation.number, lease.id),
        };
        LeaseView {
            id: lease.id,
            session: self.id,
            name: self.name.clone(),
            generation: generation.number,
            key: generation.key,
            current: !generation.retired,
            path_below_mount,
            inode: lease.inode,
            served: lease.served,
            kind: lease.kind,
            binding: lease.binding,
            asked_by: lease.asked_by,
            uid: self.uid,
            gid: self.gid,
            policy: self.policy,
            since: lease.since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules() {
        let longest = "n".repeat(LONGEST_NAME);
        let too_long = "é".repeat(LONGEST_NAME / 2 + 1);
        let cases = [
            ("a", Ok(())),
            ("chat 7 / ärger 🦭", Ok(())),
            ("..", Ok(())),
            (longest.as_str(), Ok(())),
            ("", Err(NameFault::Empty)),
            (too_long.as_str(), Err(NameFault::TooLong(LONGEST_NAME + 2))),
            ("a\nb", Err(NameFault::Control)),
            ("a\0", Err(NameFault::Control)),
            ("\u{7f}", Err(NameFault::Control)),
            ("\u{85}", Err(NameFault::Control)),
        ];
        for (name, verdict) in cases {
            assert_eq!(check_name(name), verdict, "{name:?}");
        }
    }
}
