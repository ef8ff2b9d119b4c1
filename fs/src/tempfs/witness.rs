//! Who is told of attempts to remove, rename or replace a structural directory.
//!
//! Being told must never hold up the answer, and never change it.

use std::ffi::OsStr;

use super::{Caller, TempFs};
use crate::error::Error;
use crate::node::Node;
use crate::structure::Place;

/// What somebody tried to do to a structural directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// To remove it.
    Remove,
    /// To give it another name.
    Rename,
    /// To put something else in its place.
    Replace,
}

/// An attempt that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Who tried.
    pub caller: Caller,
    /// What was tried.
    pub attempt: Attempt,
    /// The name of the session's directory that it is, or that it is in.
    pub session: String,
    /// The user whose session that is.
    pub owner: u32,
    /// The name of a private lease's directory, where it is one.
    pub lease: Option<String>,
    /// Its path below the root.
    pub path: String,
}

/// Whoever is told.
pub trait Witness: Send + Sync {
    /// Told by the thread that serves, before the answer: whoever tried still waits, so it is there
    /// to be looked at. It must not wait for anything, least of all for this filesystem.
    fn refused(&self, refusal: Refusal);
}

impl TempFs {
    /// Refuses an attempt on a structural directory, by its name in the one that it is in.
    pub(super) fn refuse(
        &self,
        caller: &Caller,
        attempt: Attempt,
        parent: Node,
        name: &OsStr,
    ) -> Error {
        if let Some(witness) = self.commons.witness()
            && let Some(Place { session, owner, lease, path }) =
                self.structure().place(parent, name)
        {
            let caller = *caller;
            witness.refused(Refusal { caller, attempt, session, owner, lease, path });
        }
        Error::Structural
    }
}
