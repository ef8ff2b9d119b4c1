//! The log: standard error, filtered by `HOLDFAST_LOG`.
//!
//! It must never write to standard output, which belongs to answers.

use std::env;
use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The variable that says what is logged, as `tracing` writes it: `debug`, `holdfast=trace`.
const VARIABLE: &str = "HOLDFAST_LOG";

/// What is logged where nobody says otherwise. The library behind the socket warns of every client
/// that leaves early, so that any user could fill the log.
const USUAL: &str = "zlink_core=error,zlink_tokio=error";

/// Starts logging; what the variable doesn't name is logged from `level` on.
pub(crate) fn start(level: LevelFilter) {
    let builder = EnvFilter::builder().with_default_directive(level.into());
    let filter = match env::var(VARIABLE) {
        Ok(asked) => builder.parse_lossy(asked),
        Err(_) => builder.parse_lossy(USUAL),
    };
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
