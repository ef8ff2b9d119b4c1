//! Another program that is sent to find something out, for a limited time.
//!
//! A path can hold up whoever touches it for ever, even against a signal. So what may hang is done
//! by a process that can be left behind. Nothing in here waits longer than it is told to.

use std::env;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// More than this isn't kept of what a program writes.
const LONGEST: usize = 256 * 1024;

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How the program ended; `None` where it didn't in time.
    pub(crate) status: Option<ExitStatus>,
    /// What it wrote to standard output until then.
    pub(crate) stdout: Vec<u8>,
    /// What it wrote to standard error until then.
    pub(crate) stderr: Vec<u8>,
}

/// This very program, to be started once more. A sandbox may have no `/proc`; then the name by which
/// it was started must do.
pub(crate) fn this_program() -> Command {
    let own = Path::new("/proc/self/exe");
    let mut command = match env::args_os().next() {
        Some(started) if !own.exists() => Command::new(started),
        Some(_) | None => Command::new(own),
    };
    command.arg0("holdfast");
    command
}

/// Runs a program to its end, with nothing to read. One that isn't done in time is killed with all
/// that it started in its group, and not waited for.
pub(crate) fn run(command: &mut Command, patience: Duration) -> io::Result<Outcome> {
    let end = Instant::now() + patience;
    // A sandbox may have no `/dev/null`; this has nothing to read in it either.
    let (nothing, _) = io::pipe()?;
    command.stdin(nothing).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let group = Pid::from_child(&child);
    let mut outcome = Outcome::default();
    match wait(&mut child, end, &mut outcome) {
        Ok(true) => outcome.status = Some(child.wait()?),
        // Not waited for yet, so the number is still its own.
        Ok(false) => drop(kill_process_group(group, Signal::KILL)),
        Err(error) => {
            let _ = kill_process_group(group, Signal::KILL);
            return Err(error);
        }
    }
    Ok(outcome)
}

/// Takes what the program writes until it ends; whether it did.
fn wait(child: &mut Child, end: Instant, outcome: &mut Outcome) -> io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    for pipe in [out.as_ref().map(AsFd::as_fd), err.as_ref().map(AsFd::as_fd)] {
        pipe.map_or(Ok(()), never_wait)?;
    }
    loop {
        let pipes = [out.as_ref().map(AsFd::as_fd), err.as_ref().map(AsFd::as_fd)];
        let ended = match ready(process.as_fd(), &pipes, end)? {
            Ready::Late => return Ok(false),
            Ready::Ended => true,
            Ready::Words => false,
        };
        // What it has started may hold the pipes for longer than it lives itself.
        take(&mut out, &mut outcome.stdout)?;
        take(&mut err, &mut outcome.stderr)?;
        if ended {
            return Ok(true);
        }
    }
}

enum Ready {
    Ended,
    Words,
    Late,
}

fn ready(
    process: BorrowedFd<'_>,
    pipes: &[Option<BorrowedFd<'_>>],
    end: Instant,
) -> io::Result<Ready> {
    let mut polled = vec![PollFd::from_borrowed_fd(process, PollFlags::IN)];
    let pipes = pipes.iter().flatten();
    polled.extend(pipes.map(|pipe| PollFd::from_borrowed_fd(*pipe, PollFlags::IN)));
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut polled, Some(&left)) {
            Ok(0) => return Ok(Ready::Late),
            Ok(_) if polled[0].revents().is_empty() => return Ok(Ready::Words),
            Ok(_) => return Ok(Ready::Ended),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn never_wait(pipe: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?)
}

/// Takes all that is there; at the end of a pipe, nothing is asked of it any more.
fn take(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> io::Result<()> {
    let mut part = [0; 4096];
    while let Some(open) = pipe {
        match open.read(&mut part) {
            Ok(0) => *pipe = None,
            Ok(length) => {
                let room = LONGEST.saturating_sub(into.len());
                into.extend_from_slice(&part[..length.min(room)]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::process::kill_process;

    use super::*;

    const GENEROUS: Duration = Duration::from_secs(30);

    #[test]
    fn what_a_program_says_is_heard() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let outcome = run(&mut command, GENEROUS).expect("started");
        assert_eq!(outcome.status.and_then(|status| status.code()), Some(3));
        assert_eq!(
            (outcome.stdout.as_slice(), outcome.stderr.as_slice()),
            (&b"out\n"[..], &b"err\n"[..])
        );
    }

    #[test]
    fn a_program_that_hangs_is_left_with_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; exec sleep 1000"]);
        let outcome = run(&mut command, Duration::from_secs(2)).expect("started");
        assert!(outcome.status.is_none());
        assert_eq!(outcome.stdout, b"first\n");
    }

    #[test]
    fn what_a_program_leaves_behind_is_not_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!"]);
        let outcome = run(&mut command, GENEROUS).expect("started");
        let left = String::from_utf8_lossy(&outcome.stdout).trim().parse().expect("a pid");
        kill_process(Pid::from_raw(left).expect("a pid"), Signal::KILL).expect("it still runs");
        assert!(outcome.status.is_some_and(|status| status.success()));
    }

    #[test]
    fn much_output_does_not_stop_a_program() {
        let mut command = Command::new("sh");
        command.args(["-c", "yes | head -c 1000000; exit 0"]);
        let outcome = run(&mut command, GENEROUS).expect("started");
        assert!(outcome.status.is_some_and(|status| status.success()));
        assert_eq!(outcome.stdout.len(), LONGEST);
    }
}
