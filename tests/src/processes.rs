//! The processes of a stage: those that see its mounts.
//!
//! A process is held by a descriptor before it's judged, so that none is ended that only got the
//! number of one.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::command::poll;

/// A process, held by a descriptor.
#[derive(Debug)]
pub struct Process {
    /// Its id and what it runs, for messages.
    pub name: String,
    handle: OwnedFd,
}

impl Process {
    /// The process of this id.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub fn of(id: u32) -> anyhow::Result<Self> {
        let pid = Pid::from_raw(id.cast_signed()).context("not a process id")?;
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        Ok(Self { name: format!("{id} {}", line.replace('\0', " ")), handle })
    }

    /// Sends a signal; that it's gone already is no failure.
    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.handle, signal);
    }

    /// Ends it.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Whether it ends within this time.
    #[must_use]
    pub fn has_ended(&self, within: Duration) -> bool {
        let mut polled = [PollFd::new(&self.handle, PollFlags::IN)];
        poll(&mut polled, within).is_ok_and(|ready| ready > 0)
    }
}

/// The processes that are in the mount namespace of the calling thread, other than its own.
///
/// # Errors
///
/// Where `/proc` can't be read.
pub fn in_this_namespace() -> anyhow::Result<Vec<Process>> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let own: Option<PathBuf> = namespace("thread-self");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(id) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        if id == std::process::id() {
            continue;
        }
        // Gone in the meantime is as good as somewhere else; so is one that is dead already.
        let Ok(process) = Process::of(id) else { continue };
        let is_here = namespace(&id.to_string()) == own && !process.has_ended(Duration::ZERO);
        if is_here {
            found.push(process);
        }
    }
    Ok(found)
}
