//! The process that serves: FUSE threads, control socket, registry.
//!
//! All that must outlive it is the keeper's. It must have no thread before it has entered its
//! namespaces, and never unmounts anything.

mod enter;

use std::process::ExitCode;

use crate::channel::{Begin, Channel, ToKeeper, ToWorker};
use crate::config::Store;
use crate::fault::{Fault, FaultReport};
use crate::sys::{self, StopSignals};

/// Standard input is the line to the keeper.
const LINE: i32 = 0;

/// Serves for the keeper that started this process.
pub(crate) fn run() -> ExitCode {
    let line = match sys::inherited(LINE) {
        Ok(line) => Channel::from(line),
        Err(errno) => {
            tracing::error!(%errno, "a worker is started by its keeper only");
            return ExitCode::FAILURE;
        }
    };
    match serve(&line) {
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

fn serve(line: &Channel) -> Result<(), FaultReport> {
    // The keeper decides when to stop, also where a terminal or a supervisor tells all processes.
    let _signals =
        StopSignals::block().map_err(|errno| Fault::System { step: "put signals off", errno })?;
    let Some((ToWorker::Begin(begin), descriptors)) = line.receive().map_err(line_failed)? else {
        return Err(Fault::Stopping.into());
    };
    prepare(&begin)?;
    drop(descriptors);
    line.send(&ToKeeper::Prepared, &[]).map_err(line_failed)?;
    let Some((ToWorker::Serve { device }, descriptors)) = line.receive().map_err(line_failed)?
    else {
        return Err(Fault::Stopping.into());
    };
    tracing::info!(device, ?descriptors);
    Err(Fault::NotSupported { what: "serving".to_owned() }.into())
}

fn prepare(begin: &Begin) -> Result<(), Fault> {
    if !begin.privileged {
        match (enter::enter_user_namespace(), &begin.store) {
            (Ok(()), _) => {}
            (Err(fault), Store::Tmpfs) => return Err(fault),
            // A directory serves without it, but for files that their owner may not read.
            (Err(fault), Store::Dir(_)) => {
                tracing::warn!(cause = fault.cause(), "no user namespace");
            }
        }
    }
    enter::die_with(begin.keeper)?;
    if begin.store == Store::Tmpfs {
        enter::try_tmpfs(begin.privileged)?;
    }
    Ok(())
}

fn line_failed(errno: rustix::io::Errno) -> FaultReport {
    Fault::System { step: "talk to the keeper", errno }.into()
}
