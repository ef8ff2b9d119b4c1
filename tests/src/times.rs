//! How long something took, each time that it was done.
//!
//! A test must never be judged by more than a bound that tells a hang from a wait.

use std::fmt;
use std::time::Duration;

use anyhow::ensure;

use crate::report;

/// Longer than this is a hang.
const BOUND: Duration = Duration::from_secs(10);

/// The times of one thing.
#[derive(Debug)]
pub struct Times {
    what: String,
    all: Vec<Duration>,
}

impl Times {
    /// None yet.
    pub fn of(what: impl fmt::Display) -> Self {
        Self { what: what.to_string(), all: Vec::new() }
    }

    /// One more.
    ///
    /// # Errors
    ///
    /// Where it took as long as a hang does.
    pub fn add(&mut self, took: Duration) -> anyhow::Result<()> {
        self.all.push(took);
        ensure!(took < BOUND, "{}, round {}: {took:?}", self.what, self.all.len());
        Ok(())
    }

    /// Prints the median and the worst.
    pub fn print(mut self) {
        self.all.sort_unstable();
        let (Some(median), Some(worst)) = (self.all.get(self.all.len() / 2), self.all.last())
        else {
            return;
        };
        let (number, what) = (self.all.len(), &self.what);
        report::print(format_args!(
            "{what}: {number} times, median {median:.1?}, worst {worst:.1?}"
        ));
    }
}
