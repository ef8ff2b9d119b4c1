//! Who asks, as the kernel says, and what a claim can hang on.
//!
//! It must never hold what a request claims about its sender.

use serde::{Deserialize, Serialize};

/// A process. A pid is used again; a pid with its start time is not, within one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its id, as this process sees it.
    pub pid: u32,
    /// When it started, in ticks since the boot (field 22 of `/proc/PID/stat`).
    pub start: u64,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process.
    pub process: Process,
}

impl Peer {
    /// Whether what belongs to `uid` is this peer's to see and to touch.
    #[must_use]
    pub const fn may_touch(&self, uid: u32) -> bool {
        self.uid == uid || self.uid == ROOT
    }
}

/// A connection to the control socket; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionId(pub u64);

/// The user who may touch everything.
pub(crate) const ROOT: u32 = 0;
