//! What the kernel says that a daemon and its stores hold.
//!
//! Figures are for root to read: a daemon's worker shows nobody else what it has.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::daemon::Daemon;

/// What a process holds at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Memory of its own, in KiB.
    pub memory: u64,
    /// Descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: u64,
}

/// What the worker of a daemon holds.
///
/// # Errors
///
/// Where that can't be read.
pub fn worker(daemon: &Daemon) -> anyhow::Result<Held> {
    let keeper = daemon.id();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
    let worker = children.split_whitespace().next().context("the daemon has no worker")?;
    let place = PathBuf::from("/proc").join(worker);
    let status = fs::read_to_string(place.join("status"))?;
    let descriptors = fs::read_dir(place.join("fd"))?.count();
    let (memory, threads) = (field(&status, "RssAnon:")?, field(&status, "Threads:")?);
    Ok(Held { memory, descriptors, threads })
}

/// What all tmpfs of the host hold, in KiB.
///
/// # Errors
///
/// Where that can't be read.
pub fn shared_memory() -> anyhow::Result<u64> {
    field(&fs::read_to_string("/proc/meminfo")?, "Shmem:")
}

fn field(text: &str, name: &str) -> anyhow::Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
