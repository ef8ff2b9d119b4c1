//! Sees to it that nobody waits without an end, and ends it for those who would.
//!
//! It must never touch the mount itself.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;

use super::weather::Weather;
use crate::mounts;

/// No step takes longer: those that wait for an attack to end have a deadline of their own.
const LONGEST_STEP: Duration = Duration::from_secs(90);

/// What everybody is about; none for who has come to an end.
type Steps = Vec<Option<(Instant, &'static str)>>;

/// Who is about what, and since when.
#[derive(Debug)]
pub(super) struct Watchdog {
    steps: Mutex<Steps>,
    ended: Condvar,
}

/// With this somebody says what they are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat<'a> {
    watchdog: &'a Watchdog,
    number: usize,
}

impl Beat<'_> {
    /// The next step begins.
    pub(super) fn step(&self, what: &'static str) {
        self.watchdog.steps()[self.number] = Some((Instant::now(), what));
    }
}

impl Watchdog {
    /// For so many, who are all about to start.
    pub(super) fn new(number: usize) -> Self {
        let start = Some((Instant::now(), "start"));
        Self { steps: Mutex::new(vec![start; number]), ended: Condvar::new() }
    }

    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets somebody live; where they fail, all come to an end.
    pub(super) fn guard<T>(
        &self,
        number: usize,
        weather: &Weather,
        live: impl FnOnce(Beat<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let _end = End { watchdog: self, number };
        let lived = live(Beat { watchdog: self, number });
        if lived.is_err() {
            weather.stop();
        }
        lived
    }

    /// Waits until all have come to an end.
    pub(super) fn watch(&self, weather: &Weather) -> anyhow::Result<()> {
        let mut steps = self.steps();
        while steps.iter().any(Option::is_some) {
            let late = steps.iter().enumerate().find_map(|(number, step)| {
                step.filter(|(since, _)| since.elapsed() > LONGEST_STEP).map(|at| (number, at.1))
            });
            if let Some((number, what)) = late {
                drop(steps);
                weather.stop();
                mounts::abort_fuse_connections();
                bail!("{number} hangs: {what}");
            }
            let waits = self.ended.wait_timeout(steps, Duration::from_secs(1));
            (steps, _) = waits.unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}

/// Somebody has come to an end, also by a panic.
struct End<'a> {
    watchdog: &'a Watchdog,
    number: usize,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.watchdog.steps()[self.number] = None;
        self.watchdog.ended.notify_all();
    }
}
