//! What a test tells its reader although it passed: figures, tables, and that it was skipped.
//!
//! It must never be what a test is judged by.

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

/// Writes past the capturing of the test runner, which shows only what fails.
pub fn print(text: impl fmt::Display) {
    // In one piece: other tests print at the same time.
    let line = format!("{text}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// How long something took, again and again.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Once more.
    pub fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// The longest of them.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        write!(formatter, "{} times, median {median:.1?}, worst {:.1?}", sorted.len(), self.worst())
    }
}
