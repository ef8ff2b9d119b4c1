//! The log: standard error, filtered by `HOLDFAST_LOG`.
//!
//! It must never write to standard output, which belongs to answers.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The variable that says what is logged, as `tracing` writes it: `debug`, `holdfast=trace`.
const VARIABLE: &str = "HOLDFAST_LOG";

/// Starts logging; what the variable doesn't name is logged from `level` on.
pub(crate) fn start(level: LevelFilter) {
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .with_env_var(VARIABLE)
        .from_env_lossy();
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .try_init();
    if let Err(error) = started {
        // Somebody who uses this as a library has a log of their own.
        tracing::debug!(%error, "the log was started before");
    }
}
