//! What happens to the worker, and the threads that tell of it.
//!
//! It must never decide what is done about it.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use rustix::io::Errno;

use crate::channel::{ToWorker, Why};
use crate::fault::Fault;

/// What the worker waits for.
pub(super) enum Event {
    /// The keeper says something.
    Told(ToWorker, Vec<OwnedFd>),
    /// The keeper has let go.
    LetGo,
    /// A connection to the kernel has ended.
    ConnectionEnded(u64, io::Result<()>),
    /// Clients are served no longer.
    Quiet(Result<Why, Fault>),
}

/// Starts a thread.
pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|error| system("start a thread", &error))
}

pub(super) fn system(step: &'static str, error: &io::Error) -> Fault {
    Fault::System { step, errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
}
