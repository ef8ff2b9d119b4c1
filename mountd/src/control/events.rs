//! What happened, kept for a while so that whoever comes late can still read it.
//!
//! It must never grow with what happens, and never tell a user what is another one's.

mod ring;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_fs::namespace::{Blockage, Leaving};
use holdfast_fs::registry::{Peer, Served};
use holdfast_fs::tempfs::{Attempt, Refusal};
use tokio::sync::watch;

use self::ring::{Audience, Ring};
use super::show::milliseconds;
use super::wire::{self, EventKind};
use crate::channel::Change;
use crate::fault::FaultReport;

/// How many events are kept.
const KEPT: usize = 4096;

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// The namespace is served.
    Mounted {
        /// Which connection to the kernel it is.
        epoch: u64,
        /// The device number of the mount.
        device: u64,
    },
    /// The mount is not at its mountpoint any more.
    Detached,
    /// The same mount is back.
    Reattached {
        /// How long it was away.
        took: Duration,
    },
    /// A new mount over the same store is in its place.
    Remounted {
        /// Which connection to the kernel it is.
        epoch: u64,
        /// The device number of the mount.
        device: u64,
        /// How long nothing was there.
        took: Duration,
    },
    /// A connection to the kernel was aborted.
    Aborted {
        /// Which one.
        epoch: u64,
    },
    /// The namespace can't be served from here on.
    FaultRaised(FaultReport),
    /// A fault is gone.
    FaultCleared {
        /// Its code.
        code: String,
    },
    /// The lost socket was bound anew.
    SocketBound,
    /// Attempts to remove, rename or replace a structural directory were refused.
    RemovalRefused(Removal),
    /// Directory handles of a lease died with their connection.
    HandlesDead {
        /// The lease.
        lease: String,
        /// Its session.
        session: String,
        /// The user whose session that is.
        owner: u32,
        /// The connection that its directory handles were of.
        epoch: u64,
    },
    /// A generation that is to go doesn't, and why; `None` where it has gone after all.
    Discard(Leaving, Option<Blockage>),
}

impl Happening {
    /// What the keeper says of the mount or the socket, while this connection serves.
    pub(super) fn of(change: Change, Served { epoch, device }: Served) -> Self {
        match change {
            Change::Detached => Self::Detached,
            Change::Aborted => Self::Aborted { epoch },
            Change::Reattached { took } => Self::Reattached { took },
            Change::Remounted { took } => Self::Remounted { epoch, device, took },
            Change::FaultRaised(report) => Self::FaultRaised(report),
            Change::FaultCleared { code } => Self::FaultCleared { code },
            Change::SocketBound => Self::SocketBound,
        }
    }
}

/// Attempts that were refused, and whose they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    /// The last of them.
    pub(crate) refusal: Refusal,
    /// The process, where it can be seen.
    pub(crate) pid: Option<u32>,
    /// The name of its program, where it can be seen.
    pub(crate) executable: Option<String>,
    /// How many there were.
    pub(crate) count: u64,
}

/// The events of a daemon. All clones are the same.
#[derive(Clone)]
pub(crate) struct Events(Rc<Inner>);

struct Inner {
    ring: RefCell<Ring>,
    /// The number of the last one.
    last: watch::Sender<u64>,
}

impl Events {
    /// Nothing has happened yet.
    pub(super) fn new() -> Self {
        Self(Rc::new(Inner { ring: RefCell::new(Ring::new(KEPT)), last: watch::Sender::new(0) }))
    }

    /// Takes note of what has just happened.
    pub(crate) fn note(&self, happening: Happening) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (event, audience) = event(happening);
        let event = wire::Event { at_ms: milliseconds(now), ..event };
        self.0.last.send_replace(self.0.ring.borrow_mut().push(event, audience));
    }

    /// What a client may see behind an event; without one, behind the last.
    pub(super) fn behind(&self, after: Option<u64>, viewer: &Viewer) -> wire::Watched {
        let ring = self.0.ring.borrow();
        ring.behind(after.unwrap_or(ring.last()), viewer)
    }

    /// Tells whenever there is one more.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.last.subscribe()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("last", &self.0.ring.borrow().last()).finish_non_exhaustive()
    }
}

/// For whom events are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Viewer {
    /// Who asks.
    pub(super) peer: Peer,
    /// The user whose daemon it is.
    pub(super) daemon: u32,
}

