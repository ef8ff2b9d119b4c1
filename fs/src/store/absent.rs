//! Names that are not there, and that the kernel may remember as such: it was told so, or had them
//! taken away.
//!
//! Each such memory keeps the directory's own, so that a generation could never go while the
//! kernel remembers what is missing in it. It must never grow without bound: what is not noted
//! here, the kernel is not told to remember.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::node::Node;

/// Names that are noted at the most.
const ENOUGH: usize = 32 * 1024;

/// After how many names that could not be noted it is looked again for room.
const PATIENCE: usize = 1024;

/// A name that isn't there.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Absence {
    pub(crate) parent: Node,
    pub(crate) name: OsString,
}

/// The names of one generation.
#[derive(Debug, Default)]
pub(crate) struct Absent(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    noted: HashSet<Absence>,
    refused: usize,
}

impl Absent {
    /// Notes a name; whether it was, so that the kernel may remember it. Where there are too many,
    /// those in directories that the kernel has forgotten make room.
    pub(crate) fn add(&self, parent: Node, name: &OsStr, known: impl Fn(Node) -> bool) -> bool {
        let mut names = self.lock();
        if names.noted.len() >= ENOUGH {
            if names.refused.is_multiple_of(PATIENCE) {
                names.noted.retain(|absence| known(absence.parent));
            }
            names.refused += 1;
            if names.noted.len() >= ENOUGH {
                return false;
            }
            names.refused = 0;
        }
        names.noted.insert(Absence { parent, name: name.to_owned() });
        true
    }

    /// Takes the names in these directories out.
    pub(crate) fn take_below(&self, parents: &HashSet<Node>) -> HashSet<Absence> {
        self.lock().noted.extract_if(|absence| parents.contains(&absence.parent)).collect()
    }

    /// Takes one name out; whether it was there.
    pub(crate) fn take(&self, parent: Node, name: &OsStr) -> bool {
        self.lock().noted.remove(&Absence { parent, name: name.to_owned() })
    }

    /// Takes all names out.
    pub(crate) fn take_all(&self) -> HashSet<Absence> {
        std::mem::take(&mut self.lock().noted)
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_noted_within_bounds() {
        let absent = Absent::default();
        let note = |number: usize, known: bool| {
            absent.add(Node::ROOT, OsStr::new(&number.to_string()), |_| known)
        };
        for number in 0..ENOUGH {
            assert!(note(number, true));
        }
        for number in 0..PATIENCE {
            assert!(!note(ENOUGH + number, true));
        }
        // Now the directory is forgotten, and its names with it.
        assert!(note(0, false));
        assert_eq!(absent.take_all().len(), 1);
    }
}
