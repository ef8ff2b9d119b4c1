//! Owner tokens: as long as a session has one, it is open.
//!
//! It must never know who may release one: that is decided where requests are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Process, TokenId};
use crate::clock::Timestamp;

/// What an owner token hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holder {
    /// It is released when the process is gone.
    Process(Process),
    /// It is released when the session has had no lease and no request for as long as this.
    Linger {
        /// How long.
        ttl: Duration,
    },
}

/// An owner token, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    pub(crate) id: TokenId,
    pub(crate) holder: Holder,
    /// Who asked for it.
    pub(crate) asked_by: Process,
    pub(crate) since: Timestamp,
}
