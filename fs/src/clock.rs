//! Time as the filesystem sees it: handed in, never asked of the surroundings.
//!
//! It must never be used for the times of files, which belong to the store; only the directories
//! above the stores have times of the daemon's.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::attributes::FileTime;

/// A moment on a clock that never goes backwards, counted from an arbitrary start (the boot, for
/// [`Monotonic`]).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp(Duration);

impl Timestamp {
    /// The moment `elapsed` after the start of the clock.
    #[must_use]
    pub const fn from_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after the start of the clock this moment is.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// How long after `earlier` this moment is; zero if it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `wait` before this one; the start of the clock where that is later.
    #[must_use]
    pub const fn before(self, wait: Duration) -> Self {
        Self(self.0.saturating_sub(wait))
    }

    /// The moment `wait` after this one; the end of time where that can't be counted.
    #[must_use]
    pub const fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

/// Where moments come from.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The kernel's clock that counts on while the machine sleeps, so that an idle limit means what it
/// says on a laptop too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Monotonic;

impl Clock for Monotonic {
    fn now(&self) -> Timestamp {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
        Timestamp(Duration::new(seconds, nanoseconds))
    }
}

/// Where the times of structural directories come from.
pub trait WallClock: Send + Sync + std::fmt::Debug {
    /// The present time.
    fn wall(&self) -> FileTime;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl WallClock for System {
    fn wall(&self) -> FileTime {
        let time = clock_gettime(ClockId::Realtime);
        FileTime { seconds: time.tv_sec, nanoseconds: u32::try_from(time.tv_nsec).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_never_before_an_earlier_one() {
        let first = Monotonic.now();
        let second = Monotonic.now();
        assert!(second >= first);
        assert_eq!(first.since(first.after(Duration::from_secs(1))), Duration::ZERO);
    }
}
