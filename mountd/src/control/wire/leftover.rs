//! What is left of what has ended, as the wire tells it.
//!
//! A member that says nothing about a kind is absent, never empty.

use serde::{Deserialize, Serialize};
use zlink::introspect::CustomType;

/// A kind of leftover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum LeftoverKind {
    /// The directory of a private lease that has ended, in a generation that lives on.
    EndedLease,
    /// A generation that is to go and waits until it is let go. It then goes by itself.
    RetiredGeneration,
    /// A generation that an earlier daemon has left and that no session has.
    UnclaimedGeneration,
}

/// Something that has ended and is still there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Leftover {
    /// What it is.
    pub kind: LeftoverKind,
    /// Why it is left, in words.
    pub why: String,
    /// Whose it is.
    pub uid: u32,
    /// The id of the session that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The number of the generation within the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The id of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The directory, where a path leads to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// By what the store knows a generation that no session has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
    /// For how long it has been left, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Bytes that it holds, where that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Inodes that it holds, where that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// Whether it stays because something in it is used.
    pub busy: bool,
    /// Whether it was swept away.
    pub swept: bool,
    /// Why it could not be looked at or swept away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
