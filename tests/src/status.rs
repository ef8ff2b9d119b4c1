//! What a daemon says of itself, asked until it says what is expected.
//!
//! Nothing here may wait for longer than a test allows.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::stage::Stage;

/// How many there are of everything.
///
/// # Errors
///
/// Where no daemon answers the user of this stage.
pub fn counts(stage: &Stage) -> anyhow::Result<Value> {
    let answer = stage.holdfast().args(["status", "--json"]).output()?;
    let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
    answer.get("counts").cloned().with_context(|| format!("no counts: {answer}"))
}

/// Waits until there are so many of each of these.
///
/// # Errors
///
/// Where the time ends first.
pub fn becomes(stage: &Stage, wanted: &[(&str, u64)], within: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + within;
    loop {
        // Each question takes a process, which is pause enough.
        let counts = counts(stage)?;
        if wanted.iter().all(|(name, number)| counts[*name] == *number) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("{counts} after {within:?} instead of {wanted:?}");
        }
    }
}