impl Viewer {
    fn may_see(&self, audience: Audience) -> bool {
        match audience {
            Audience::Everybody => true,
            Audience::Owner(uid) => self.peer.may_touch(uid),
        }
    }

    /// Whether it may know what an operator should.
    fn operates(&self) -> bool {
        self.peer.may_touch(self.daemon)
    }
}

/// What happened as the wire tells it, without number and time, and for whom it is.
fn event(happening: Happening) -> (wire::Event, Audience) {
    let plain = |kind, message: &str| wire::Event {
        number: 0,
        at_ms: 0,
        kind,
        message: message.to_owned(),
        code: None,
        remedy: None,
        cause: None,
        epoch: None,
        device: None,
        took_ms: None,
        session: None,
        lease: None,
        attempt: None,
        uid: None,
        pid: None,
        executable: None,
        path: None,
        count: None,
    };
    let everybody = |event| (event, Audience::Everybody);
    match happening {
        Happening::Mounted { epoch, device } => everybody(wire::Event {
            epoch: Some(epoch),
            device: Some(device),
            ..plain(EventKind::Mounted, "the namespace is served")
        }),
        Happening::Detached => {
            everybody(plain(EventKind::Detached, "the mount was taken from its mountpoint"))
        }
        Happening::Reattached { took } => everybody(wire::Event {
            took_ms: Some(milliseconds(took)),
            ..plain(EventKind::Reattached, "the same mount is back in its place")
        }),
        Happening::Remounted { epoch, device, took } => everybody(wire::Event {
            epoch: Some(epoch),
            device: Some(device),
            took_ms: Some(milliseconds(took)),
            ..plain(EventKind::Remounted, "a new mount over the same store is in its place")
        }),
        Happening::Aborted { epoch } => everybody(wire::Event {
            epoch: Some(epoch),
            ..plain(EventKind::Aborted, "the connection to the kernel was aborted")
        }),
        Happening::FaultRaised(FaultReport { code, message, remedy, cause }) => {
            everybody(wire::Event {
                code: Some(code),
                remedy: Some(remedy),
                cause,
                ..plain(EventKind::FaultRaised, &message)
            })
        }
        Happening::FaultCleared { code } => everybody(wire::Event {
            code: Some(code),
            ..plain(EventKind::FaultCleared, "the fault is gone")
        }),
        Happening::SocketBound => {
            everybody(plain(EventKind::SocketBound, "the lost control socket was bound anew"))
        }
        Happening::RemovalRefused(Removal { refusal, pid, executable, count }) => {
            let (attempt, verb) = match refusal.attempt {
                Attempt::Remove => (wire::Attempt::Remove, "remove"),
                Attempt::Rename => (wire::Attempt::Rename, "rename"),
                Attempt::Replace => (wire::Attempt::Replace, "replace"),
            };
            let who = executable.as_deref().unwrap_or("a program");
            let message = format!("{who} was refused to {verb} a directory of the session");
            let event = wire::Event {
                session: Some(refusal.session),
                lease: refusal.lease,
                attempt: Some(attempt),
                uid: Some(refusal.caller.uid),
                pid,
                executable,
                path: Some(refusal.path),
                count: Some(count),
                ..plain(EventKind::RemovalRefused, &message)
            };
            (event, Audience::Owner(refusal.owner))
        }
        Happening::HandlesDead { lease, session, owner, epoch } => {
            let message = "directory handles of the lease died with their connection";
            let event = wire::Event {
                session: Some(session),
                lease: Some(lease),
                epoch: Some(epoch),
                ..plain(EventKind::HandlesDead, message)
            };
            (event, Audience::Owner(owner))
        }
        Happening::Discard(Leaving { session, uid, number }, why) => {
            let (kind, message, cause) = match why {
                Some(Blockage::InUse) => {
                    let message = "a generation that is to go is still in use";
                    (EventKind::DiscardBlocked, message, None)
                }
                Some(Blockage::Refused(cause)) => {
                    let message = "files of a generation can't be removed yet";
                    (EventKind::DiscardBlocked, message, Some(cause))
                }
                None => (EventKind::Discarded, "a generation that was in use is gone", None),
            };
            let path = Some(format!("{session}/{number}"));
            let session = Some(session.to_string());
            let event = wire::Event { session, path, cause, ..plain(kind, message) };
            (event, Audience::Owner(uid))
        }
    }
}

#[cfg(test)]
mod tests;
