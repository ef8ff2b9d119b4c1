//! What is remembered of what has ended, so that whoever asks twice is answered twice.
//!
//! It must never grow without bound, nor must one uid's asking make another's answers forgotten.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{LeaseId, Peer, Receipt, SessionId, TokenId, Usage};

/// What has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    of_uid: BTreeMap<u32, Remembered>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    /// Oldest first.
    receipts: VecDeque<Receipt>,
    /// Oldest first.
    tokens: VecDeque<ReleasedToken>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ReleasedToken {
    token: TokenId,
    session: SessionId,
    name: Option<String>,
}

impl Memory {
    pub(crate) fn keep_receipt(&mut self, uid: u32, receipt: Receipt, at_most: usize) {
        keep(&mut self.of_uid.entry(uid).or_default().receipts, receipt, at_most);
    }

    pub(crate) fn keep_token(
        &mut self,
        uid: u32,
        token: TokenId,
        session: SessionId,
        name: Option<String>,
        at_most: usize,
    ) {
        let released = ReleasedToken { token, session, name };
        keep(&mut self.of_uid.entry(uid).or_default().tokens, released, at_most);
    }

    /// The receipt of a lease that the peer may touch.
    pub(crate) fn receipt(&self, peer: &Peer, lease: LeaseId) -> Option<&Receipt> {
        self.of(peer)
            .find_map(|ended| ended.receipts.iter().rev().find(|receipt| receipt.lease == lease))
    }

    /// Whether the peer's session, by its id or the name that it had, once had this token.
    pub(crate) fn has_token(&self, peer: &Peer, session: &str, token: TokenId) -> bool {
        self.of(peer).any(|ended| {
            ended.tokens.iter().any(|released| {
                released.token == token
                    && (released.session.as_str() == session
                        || released.name.as_deref() == Some(session))
            })
        })
    }

    /// Whether a lease of this id is remembered, whoever had it.
    pub(crate) fn has_lease(&self, uid: u32, lease: LeaseId) -> bool {
        self.of_uid
            .get(&uid)
            .is_some_and(|ended| ended.receipts.iter().any(|receipt| receipt.lease == lease))
    }

    /// Adds to a receipt what was found when the lease ended.
    pub(crate) fn note_usage(&mut self, uid: u32, lease: LeaseId, usage: Usage) {
        let receipt = self
            .of_uid
            .get_mut(&uid)
            .and_then(|ended| ended.receipts.iter_mut().rev().find(|found| found.lease == lease));
        if let Some(receipt) = receipt {
            receipt.usage = Some(usage);
        }
    }

    fn of(&self, peer: &Peer) -> impl Iterator<Item = &Remembered> {
        self.of_uid.iter().filter(|(uid, _)| peer.may_touch(**uid)).map(|(_, ended)| ended)
    }
}

/// The newest is always kept: it is what is answered now.
fn keep<T>(queue: &mut VecDeque<T>, item: T, at_most: usize) {
    queue.push_back(item);
    while queue.len() > at_most.max(1) {
        queue.pop_front();
    }
}
