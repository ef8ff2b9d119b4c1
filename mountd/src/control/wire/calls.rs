//! What each method takes and gives.
//!
//! A parameter that a method doesn't know is an error, never ignored: it was meant to matter.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zlink::introspect::Type;

use super::{
    Counts, DownMode, Event, Fault, Guard, Hold, Lease, LeaseKind, Leftover, Limits, LostPromise,
    Mode, Receipt, Session,
};

macro_rules! calls {
    ($($(#[$attribute:meta])* $name:ident {
        $($(#[$about:meta])* $field:ident: $type:ty,)*
    })*) => {
        $($(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        })*
    };
}

calls! {
    /// What `Describe` takes.
    Describe {}

    /// What `OpenSession` takes.
    OpenSession {
        /// A label: 1 to 128 bytes of UTF-8 without control characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The user whose it is to be, for root to say. Not said, it is the caller's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        /// Bytes that all generations may hold together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// Inodes that all generations may hold together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inodes: Option<u64>,
        /// Who gets through the directories. Not said, it is private for a new session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<Mode>,
        /// Who may remove what members made. Not said, it is sticky for a new session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guard: Option<Guard>,
        /// The owner token is released when this process of the caller's user is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner_pid: Option<u32>,
        /// The owner token is released when the session has been idle for this long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        linger_ms: Option<u64>,
    }

    /// What `RetainSession` takes.
    RetainSession {
        /// The session.
        session: String,
        /// The owner token is released when this process of the caller's user is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner_pid: Option<u32>,
        /// The owner token is released when the session has been idle for this long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        linger_ms: Option<u64>,
    }

    /// What `ReleaseSession` takes.
    ReleaseSession {
        /// The session.
        session: String,
        /// The token.
        token: String,
    }

    /// What `RotateSession` takes.
    RotateSession {
        /// The session.
        session: String,
    }

    /// What `ResizeSession` takes.
    ResizeSession {
        /// The session.
        session: String,
        /// Bytes that all generations may hold together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// Inodes that all generations may hold together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inodes: Option<u64>,
    }

    /// What `CloseSession` takes.
    CloseSession {
        /// The session.
        session: String,
        /// Whether its leases end here. Otherwise they go on until they end by themselves.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        force: Option<bool>,
    }

    /// What `ListSessions` takes.
    ListSessions {
        /// The id of the last session that was shown, where there were more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    }

    /// What `ShowSession` takes.
    ShowSession {
        /// The session.
        session: String,
    }

    /// What `Check` takes.
    Check {
        /// The session.
        session: String,
    }

    /// What `AcquireLease` takes.
    AcquireLease {
        /// The session.
        session: String,
        /// What is leased. Not said, it is shared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<LeaseKind>,
        /// What the lease hangs on. Not said, it is a process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hold: Option<Hold>,
        /// The process of the caller's user that the lease hangs on. Not said, it is the caller's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
    }

    /// What `BindLease` takes.
    BindLease {
        /// The lease.
        lease: String,
        /// The process of the caller's user. Not said, it is the caller's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
    }

    /// What `CheckLease` takes.
    CheckLease {
        /// The lease.
        lease: String,
    }

    /// What `ReleaseLease` takes.
    ReleaseLease {
        /// The lease.
        lease: String,
    }

    /// What `ListLeases` takes.
    ListLeases {
        /// The id of the last lease that was shown, where there were more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    }

    /// What `Sweep` takes.
    Sweep {
        /// Whether nothing is to be changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dry_run: Option<bool>,
    }

    /// What `Status` takes.
    Status {}

    /// What `Watch` takes.
    Watch {
        /// The number of the last event that is known already; 0 for everything that is kept. Not
        /// said, only what happens from now on is told. A number that isn't reached yet is one of
        /// an earlier daemon's, and everything is told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<u64>,
    }

    /// What `Down` takes.
    Down {
        /// What is to become of sessions that live. Not said, the daemon doesn't end then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<DownMode>,
    }
}

/// What a method gives that has nothing to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct Nothing {}

/// What `Describe` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct Description {
    /// The version of the daemon.
    pub version: String,
    /// Where the namespace appears.
    pub mountpoint: String,
    /// Where clients find the daemon.
    pub socket: String,
    /// Where files are kept: `tmpfs`, or `dir:` and a path.
    pub store: String,
    /// The user whose daemon it is.
    pub uid: u32,
    /// Whether it serves all users.
    pub many_users: bool,
    /// After how long without use it leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_exit_ms: Option<u64>,
    /// How much of everything there may be.
    pub limits: Limits,
    /// The promises that it can't keep on this host.
    pub lost_promises: Vec<LostPromise>,
}

/// What `OpenSession` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct OpenedSession {
    /// The session.
    pub session: Session,
    /// The owner token that is the caller's now.
    pub token: String,
    /// Whether the session was there already.
    pub attached: bool,
}

/// What `RetainSession` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct RetainedSession {
    /// The owner token that is the caller's now.
    pub token: String,
}

/// What methods give that tell of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct ShownSession {
    /// The session.
    pub session: Session,
}

/// What `ListSessions` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct ShownSessions {
    /// The sessions, in the order of their ids.
    pub sessions: Vec<Session>,
    /// Whether there are more behind the last of them.
    pub more: bool,
}

/// What `AcquireLease` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct AcquiredLease {
    /// The lease.
    pub lease: Lease,
    /// What is to be set in the environment of the command that the lease is for.
    pub environment: BTreeMap<String, String>,
    /// The promises that the daemon can't keep on this host.
    pub lost_promises: Vec<LostPromise>,
}

/// What methods give that tell of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct ShownLease {
    /// The lease.
    pub lease: Lease,
    /// Where it is checked: the record of the last examination that it was told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qualification: Option<super::Qualification>,
}

/// What `ReleaseLease` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct ReleasedLease {
    /// How the lease fared.
    pub receipt: Receipt,
}

/// What `ListLeases` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct ShownLeases {
    /// The leases, in the order of their ids.
    pub leases: Vec<Lease>,
    /// Whether there are more behind the last of them.
    pub more: bool,
}

/// What `Status` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct CurrentStatus {
    /// How long it has served.
    pub uptime_ms: u64,
    /// Whether it ends after the last session.
    pub draining: bool,
    /// The device number of the mount.
    pub device: u64,
    /// Which of the daemon's connections to the kernel serves.
    pub epoch: u64,
    /// Why no lease can be had at present, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// Bytes that all sessions together may hold, where the store has such a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Bytes that they hold of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// How much of everything there is.
    pub counts: Counts,
}

/// What `Sweep` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct Swept {
    /// What was left over, and what became of it.
    pub leftovers: Vec<Leftover>,
    /// Whether there is more.
    pub more: bool,
}

/// What `Watch` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct Watched {
    /// The events that are the caller's to see, oldest first.
    pub events: Vec<Event>,
    /// How many events, anybody's, have gone before they could be told here.
    pub missed: u64,
    /// The number of the last event that was looked at; to be given as `after` the next time.
    pub last: u64,
    /// Whether there are more behind that one.
    pub more: bool,
}
