//! The process that serves: FUSE threads, control socket, registry.
//!
//! All that must outlive it is the keeper's. It must have no thread before it has entered its
//! namespaces, and never unmounts anything.

mod budget;
mod connections;
mod enter;
mod event;
mod promises;
mod restore;
mod serve;
mod total;

pub(crate) use budget::Budget;
pub(crate) use enter::{enter_user_namespace, try_tmpfs};
pub(crate) use promises::lost as lost_promises;

use std::os::fd::OwnedFd;
use std::process::{ExitCode, abort};
use std::sync::Arc;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::channel::{Begin, Channel, ToKeeper, ToWorker};
use crate::config::Store;
use crate::fault::{Fault, FaultReport};
use crate::sys::{self, StopSignals};

/// Standard input is the line to the keeper.
const LINE: i32 = 0;

/// Serves for the keeper that started this process.
pub(crate) fn run() -> ExitCode {
    let line = match sys::inherited(LINE) {
        Ok(line) => Arc::new(Channel::from(line)),
        Err(errno) => {
            tracing::error!(%errno, "a worker is started by its keeper only");
            return ExitCode::FAILURE;
        }
    };
    crash_on_panic();
    match begin(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(report) => {
            // The keeper tells the operator.
            if let Err(errno) = line.send(&ToKeeper::Failed(report), &[]) {
                tracing::debug!(%errno, "the keeper has gone");
            }
            ExitCode::FAILURE
        }
    }
}

/// A worker with a thread less than it should have would be half alive, which is worse than dead.
fn crash_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        abort();
    }));
}

fn begin(line: &Arc<Channel>) -> Result<(), FaultReport> {
    // The keeper decides when to stop, also where a terminal or a supervisor tells all processes.
    let _signals =
        StopSignals::block().map_err(|errno| Fault::System { step: "put signals off", errno })?;
    lift_limits()?;
    // Modes are asked for bit by bit.
    umask(Mode::empty());
    let Some((ToWorker::Begin(begin), descriptors)) = line.receive().map_err(line_failed)? else {
        return Err(Fault::Stopping.into());
    };
    let mut descriptors = descriptors.into_iter();
    let listener = expected(descriptors.next())?;
    let directory = match begin.store {
        Store::Tmpfs => None,
        Store::Dir(_) => Some(expected(descriptors.next())?),
    };
    let reads_all = prepare(&begin)?;
    line.send(&ToKeeper::Prepared, &[]).map_err(line_failed)?;
    let Some((ToWorker::Serve { number, device }, descriptors)) =
        line.receive().map_err(line_failed)?
    else {
        return Err(Fault::Stopping.into());
    };
    let connection = expected(descriptors.into_iter().next())?;
    let connection = (number, device, connection);
    let given = serve::Given { begin, reads_all, connection, listener, directory };
    serve::serve(line, given).map_err(FaultReport::from)
}

/// Takes off the limits that are one program's and not those of all who keep files here.
fn lift_limits() -> Result<(), Fault> {
    sys::survive_large_files()
        .map_err(|errno| Fault::System { step: "ignore the signal of large files", errno })?;
    for (resource, name) in [(Resource::Fsize, "file size"), (Resource::As, "address space")] {
        // Who may, lifts the hard one too.
        let none = Rlimit { current: None, maximum: None };
        if setrlimit(resource, none).is_ok() {
            continue;
        }
        let Rlimit { current, maximum } = getrlimit(resource);
        if current != maximum {
            setrlimit(resource, Rlimit { current: maximum, maximum })
                .map_err(|errno| Fault::System { step: "lift a limit", errno })?;
        }
        if let Some(most) = maximum {
            tracing::warn!(name, most, "the daemon was started under a hard limit");
        }
    }
    // Beyond a finite one the file of inode records can't be made, which then is the fault.
    Ok(())
}

/// Gets ready, and says whether files can be opened that their owner may not read.
fn prepare(begin: &Begin) -> Result<bool, Fault> {
    let mut reads_all = true;
    if !begin.privileged {
        match (enter_user_namespace(), &begin.store) {
            (Ok(()), _) => {}
            (Err(fault), Store::Tmpfs) => return Err(fault),
            (Err(fault), Store::Dir(_)) => {
                tracing::warn!(cause = fault.cause(), "no user namespace");
                reads_all = false;
            }
        }
    }
    enter::die_with(begin.keeper)?;
    if begin.store == Store::Tmpfs {
        try_tmpfs(begin.privileged)?;
    }
    Ok(reads_all)
}

fn expected(descriptor: Option<OwnedFd>) -> Result<OwnedFd, FaultReport> {
    descriptor.ok_or_else(|| line_failed(Errno::BADMSG))
}

fn line_failed(errno: Errno) -> FaultReport {
    Fault::System { step: "talk to the keeper", errno }.into()
}
