//! Whether anybody serves a mount of ours that was found at the path.
//!
//! The only way to know is to ask the filesystem, and where its daemon hangs the answer never
//! comes, not even to a signal. So a short-lived process asks, and is left behind if need be.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, StatxFlags, fstatfs, statx};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long an answer is waited for. A mount that nobody serves answers at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a process may take to end once the mount has answered it.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

const SERVED: u8 = 0;
const ABANDONED: u8 = 3;
const UNCLEAR: u8 = 4;

/// What is known of a mount's daemon.
#[derive(Debug)]
pub(crate) enum Served {
    /// It answers.
    Yes,
    /// It holds the connection without answering.
    Silent(Asking),
    /// Nobody holds the connection.
    No,
}

/// A process that waits for the answer of a mount that is silent. It is ended with this value, as
/// soon as it can be.
#[derive(Debug)]
pub(crate) struct Asking(OwnedFd);

impl Drop for Asking {
    fn drop(&mut self) {
        // One that has ended is none to be told.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl Asking {
    /// Whether it waits still: it ends when the mount's daemon answers or ends, and is given a moment
    /// for that.
    pub(crate) fn waits(&self) -> bool {
        let mut ended = [PollFd::new(&self.0, PollFlags::IN)];
        matches!(poll(&mut ended, Some(&MOMENT)), Ok(0))
    }
}

/// Asks, in a process of its own, whether anybody serves the mount of this descriptor.
pub(crate) fn ask(mount: BorrowedFd<'_>) -> std::io::Result<Served> {
    let mut child = Command::new("/proc/self/exe")
        .arg0("holdfast")
        .arg("probe")
        .stdin(Stdio::from(mount.try_clone_to_owned()?))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let mut wait = [PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN)];
    let patience = Timespec::try_from(PATIENCE).map_err(|_| Errno::INVAL)?;
    if poll(&mut wait, Some(&patience))? == 0 {
        // It may end only when the mount's daemon answers or ends, so a thread waits for it.
        let asking = Asking(ended);
        thread::Builder::new().name("probe".to_owned()).spawn(move || child.wait())?;
        return Ok(Served::Silent(asking));
    }
    let status = child.wait()?;
    Ok(if status.code() == Some(i32::from(ABANDONED)) { Served::No } else { Served::Yes })
}

/// The process that asks: standard input is the mount's root.
pub(crate) fn answer() -> ExitCode {
    let root = std::io::stdin();
    ExitCode::from(match fstatfs(&root) {
        Ok(_) => {
            // The kernel shall have fresh attributes of the root from here on; whether it gets them
            // says nothing more of the daemon.
            let fresh = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
            let _ = statx(&root, "", fresh, StatxFlags::BASIC_STATS);
            SERVED
        }
        Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CONNREFUSED) => ABANDONED,
        Err(_) => UNCLEAR,
    })
}
