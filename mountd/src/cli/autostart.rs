//! Starts a daemon in the background where none answers.
//!
//! It must never be done from inside a lease: there the truth is that the daemon has gone.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::config::{ClientSocket, Flags, Host, Settings};
use crate::fault::{Fault, FaultReport};
use crate::sys::detach;

/// After how long without use it leaves, where the settings say nothing.
const IDLE_EXIT: &str = "10m";
/// How long it may take to begin to serve.
const PATIENCE: Duration = Duration::from_secs(60);
/// The variable that is set inside of a lease.
const MEMBER: &str = "HOLDFAST_MEMBER";
/// The log of a daemon that was started here is begun anew when it is longer than this.
const LONGEST_LOG: u64 = 1 << 20;

/// Whether this process runs inside of a lease.
pub(super) fn inside_a_lease() -> bool {
    env::var_os(MEMBER).is_some_and(|member| !member.is_empty())
}

/// Starts a daemon that listens where it is looked for, and waits until it serves.
pub(super) fn start(host: Host, place: &ClientSocket) -> Result<(), FaultReport> {
    let failed = |step| move |error: io::Error| Fault::System { step, errno: errno(&error) };
    let (ready, theirs) = io::pipe().map_err(failed("make a pipe"))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("holdfast").arg("serve");
    let mut flags = Flags::default();
    match place {
        ClientSocket::Named(socket) => {
            command.arg("--socket").arg(socket);
            flags.socket = Some(socket.clone());
        }
        ClientSocket::Search(_) => {}
    }
    let settings = Settings::read(host, flags)?;
    if settings.idle_exit.is_none() {
        command.args(["--idle-exit", IDLE_EXIT]);
    }
    command
        .args(["--ready-fd", &theirs.as_raw_fd().to_string()])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log().map_or_else(Stdio::null, Stdio::from));
    detach(&mut command, theirs.as_raw_fd());
    let step = "start a daemon";
    let mut between = command.spawn().map_err(failed(step))?;
    drop(theirs);
    between.wait().map_err(failed(step))?;
    wait(ready, &settings.socket)
}

/// Waits for the line that says that it serves, or why it can't.
fn wait(mut ready: PipeReader, socket: &Path) -> Result<(), FaultReport> {
    let failed = |errno| Fault::System { step: "wait for the daemon", errno };
    let end = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    loop {
        if !waits_until(&ready, end).map_err(failed)? {
            let socket = socket.to_owned();
            return Err(Fault::DaemonUnresponsive { socket, waited: PATIENCE }.into());
        }
        let mut piece = [0; 4096];
        let length = ready.read(&mut piece).map_err(|error| failed(errno(&error)))?;
        said.extend_from_slice(&piece[..length]);
        match said.split(|byte| *byte == b'\n').next() {
            Some([]) if !said.is_empty() => return Ok(()),
            Some(line) if line.len() < said.len() || length == 0 => {
                return Err(serde_json::from_slice(line).unwrap_or_else(|_| {
                    let mut answer = "the daemon that was started here ended at once".to_owned();
                    if let Some(log) = log_path() {
                        answer.push_str(&format!("; its log is {}", log.display()));
                    }
                    Fault::DaemonUnreachable { tried: vec![(socket.to_owned(), answer)] }.into()
                }));
            }
            _ => {}
        }
    }
}

fn waits_until(ready: &PipeReader, end: Instant) -> rustix::io::Result<bool> {
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        let rest = Timespec::try_from(rest).map_err(|_| Errno::INVAL)?;
        let ready = ready.as_fd();
        match poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&rest)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// The log of a daemon that is started here.
fn log_path() -> Option<PathBuf> {
    let named = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        named("XDG_STATE_HOME").or_else(|| named("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("holdfast/log"))
}

/// Where a daemon that nobody looks at tells what happens to it; nowhere if that can't be had.
fn log() -> Option<File> {
    let path = log_path()?;
    let directory = path.parent()?;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let opened = made.and_then(|()| {
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        if log.metadata()?.len() > LONGEST_LOG {
            log.set_len(0)?;
        }
        Ok(log)
    });
    opened.inspect_err(|error| tracing::debug!(%error, "the daemon gets no log")).ok()
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn said(words: &[u8]) -> Result<(), FaultReport> {
        let (ready, mut theirs) = io::pipe().expect("a pipe");
        theirs.write_all(words).expect("said");
        drop(theirs);
        wait(ready, Path::new("/socket"))
    }

    #[test]
    fn an_empty_line_says_that_it_serves() {
        assert_eq!(said(b"\n"), Ok(()));
    }

    #[test]
    fn a_fault_is_handed_on_whole() {
        let report = Fault::StoreLocked { path: PathBuf::from("/store") }.report();
        let mut line = serde_json::to_vec(&report).expect("JSON");
        line.push(b'\n');
        assert_eq!(said(&line), Err(report));
    }

    #[test]
    fn a_daemon_that_says_nothing_and_ends_is_not_there() {
        for words in [&b""[..], b"what?", b"{}\n"] {
            assert_eq!(said(words).expect_err("no daemon").code, "daemon-unreachable");
        }
    }
}
