//! What passes without being asked for: processes, connections, time, and generations that are
//! gone.
//!
//! It must never ask whether any of it is true: whoever says so has to know.

use super::Effect;
use super::index::{Anchor, Hanging};
use super::{Binding, ConnectionId, LeaseEnd, LeaseId, Outcome, Process, Registry, TokenId};
use crate::clock::Timestamp;
use crate::node::GenerationKey;

impl Registry {
    /// A process is gone: its leases end and its tokens are released. It is not watched any more.
    pub fn process_gone(&mut self, process: Process, now: Timestamp) -> Outcome<()> {
        let mut effects = Vec::new();
        // Leases come first: a token may seal a session, and what then holds of its leases depends
        // on which of those who asked for them are gone.
        for hanging in self.index.cut(Anchor::Process(process)) {
            match hanging {
                Hanging::Lease(lease) => self.lease_lost_process(lease, now, &mut effects),
                Hanging::Token(session, token) => {
                    self.remove_token(session, token, now, &mut effects);
                }
            }
        }
        Outcome { value: (), effects }
    }

    /// A connection is gone: its leases end.
    pub fn connection_gone(&mut self, connection: ConnectionId, now: Timestamp) -> Outcome<()> {
        let mut effects = Vec::new();
        for hanging in self.index.cut(Anchor::Connection(connection)) {
            match hanging {
                Hanging::Lease(lease) => {
                    self.end_lease(lease, LeaseEnd::ConnectionGone, now, &mut effects);
                }
                // Tokens hang on processes alone.
                Hanging::Token(..) => {}
            }
        }
        Outcome { value: (), effects }
    }

    /// Time has passed: tokens whose session was idle for too long are released.
    pub fn tick(&mut self, now: Timestamp) -> Outcome<()> {
        let mut effects = Vec::new();
        while let Some((at, id)) = self.index.next_expiry() {
            let Some(session) = self.sessions.get(&id).filter(|_| at <= now) else { break };
            let over: Vec<TokenId> = session
                .tokens
                .values()
                .filter(|token| session.token_expires(token).is_some_and(|at| at <= now))
                .map(|token| token.id)
                .collect();
            for token in over {
                self.remove_token(id, token, now, &mut effects);
            }
        }
        Outcome { value: (), effects }
    }

    /// A generation that was to be drained is gone. Whether it was to be drained.
    pub fn drained(&mut self, key: GenerationKey) -> Outcome<bool> {
        let mut effects = Vec::new();
        let value = self.forget_generation(key, &mut effects);
        Outcome { value, effects }
    }

    fn forget_generation(&mut self, key: GenerationKey, effects: &mut Vec<Effect>) -> bool {
        let Some(session) =
            self.index.session_of_generation(key).and_then(|id| self.sessions.get_mut(&id))
        else {
            return false;
        };
        let number = session
            .retired()
            .find(|generation| generation.key == key)
            .map(|generation| generation.number)
            .filter(|number| session.leases_on(*number) == 0);
        let Some(number) = number else { return false };
        session.generations.remove(&number);
        let id = session.id;
        self.index.remove_generation(key);
        self.changed.insert(id);
        self.forget_if_over(id, effects);
        true
    }

    /// The process that a lease hangs on is gone.
    fn lease_lost_process(&mut self, id: LeaseId, now: Timestamp, effects: &mut Vec<Effect>) {
        let Some(session) =
            self.index.session_of_lease(id).and_then(|session| self.sessions.get(&session))
        else {
            return;
        };
        let unbound =
            session.leases.get(&id).is_some_and(|lease| lease.binding == Binding::Unbound);
        if unbound && !session.sealed {
            // Another process of the same user may still bind it.
            let session = session.id;
            self.rebind(session, id, effects, |lease| lease.asker_gone = true);
        } else {
            self.end_lease(id, LeaseEnd::ProcessGone, now, effects);
        }
    }
}
