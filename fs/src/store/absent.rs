//! Names that the kernel was told are not there, and may remember.
//!
//! Each such memory keeps the directory's own, so that a generation could never go while the
//! kernel remembers what is missing in it. It must never grow without bound.

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::node::Node;

/// Names that are remembered before the oldest are given up.
const ENOUGH: usize = 8192;

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
    known: HashSet<Arc<Absence>>,
    order: VecDeque<Arc<Absence>>,
}

impl Absent {
    /// Adds a name; whether there are so many now that some should be given up.
    pub(crate) fn add(&self, parent: Node, name: &OsStr) -> bool {
        let absence = Arc::new(Absence { parent, name: name.to_owned() });
        let mut names = self.lock();
        if names.known.insert(Arc::clone(&absence)) {
            names.order.push_back(absence);
        }
        names.order.len() > ENOUGH
    }

    /// Takes the oldest names out, if there are too many.
    pub(crate) fn take_oldest(&self) -> Vec<Arc<Absence>> {
        let mut names = self.lock();
        let excess = match names.order.len() {
            count if count > ENOUGH => count - ENOUGH / 4 * 3,
            _ => 0,
        };
        names.take(excess)
    }

    /// Takes all names out.
    pub(crate) fn take_all(&self) -> Vec<Arc<Absence>> {
        let mut names = self.lock();
        let all = names.order.len();
        names.take(all)
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    fn take(&mut self, count: usize) -> Vec<Arc<Absence>> {
        let taken: Vec<_> = self.order.drain(..count).collect();
        for absence in &taken {
            self.known.remove(absence);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_remembered_once_and_the_oldest_go_first() {
        let absent = Absent::default();
        for number in 0..ENOUGH {
            assert!(!absent.add(Node::ROOT, OsStr::new(&number.to_string())));
        }
        assert!(!absent.add(Node::ROOT, OsStr::new("0")));
        assert!(absent.take_oldest().is_empty());
        assert!(absent.add(Node::ROOT, OsStr::new("one more")));
        let taken = absent.take_oldest();
        assert_eq!(taken.len(), ENOUGH / 4 + 1);
        assert_eq!(taken[0].name, "0");
        assert_eq!(absent.take_all().len(), ENOUGH / 4 * 3);
    }
}
