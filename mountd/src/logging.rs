//! The log: standard error, filtered by `HOLDFAST_LOG`.
//!
//! It must never write to standard output, which belongs to answers, and what can't be written must
//! never cost more than itself: a daemon outlives whoever reads its log, and the disk that it is on.

use std::env;
use std::io::{self, IsTerminal, Write, stderr};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The variable that says what is logged, as `tracing` writes it: `debug`, `holdfast=trace`.
const VARIABLE: &str = "HOLDFAST_LOG";

/// What is logged where nobody says otherwise. The library behind the socket warns of every client
/// that leaves early, so that any user could fill the log.
const USUAL: &str = "zlink_core=error,zlink_tokio=error";

/// Starts logging; what the variable doesn't name is logged from `level` on.
pub(crate) fn start(level: LevelFilter) {
    let asked = env::var(VARIABLE).unwrap_or_default();
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter(level, &asked))
        .with_writer(|| Lossy)
        .with_ansi(stderr().is_terminal())
        .try_init();
    if let Err(error) = started {
        // Somebody who uses this as a library has a log of their own.
        tracing::debug!(%error, "the log was started before");
    }
}

/// The library's own default holds only where nothing at all is named.
/// Standard error, as far as it takes something at once. A pipe that nobody empties takes a line as
/// long as there is room for it, and a line of the log is never longer than what a pipe that can be
/// written to has room for, but for a few.
struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let log = stderr();
        let mut asked = [PollFd::new(&log, PollFlags::OUT)];
        let ready = poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        // What isn't taken is lost: nobody is there who could be told.
        if ready && !asked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            let _ = rustix::io::write(&log, line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn filter(level: LevelFilter, asked: &str) -> EnvFilter {
    EnvFilter::builder().parse_lossy(format!("{level},{USUAL},{asked}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is logged of each target.
    fn logged(level: LevelFilter, asked: &str) -> Vec<String> {
        let mut parts: Vec<String> =
            filter(level, asked).to_string().split(',').map(str::to_owned).collect();
        parts.sort_unstable();
        parts
    }

    #[test]
    fn what_is_not_named_is_logged_from_the_usual_level_on() {
        let zlink = ["zlink_core=error", "zlink_tokio=error"];
        assert_eq!(logged(LevelFilter::INFO, ""), ["info", zlink[0], zlink[1]]);
        assert_eq!(logged(LevelFilter::WARN, ""), ["warn", zlink[0], zlink[1]]);
        assert_eq!(logged(LevelFilter::INFO, "debug"), ["debug", zlink[0], zlink[1]]);
        assert_eq!(
            logged(LevelFilter::INFO, "holdfast=trace,zlink_core=off"),
            ["holdfast=trace", "info", "zlink_core=off", zlink[1]],
        );
    }
}
