//! Sessions on the disk, beside their files, so that a daemon that starts again has them back.
//!
//! What it can't read it must never guess at, change or remove: it refuses, and somebody looks.
//! It is reached by descriptor alone, and nothing of it is ever half written under its own name.

mod files;
pub(crate) mod record;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use thiserror::Error;

use self::files::{Files, Sync};
use self::record::{Header, Lasting, Passing, Unread, VERSION};
use crate::namespace::{GroundError, Ledger};
use crate::registry::{SessionId, SessionRecord};

/// The file that says what the others are.
const HEADER: &str = "header";
/// What the name of a file ends in that matters only until the machine starts anew.
const PASSING: &str = ".leases";

/// Why sessions can't be saved or brought back.
#[derive(Debug, Error)]
pub enum SavedError {
    /// They are in a form that this daemon doesn't know.
    #[error("{file} is of version {found}; this daemon knows version {VERSION}")]
    VersionUnknown {
        /// The file, by its name in the store.
        file: String,
        /// Its version.
        found: u64,
    },
    /// They are not what a daemon has saved.
    #[error("{file} can't be read: {reason}")]
    Unreadable {
        /// The file, by its name in the store.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The kernel refused.
    #[error("{step}: {errno}")]
    Refused {
        /// What was being done.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

/// What an earlier daemon left.
#[derive(Debug, Default)]
pub struct Earlier {
    /// Its sessions.
    pub sessions: Vec<SessionRecord>,
    /// Whether its processes are of this boot. If not, all of them are gone, and so is the clock
    /// that its moments are of. Their sessions have no leases then: no command outlives the
    /// machine.
    pub same_boot: bool,
}

/// The sessions that are saved in a store.
///
/// Each has two files. One has what lasts: name, owner, policy, generations, owner tokens. It is
/// on the disk before the client is answered. The other has what passes with the machine: leases,
/// and when the session was last active. A crash of the daemon doesn't harm that either, and a
/// command pays for no disk.
///
/// Lock order: `state` alone; files are written under it, so that no older one comes last.
#[derive(Debug)]
pub struct Saved {
    files: Files,
    boot: String,
    /// The header that an earlier daemon left.
    found: Option<Header>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many connections to the kernel there were, of all daemons.
    epoch: u64,
    /// What lasts of each session, as it is on the disk.
    lasting: HashMap<SessionId, Vec<u8>>,
}

impl Saved {
    /// What is saved in the store of this directory. `boot` is whatever tells this boot's
    /// processes from those of another one.
    ///
    /// # Errors
    /// Where it can't be reached, or its header read.
    pub fn beneath(store: BorrowedFd<'_>, boot: String) -> Result<Self, SavedError> {
        let files = Files::beneath(store)?;
        let found = match files.read(HEADER)? {
            None => None,
            Some(bytes) => Some(record::read::<Header>(&bytes).map_err(|it| unread(HEADER, it))?),
        };
        let epoch = found.as_ref().map_or(0, |found: &Header| found.epoch);
        let state = Mutex::new(State { epoch, ..State::default() });
        Ok(Self { files, boot, found, state })
    }

    /// Reads what an earlier daemon saved.
    ///
    /// # Errors
    /// Where any of it can't be read; nothing is changed then.
    pub fn earlier(&self) -> Result<Earlier, SavedError> {
        let mut state = self.lock();
        let same_boot = self.found.as_ref().is_some_and(|found| found.boot == self.boot);
        let mut sessions = Vec::new();
        for name in self.files.names()? {
            // What else is there may be a draft, or somebody else's; it is left alone.
            let Ok(id) = name.parse::<SessionId>() else { continue };
            let bytes = self.required(&name)?;
            let lasting: Lasting = record::read(&bytes).map_err(|it| unread(&name, it))?;
            let passing = if same_boot { self.passing(&name)? } else { None };
            let session = lasting.join(passing);
            if session.id() != id {
                let reason = "it is of another session".to_owned();
                return Err(unread(&name, Unread::Not(reason)));
            }
            state.lasting.insert(id, bytes);
            sessions.push(session);
        }
        if self.found.is_none() && !sessions.is_empty() {
            return Err(unread(HEADER, Unread::Not("it isn't there".to_owned())));
        }
        if !same_boot {
            // No process of another boot lives, and what is left of it must not be taken for this
            // boot's by a later daemon.
            for session in &sessions {
                self.files.remove(&format!("{}{PASSING}", session.id()))?;
            }
        }
        Ok(Earlier { sessions, same_boot })
    }

    /// From here on all that is saved is of this boot. To be said once that is so of what was
    /// found, and before anything else is saved.
    ///
    /// # Errors
    /// Where it can't be saved.
    pub fn settle(&self) -> Result<(), SavedError> {
        self.save_header(&self.lock())
    }

    /// Counts one more connection to the kernel; its number. Where that can't be saved it counts
    /// all the same, since a mount must come back on a full disk too; but a daemon that starts
    /// again may give the number once more.
    pub fn begin_epoch(&self) -> u64 {
        let mut state = self.lock();
        state.epoch = state.epoch.saturating_add(1);
        if let Err(error) = self.save_header(&state) {
            tracing::error!(epoch = state.epoch, %error, "a connection can't be counted");
        }
        state.epoch
    }

    fn save_header(&self, state: &State) -> Result<(), SavedError> {
        let header = Header { version: VERSION, boot: self.boot.clone(), epoch: state.epoch };
        self.files.write(HEADER, &record::write(&header)?, Sync::Now)
    }

    /// The file of what lasts of a session, by its name in the store.
    #[must_use]
    pub fn name_of(session: SessionId) -> String {
        format!("{}/{session}", files::DIRECTORY)
    }

    fn passing(&self, name: &str) -> Result<Option<Passing>, SavedError> {
        let name = format!("{name}{PASSING}");
        let Some(bytes) = self.files.read(&name)? else { return Ok(None) };
        record::read(&bytes).map(Some).map_err(|it| unread(&name, it))
    }

    fn required(&self, name: &str) -> Result<Vec<u8>, SavedError> {
        let missing = || unread(name, Unread::Not("it isn't there any more".to_owned()));
        self.files.read(name)?.ok_or_else(missing)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn save(&self, session: &SessionRecord) -> Result<(), SavedError> {
        let name = session.id().to_string();
        let (lasting, passing) = Lasting::split(session);
        let (lasting, passing) = (record::write(&lasting)?, record::write(&passing)?);
        let mut state = self.lock();
        if state.lasting.get(&session.id()) != Some(&lasting) {
            // If this fails, what is on the disk is not known.
            state.lasting.remove(&session.id());
            self.files.write(&name, &lasting, Sync::Now)?;
            state.lasting.insert(session.id(), lasting);
        }
        self.files.write(&format!("{name}{PASSING}"), &passing, Sync::Later)
    }

    fn remove(&self, session: SessionId) -> Result<(), SavedError> {
        let name = session.to_string();
        self.lock().lasting.remove(&session);
        // In this order, so that no leases are left without their session.
        self.files.remove(&format!("{name}{PASSING}"))?;
        self.files.remove(&name)
    }
}

impl Ledger for Saved {
    fn keep(&self, session: &SessionRecord) -> Result<(), GroundError> {
        self.save(session).map_err(GroundError::from)
    }

    fn strike(&self, session: SessionId) -> Result<(), GroundError> {
        self.remove(session).map_err(GroundError::from)
    }
}

impl From<SavedError> for GroundError {
    fn from(error: SavedError) -> Self {
        match error {
            SavedError::Refused { errno: Errno::NOSPC | Errno::DQUOT, .. } => Self::Full,
            SavedError::Refused { step, errno } => Self::Refused { step, errno },
            SavedError::VersionUnknown { .. } | SavedError::Unreadable { .. } => {
                Self::Refused { step: "saving a session", errno: Errno::BADMSG }
            }
        }
    }
}

fn unread(name: &str, why: Unread) -> SavedError {
    let file = format!("{}/{name}", files::DIRECTORY);
    match why {
        Unread::Version(found) => SavedError::VersionUnknown { file, found },
        Unread::Not(reason) => SavedError::Unreadable { file, reason },
    }
}

#[cfg(test)]
mod tests;
