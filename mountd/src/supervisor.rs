//! What is to be done about the mount and the socket, given what is seen of them.
//!
//! It is a pure function of its state and of what is seen. It must never look or act itself: `hold`
//! does both, and the keeper tells what came of it.

mod hold;

use std::path::PathBuf;

pub(crate) use self::hold::{Hold, Sight};
use crate::fault::{Fault, FaultReport};

/// What is seen at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Whether the connection to the kernel still is one.
    pub(crate) connected: bool,
    /// Whether the mount of it can be attached: to begin with, or again. A mount that can't lives no
    /// longer than it is attached or used.
    pub(crate) attachable: bool,
    /// What the path leads to.
    pub(crate) path: Sight,
    /// Whether clients find the socket.
    pub(crate) socket: bool,
}

/// What is to be done, in the order in which it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Operators and watchers are to be told.
    Note(Note),
    /// Put the same mount back at the path.
    PutBack,
    /// Take our own mount, whose connection has ended, away from the path.
    ClearAway,
    /// Begin a new connection over the same store.
    Renew,
    /// Bind the socket anew.
    BindSocket,
}

/// What operators and watchers are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// Somebody has taken the mount from the path.
    Detached,
    /// The connection to the kernel was ended from outside.
    Aborted,
    /// The same mount is back.
    Reattached,
    /// A new mount over the same store serves.
    Remounted,
    /// Service can't resume, and why not.
    Raised(FaultReport),
    /// What was in the way of service no longer is; its code.
    Cleared(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The path leads to the mount, and the mount is served.
    Serving,
    /// The mount is served, and the path doesn't lead to it.
    Detached,
    /// The connection has ended.
    Aborted,
    /// A new connection is about to begin.
    Renewing,
}

/// The state of the mount, as far as it decides what is to be done next.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    mountpoint: PathBuf,
    phase: Phase,
    /// Whether the connection that waits for its path is a new one.
    renewed: bool,
    /// Why service can't resume by itself.
    fault: Option<FaultReport>,
    /// Whether clients find the socket.
    socket: bool,
}

impl Supervisor {
    /// A mount that is served and attached.
    pub(crate) const fn serving(mountpoint: PathBuf) -> Self {
        Self { mountpoint, phase: Phase::Serving, renewed: false, fault: None, socket: true }
    }

    /// What is to be done now. Whoever does it looks again afterwards.
    pub(crate) fn step(&mut self, seen: &Seen) -> Vec<Action> {
        let mut actions = Vec::new();
        self.socket = seen.socket;
        if !seen.socket {
            actions.push(Action::BindSocket);
        }
        match self.phase {
            Phase::Renewing => return actions,
            Phase::Serving | Phase::Detached if !seen.connected => {
                // A connection that goes with its mount wasn't ended by anybody else.
                let went_along = !seen.attachable && seen.path != Sight::Ours;
                match (went_along, self.phase) {
                    (false, _) => actions.push(Action::Note(Note::Aborted)),
                    (true, Phase::Serving) => actions.push(Action::Note(Note::Detached)),
                    (true, _) => {}
                }
                self.phase = Phase::Aborted;
            }
            Phase::Serving if seen.path != Sight::Ours => {
                self.phase = Phase::Detached;
                actions.push(Action::Note(Note::Detached));
            }
            Phase::Serving | Phase::Detached | Phase::Aborted => {}
        }
        match (self.phase, &seen.path) {
            (Phase::Serving | Phase::Renewing, _) => {}
            (_, Sight::Unfit(fault)) => actions.extend(self.raise(fault)),
            (Phase::Detached, Sight::Ours) => {
                self.phase = Phase::Serving;
                let renewed = std::mem::take(&mut self.renewed);
                let back = if renewed { Note::Remounted } else { Note::Reattached };
                actions.push(Action::Note(back));
                actions.extend(self.clear());
            }
            (Phase::Detached, Sight::Free) if seen.attachable => actions.push(Action::PutBack),
            (Phase::Aborted, Sight::Ours) => actions.push(Action::ClearAway),
            (Phase::Detached | Phase::Aborted, Sight::Free) => {
                self.phase = Phase::Renewing;
                actions.push(Action::Renew);
            }
        }
        actions
    }

    /// The worker serves the new connection.
    pub(crate) const fn connected(&mut self) {
        self.phase = Phase::Detached;
        self.renewed = true;
    }

    /// The new connection ended before the worker served it.
    pub(crate) const fn broken_off(&mut self) {
        self.phase = Phase::Aborted;
    }

    /// What was to be done could not be. It is tried again when something changes, and once a
    /// second until then.
    pub(crate) fn refused(&mut self, fault: &FaultReport, connected: bool) -> Vec<Action> {
        if self.phase == Phase::Renewing {
            self.phase = if connected { Phase::Detached } else { Phase::Aborted };
        }
        self.raise(fault)
    }

    /// Why no lease can be had; `None` where the path leads to a mount that is served.
    pub(crate) fn standing(&self) -> Option<FaultReport> {
        let mountpoint = self.mountpoint.clone();
        match (&self.fault, self.phase) {
            (_, Phase::Serving) => None,
            (Some(fault), _) => Some(fault.clone()),
            (None, Phase::Detached) => Some(Fault::MountDetached { mountpoint }.report()),
            (None, Phase::Aborted | Phase::Renewing) => {
                Some(Fault::ConnectionAborted { mountpoint }.report())
            }
        }
    }

    /// Whether nothing is left to be looked after until something changes.
    pub(crate) fn is_content(&self) -> bool {
        self.phase == Phase::Serving && self.socket
    }

    /// Whether the answer to how things stand is about to change by itself.
    pub(crate) fn is_in_between(&self) -> bool {
        self.phase == Phase::Renewing
    }

    fn raise(&mut self, fault: &FaultReport) -> Vec<Action> {
        if self.fault.as_ref() == Some(fault) {
            return Vec::new();
        }
        let mut actions = self.clear();
        self.fault = Some(fault.clone());
        actions.push(Action::Note(Note::Raised(fault.clone())));
        actions
    }

    fn clear(&mut self) -> Vec<Action> {
        let cleared = self.fault.take().map(|fault| Note::Cleared(fault.code));
        cleared.map(Action::Note).into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
