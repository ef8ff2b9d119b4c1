//! `holdfast run`: takes a lease and becomes the command that it is for.
//!
//! The lease hangs on this process, which the command then is. Where storage can't be had nothing
//! is started; it must never be another directory instead.

mod bind;

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::io::Errno;

use super::Outcome;
use super::args::{PolicyArgs, RunArgs};
use super::autostart;
use super::output::Output;
use crate::config::{ClientSocket, Host};
use crate::control::client::Client;
use crate::control::wire;
use crate::fault::{Fault, FaultReport, Seen};
use crate::sys;

/// The variable that names the daemon's socket.
const SOCKET: &str = "HOLDFAST_SOCKET";
/// How long the mount may take to show the leased directory.
const PATIENCE: Duration = Duration::from_secs(10);
/// The status where the command can't be run, as of `env` and its kind.
const NOT_RUNNABLE: u8 = 126;
/// The status where there is no such command.
const NOT_FOUND: u8 = 127;

/// Takes a lease and becomes the command.
pub(crate) fn run(socket: Option<&Path>, args: &RunArgs, output: Output) -> Outcome {
    let status = args.status_fd.map(Status::new).transpose()?;
    match prepare(socket, args) {
        // What is open for a fault closes when the command takes over.
        Ok(environment) => Ok(become_command(&args.command, &environment, output)),
        Err(report) => {
            if let Some(status) = status {
                status.tell(&report);
            }
            Err(report)
        }
    }
}

/// Gets all that the command needs; what is to be set in its environment.
fn prepare(socket: Option<&Path>, args: &RunArgs) -> Result<BTreeMap<String, String>, FaultReport> {
    let host = Host::ask()?;
    let acquired = match lease(host, socket, args) {
        // The daemon that was found was about to end: it is as if it hadn't been found.
        Err(report)
            if ["daemon-unreachable", "stopping"].contains(&report.code.as_str())
                && !autostart::inside_a_lease() =>
        {
            lease(host, socket, args)
        }
        acquired => acquired,
    };
    let wire::AcquiredLease { lease, mut environment, lost_promises: _ } = acquired?;
    if args.bind_tmp {
        bind::over_tmp(host, &lease.path)?;
        for place in environment.values_mut().filter(|place| **place == lease.path) {
            bind::PLACE.clone_into(place);
        }
        if environment.get(SOCKET).is_some_and(|socket| hidden(socket)) {
            environment.remove(SOCKET);
        }
    }
    Ok(environment)
}

/// Whether a path leads elsewhere where the lease is `/tmp`.
fn hidden(path: &str) -> bool {
    Path::new(path).starts_with(bind::PLACE)
}

fn lease(
    host: Host,
    socket: Option<&Path>,
    args: &RunArgs,
) -> Result<wire::AcquiredLease, FaultReport> {
    let mut client = daemon(host, socket)?;
    let session = match &args.session {
        Some(session) => session.clone(),
        None => client.call(&policy(&args.policy))?.session.id,
    };
    let acquired = client.call(&wire::AcquireLease {
        session,
        kind: Some(args.lease.into()),
        ..wire::AcquireLease::default()
    })?;
    check_visible(&acquired.lease, client.socket())?;
    Ok(acquired)
}

/// A session for this one command: it is retained by this process and nobody else.
fn policy(policy: &PolicyArgs) -> wire::OpenSession {
    wire::OpenSession {
        size: policy.size,
        inodes: policy.inodes,
        mode: policy.mode.map(Into::into),
        guard: policy.guard.map(Into::into),
        ..wire::OpenSession::default()
    }
}

/// The daemon, started where there is none.
fn daemon(host: Host, socket: Option<&Path>) -> Result<Client, FaultReport> {
    let place = ClientSocket::find(host, socket)?;
    let not_found = match Client::search(&place)? {
        Ok(client) => return Ok(client),
        Err(not_found) => not_found,
    };
    if autostart::inside_a_lease() {
        return Err(Fault::from(not_found).into());
    }
    autostart::start(host, &place)?;
    Ok(Client::search(&place)?.map_err(Fault::from)?)
}

/// Looks whether this process's view of the file system has the leased directory in it.
fn check_visible(lease: &wire::Lease, socket: &Path) -> Result<(), Fault> {
    let failed = |error: io::Error| Fault::System {
        step: "look at the lease",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::INVAL),
    };
    let path = CString::new(lease.path.as_str()).map_err(|error| failed(error.into()))?;
    let expected = (lease.device, lease.inode);
    let found = match sys::look_in_child(&path, PATIENCE).map_err(failed)? {
        Some(Ok(found)) if found == expected => return Ok(()),
        Some(Ok((device, inode))) => Seen::Other(device, inode),
        Some(Err(errno)) => Seen::Nothing(errno),
        None => {
            return Err(Fault::DaemonUnresponsive { socket: socket.to_owned(), waited: PATIENCE });
        }
    };
    Err(Fault::MountpointNotVisible { path: PathBuf::from(&lease.path), expected, found })
}

/// Takes the command's place for this process's; comes back only where that can't be done.
fn become_command(
    command: &[OsString],
    environment: &BTreeMap<String, String>,
    output: Output,
) -> ExitCode {
    let Some((program, arguments)) = command.split_first() else {
        return ExitCode::from(NOT_FOUND);
    };
    let mut command_in_place = Command::new(program);
    // One of the caller's own stays only where the daemon's is the same.
    command_in_place.args(arguments).env_remove(SOCKET).envs(environment);
    sys::hand_on_ignored_pipe(&mut command_in_place);
    let error = command_in_place.exec();
    output.note(&format!("{}: {error}", program.display()));
    ExitCode::from(match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUNNABLE,
    })
}

/// The descriptor on which whoever started this waits for a fault.
struct Status(File);

impl Status {
    fn new(descriptor: RawFd) -> Result<Self, Fault> {
        // The command needs its standard streams even where a fault would be told on one of them.
        let descriptor = match descriptor {
            0..=2 => sys::copy_of_inherited(descriptor),
            _ => sys::inherited(descriptor),
        }
        .map_err(|errno| Fault::SettingsInvalid {
            place: "--status-fd".to_owned(),
            reason: errno.to_string(),
        })?;
        Ok(Self(File::from(descriptor)))
    }

    fn tell(mut self, report: &FaultReport) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            // Whoever has left doesn't want to know any more.
            let _ = self.0.write_all(&line);
        }
    }
}

#[cfg(test)]
mod tests;
