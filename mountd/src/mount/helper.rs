//! `fusermount3`, which mounts and unmounts for those who may not themselves.

use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::fault::Fault;

const HELPER: &str = "fusermount3";
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The helper, which a second interrupt from the terminal must not end half-way.
pub(super) fn command() -> Command {
    let mut command = Command::new(HELPER);
    command.process_group(0);
    command
}

/// What it printed, where it did what it was asked for in time. One that doesn't come to an end is
/// killed, as it may hang on a filesystem that nobody serves.
pub(super) fn run(path: &Path, command: &mut Command) -> Result<Output, Fault> {
    match output(command, PATIENCE) {
        Ok(None) => Err(Fault::FusermountRefused {
            path: path.to_owned(),
            status: format!("no end within {} s", PATIENCE.as_secs()),
            stderr: String::new(),
        }),
        Ok(Some(output)) => succeeded(path, Ok(output)),
        Err(error) => succeeded(path, Err(error)),
    }
}

/// What a command prints until it ends; `None` where that takes too long.
fn output(command: &mut Command, patience: Duration) -> io::Result<Option<Output>> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // Before anybody waits for it, so that its pid can't be another one's.
    let held = Pid::from_child(&child);
    let held = pidfd_open(held, PidfdFlags::empty())?;
    let (tell, told) = channel();
    thread::Builder::new().name("helper".to_owned()).spawn(move || {
        let _ = tell.send(child.wait_with_output());
    })?;
    match told.recv_timeout(patience) {
        Ok(output) => output.map(Some),
        Err(_) => {
            let _ = pidfd_send_signal(&held, Signal::KILL);
            Ok(None)
        }
    }
}

fn succeeded(path: &Path, output: io::Result<Output>) -> Result<Output, Fault> {
    match output {
        Ok(output) if output.status.success() => Ok(output),
        Ok(output) => Err(refused(path, &output)),
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Err(match error.kind() {
                ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                    Fault::FusermountMissing { errno }
                }
                _ => Fault::System { step: "start fusermount3", errno },
            })
        }
    }
}

/// That it didn't, in its own words.
pub(super) fn refused(path: &Path, output: &Output) -> Fault {
    Fault::FusermountRefused {
        path: path.to_owned(),
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_not_waited_for() {
        let (reader, _writer) = io::pipe().expect("a pipe");
        let mut endless = Command::new("cat");
        endless.stdin(reader);
        let waited = output(&mut endless, Duration::from_millis(50)).expect("started");
        assert!(waited.is_none());
        let mut ends = Command::new("cat");
        ends.stdin(Stdio::null());
        let ended = output(&mut ends, PATIENCE).expect("started").expect("it ended");
        assert!(ended.status.success());
    }
}
