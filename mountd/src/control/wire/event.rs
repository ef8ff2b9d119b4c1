//! What happened, as the wire tells it: one flat structure for all kinds.
//!
//! A member that says nothing about a kind is absent, never empty.

use serde::{Deserialize, Serialize};
use zlink::introspect::CustomType;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum EventKind {
    /// The namespace is served.
    Mounted,
    /// Somebody took the mount from its mountpoint.
    Detached,
    /// The same mount is back in its place: what was open goes on.
    Reattached,
    /// A new mount over the same store is in its place.
    Remounted,
    /// The connection to the kernel was aborted.
    Aborted,
    /// From here on the namespace can't be served; the code says why.
    FaultRaised,
    /// The fault of this code is gone.
    FaultCleared,
    /// The lost socket was bound anew.
    SocketBound,
    /// Somebody was refused to remove, rename or replace a directory of a session.
    RemovalRefused,
    /// Directory handles of a lease died with their connection to the kernel.
    HandlesDead,
    /// A generation that is to go doesn't: something in it is used, or can't be removed. It is tried
    /// again until it is gone.
    DiscardBlocked,
    /// A generation of which that was told has gone after all.
    Discarded,
}

/// What was tried on a directory that only the daemon makes or removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum Attempt {
    /// To remove it.
    Remove,
    /// To give it another name.
    Rename,
    /// To put something else in its place.
    Replace,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Event {
    /// Its number. All events of one daemon are numbered from 1 without a gap; those that are
    /// somebody else's to see leave one.
    pub number: u64,
    /// When it happened, in milliseconds since 1970.
    pub at_ms: u64,
    /// What it is about.
    pub kind: EventKind,
    /// What happened, in words.
    pub message: String,
    /// The stable code of the fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What can be done about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// What only an operator should know: told to root and to the user whose daemon it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Which of the daemon's connections to the kernel it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The device number of the mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u64>,
    /// How long it took until things were right again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The id of the session that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The id of the lease that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// What was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The user whose doing it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The process whose doing it was, where the daemon can see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The name of that process's program, without its directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// The directory that it concerns, below the mountpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How many attempts it stands for; more than one where they came too fast to be told one by
    /// one. Then the attempt and the directory are those of the last, and a process or a program
    /// is named only where it was the same in all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}
