//! What outlives the daemon: sessions that are saved beside their files, and the count of
//! connections to the kernel.
//!
//! It must never start without what it can't read.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_fs::namespace::{GroundError, Namespace, RestoreError, Surroundings};
use holdfast_fs::node::GenerationKey;
use holdfast_fs::saved::{Earlier, Saved, SavedError};
use holdfast_fs::store::Store;
use rustix::io::Errno;

use crate::control;
use crate::fault::Fault;

/// Where sessions are saved, if they are.
pub(super) struct Lasting {
    /// `None` where files don't outlive the daemon either.
    saved: Option<Arc<Saved>>,
    /// Connections to the kernel, where they aren't counted on the disk.
    epochs: AtomicU64,
}

impl Lasting {
    /// What is saved in a store.
    pub(super) fn of(store: &Store) -> Result<Self, Fault> {
        let saved = match store.directory() {
            Some(directory) => Some(Arc::new(Saved::beneath(directory, boot()?).map_err(fault)?)),
            None => None,
        };
        Ok(Self { saved, epochs: AtomicU64::new(0) })
    }

    /// A namespace that goes on with the sessions that are saved, and saves its own.
    pub(super) fn namespace(
        &self,
        store: &Store,
        surroundings: Surroundings,
    ) -> Result<Arc<Namespace>, Fault> {
        let Some(saved) = &self.saved else { return Ok(Namespace::new(surroundings)) };
        let earlier = saved.earlier().map_err(fault)?;
        let (sessions, same_boot) = (earlier.sessions.len(), earlier.same_boot);
        let unclaimed = unclaimed(store, &earlier)?;
        let surroundings = Surroundings { ledger: Some(saved.clone()), ..surroundings };
        let namespace = Namespace::restore(surroundings, earlier, &control::lives)
            .map_err(|error| restore_fault(&error))?;
        saved.settle().map_err(fault)?;
        let back = namespace.counts();
        if sessions > 0 {
            tracing::info!(sessions, same_boot, ?back, "an earlier daemon's sessions are back");
        }
        if unclaimed > 0 {
            tracing::warn!(unclaimed, "generations in the store belong to no session; they stay");
        }
        Ok(namespace)
    }

    /// Counts one more connection to the kernel; its number.
    pub(super) fn begin_epoch(&self) -> u64 {
        match &self.saved {
            Some(saved) => saved.begin_epoch(),
            None => self.epochs.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}

/// How many generations are in the store that no session has.
fn unclaimed(store: &Store, earlier: &Earlier) -> Result<usize, Fault> {
    let there = store.keys().map_err(|error| unusable(&GroundError::from(error)))?;
    let views = earlier.sessions.iter().map(|session| session.view());
    let claimed: BTreeSet<GenerationKey> =
        views.flat_map(|view| view.generations).map(|generation| generation.key).collect();
    Ok(there.iter().filter(|key| !claimed.contains(key)).count())
}

/// What tells the processes that can be seen from here from those of any other time or place.
fn boot() -> Result<String, Fault> {
    let failed = |error: io::Error| Fault::System {
        step: "ask for the id of the boot",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed)?;
    let pids = fs::read_link("/proc/self/ns/pid").map_err(failed)?;
    Ok(format!("{} {}", boot.trim(), pids.display()))
}

fn fault(error: SavedError) -> Fault {
    match error {
        SavedError::VersionUnknown { file, found } => Fault::SavedVersionUnknown { file, found },
        SavedError::Unreadable { file, reason } => Fault::SavedUnreadable { file, reason },
        SavedError::Refused { step: _, errno: Errno::NOSPC | Errno::DQUOT } => Fault::StoreFull,
        SavedError::Refused { step, errno } => {
            Fault::StoreUnusable { step: step.to_owned(), errno }
        }
    }
}

fn restore_fault(error: &RestoreError) -> Fault {
    match error {
        RestoreError::Contradiction(found) => Fault::SavedUnreadable {
            file: Saved::name_of(found.session),
            reason: found.rule.to_owned(),
        },
        RestoreError::Ground(error) => unusable(error),
    }
}

fn unusable(error: &GroundError) -> Fault {
    match error {
        GroundError::Refused { step, errno } => {
            Fault::StoreUnusable { step: (*step).to_owned(), errno: *errno }
        }
        GroundError::Full => Fault::StoreFull,
        GroundError::OutOfInodes => Fault::StoreOutOfInodes,
        GroundError::Exhausted => {
            Fault::StoreUnusable { step: error.to_string(), errno: Errno::MFILE }
        }
        GroundError::Unfit | GroundError::NotSupported(_) => {
            Fault::StoreUnusable { step: error.to_string(), errno: Errno::NOTSUP }
        }
    }
}
