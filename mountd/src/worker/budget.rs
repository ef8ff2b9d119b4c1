//! How the descriptors of the worker are shared out.
//!
//! Nothing may be promised more than its part: what runs out of descriptors fails clients in ways
//! that nobody has foreseen.

use rustix::process::{Resource, getrlimit};

/// More than this would hold the kernel's memory and gain nothing.
const MOST_INODES: u64 = 32_768;
const MOST_GENERATIONS: u64 = 4096;
/// A limit of descriptors that is none.
const UNLIMITED: u64 = 1 << 20;

/// The parts. What is left is for open files, clients and the processes that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Descriptors for inodes.
    pub(crate) inodes: usize,
    /// Generations; a descriptor each.
    pub(crate) generations: usize,
}

impl Budget {
    /// The parts of what this process may have.
    pub(super) fn of_this_process() -> Self {
        Self::of_limit(getrlimit(Resource::Nofile).current)
    }

    /// The parts under a limit, or under none.
    pub(crate) fn of_limit(limit: Option<u64>) -> Self {
        Self::of(limit.unwrap_or(UNLIMITED))
    }

    /// How many generations one user may have.
    pub(super) const fn generations_per_uid(self, many_users: bool) -> usize {
        if many_users { self.generations.div_ceil(2) } else { self.generations }
    }

    fn of(limit: u64) -> Self {
        let part = |of: u64, most: u64| usize::try_from((limit / of).min(most)).unwrap_or(0);
        Self { inodes: part(2, MOST_INODES), generations: part(8, MOST_GENERATIONS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_leave_something_over() {
        assert_eq!(Budget::of(1024), Budget { inodes: 512, generations: 128 });
        assert_eq!(Budget::of(1024).generations_per_uid(true), 64);
        assert_eq!(Budget::of(1024).generations_per_uid(false), 128);
        assert_eq!(Budget::of(20_000), Budget { inodes: 10_000, generations: 2500 });
        let most = Budget { inodes: 32_768, generations: 4096 };
        assert_eq!(Budget::of(UNLIMITED), most);
        assert_eq!(Budget::of(u64::MAX), most);
    }
}
