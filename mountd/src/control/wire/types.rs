//! The types of the interface.
//!
//! The words of each comment are what tools show. A member that was there once must never get
//! another meaning.

use serde::{Deserialize, Serialize};
use zlink::introspect::CustomType;

use super::Qualification;

/// Who gets through the directories of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum Mode {
    /// The owner alone.
    Private,
    /// Everyone who knows the way, so that a child that dropped its privileges still has TMPDIR.
    Shared,
}

/// Who may remove, rename or replace what members of a session made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum Guard {
    /// Modes decide, as on any filesystem.
    Open,
    /// Others of the same user remove only what they made themselves.
    Sticky,
    /// Only members change anything.
    Members,
}

/// What is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum LeaseKind {
    /// The generation's own directory, together with others.
    Shared,
    /// A directory of the lease's own in the generation.
    Private,
}

/// What a lease hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum Hold {
    /// It ends with a process: the caller's, where it is asked for.
    Process,
    /// It ends with the connection that it was asked for on.
    Connection,
    /// It waits to be bound to a process; until then only its release ends it, or the end of the
    /// process that asked for it once the session is sealed.
    Nothing,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum LeaseEnd {
    /// It was given back.
    Released,
    /// Its process is gone.
    ProcessGone,
    /// Its connection is gone.
    ConnectionGone,
    /// Its session was closed by force.
    Closed,
    /// Its directory wasn't there any more when the daemon started again.
    DirectoryGone,
}

/// What is to become of sessions that live when the daemon is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum DownMode {
    /// The daemon doesn't end while there are any.
    Refuse,
    /// No new one is opened, and the daemon ends, and answers, after the last one.
    Drain,
    /// The daemon ends at once. Sessions in memory end with it; those in a directory are back when
    /// it is started again.
    Force,
}

/// A process. A pid is used again; a pid with its start time is not, within one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Process {
    /// Its id, as the daemon sees it.
    pub pid: u32,
    /// When it started, in ticks since the boot.
    pub start: u64,
}

/// What a session was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Policy {
    /// Bytes that all its generations may hold together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Inodes that all its generations may hold together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// Who gets through its directories.
    pub mode: Mode,
    /// Who may remove what members made.
    pub guard: Guard,
}

/// An owner token. Which one it is is known to whoever it was given to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Owner {
    /// The process that it hangs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Where it hangs on no process: how long the session may be idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linger_ms: Option<u64>,
    /// How long ago it was given.
    pub age_ms: u64,
}

/// A generation of a session: one directory tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Generation {
    /// Its number within the session.
    pub number: u32,
    /// Its directory.
    pub path: String,
    /// The number of its directory's inode.
    pub inode: u64,
    /// Whether it is in the past; it then goes as soon as nobody leases or uses it.
    pub retired: bool,
    /// Leases on it.
    pub leases: u64,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Session {
    /// Its id: the name of its directory.
    pub id: String,
    /// The label that its client gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The user whose it is.
    pub uid: u32,
    /// The group of its directories.
    pub gid: u32,
    /// What it was granted.
    pub policy: Policy,
    /// Whether its last owner is gone. It then takes no lease any more, ever, and is there until
    /// its last lease and use end.
    pub sealed: bool,
    /// Its directory.
    pub path: String,
    /// The number of its directory's inode.
    pub inode: u64,
    /// The number of the current generation. There is none before the first lease and after a
    /// rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u32>,
    /// Every generation that is there, oldest first.
    pub generations: Vec<Generation>,
    /// Who retains it.
    pub owners: Vec<Owner>,
    /// Leases on all its generations.
    pub leases: u64,
    /// How long ago it was opened.
    pub age_ms: u64,
    /// How long ago it was last asked for anything, or its last lease ended.
    pub idle_ms: u64,
    /// In how long the next token that lingers is released, if nothing happens before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// A lease: a running command's claim on a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Lease {
    /// Its id.
    pub id: String,
    /// The id of its session.
    pub session: String,
    /// The label of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of its generation within the session.
    pub generation: u32,
    /// Whether that generation is still the one that the next lease would be for.
    pub current: bool,
    /// What is leased.
    pub kind: LeaseKind,
    /// The leased directory.
    pub path: String,
    /// The device number of the leased directory, as stat told it when the lease was taken.
    pub device: u64,
    /// The number of the leased directory's inode.
    pub inode: u64,
    /// Which of the daemon's connections to the kernel served it when it was taken.
    pub epoch: u64,
    /// Whether that connection has ended. Directories that were open under the lease, and working
    /// directories, are dead then and have to be opened again; the path and the files are as they
    /// were.
    pub stale: bool,
    /// What it hangs on.
    pub hold: Hold,
    /// The process that it hangs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// The process that asked for it.
    pub asked_by: Process,
    /// The user whose it is.
    pub uid: u32,
    /// The group of its directory.
    pub gid: u32,
    /// The policy of its session.
    pub policy: Policy,
    /// How long ago it was taken.
    pub age_ms: u64,
}

/// How a lease fared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Receipt {
    /// The lease.
    pub lease: String,
    /// The id of its session.
    pub session: String,
    /// The label of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of its generation within the session.
    pub generation: u32,
    /// What was leased.
    pub kind: LeaseKind,
    /// How it ended.
    pub end: LeaseEnd,
    /// How long it was had.
    pub held_ms: u64,
    /// Bytes that its generation held when it ended, where that could be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Inodes that its generation held when it ended, where that could be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// The record of the last examination that it was told of, as long as there is room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qualification: Option<Qualification>,
}

/// A promise that this daemon can't keep on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct LostPromise {
    /// Its name.
    pub name: String,
    /// What is missing for it.
    pub why: String,
}

/// Why something can't be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Fault {
    /// Its stable code.
    pub code: String,
    /// What is wrong, without a path.
    pub message: String,
    /// What can be done about it.
    pub remedy: String,
    /// What exactly was found, for root and the user whose daemon it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// How much of everything there may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Limits {
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Connections, of all users together.
    pub connections: u64,
    /// Connections of one user.
    pub connections_per_uid: u64,
    /// Open sessions of one user.
    pub sessions_per_uid: u64,
    /// Leases of one session.
    pub leases_per_session: u64,
    /// Owner tokens of one session.
    pub tokens_per_session: u64,
    /// Generations, of all sessions together.
    pub generations: u64,
}

/// How much of everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Counts {
    /// Sessions, sealed ones too.
    pub sessions: u64,
    /// Sessions that are sealed.
    pub sealed: u64,
    /// Generations, retired ones too.
    pub generations: u64,
    /// Generations that are retired.
    pub retired: u64,
    /// Leases.
    pub leases: u64,
    /// Owner tokens.
    pub tokens: u64,
    /// Processes whose end is waited for.
    pub processes: u64,
    /// Connections to the control socket.
    pub connections: u64,
}
