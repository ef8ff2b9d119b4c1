//! Programs that a test starts: with a deadline, with everything they print, ended by their id.
//!
//! Nothing here waits without a limit, and no process is ended that was not started here.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::mounts;
use crate::user::User;

/// How long a program may take where a test doesn't say; it tells a hang from a wait.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long the end of a killed program may take before its mounts are taken for hung.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// How long something may hold the output of a program that has ended.
const AFTER_END: Duration = Duration::from_secs(5);

/// A program that isn't started yet.
#[derive(Debug)]
pub struct Program {
    command: Command,
    deadline: Duration,
    input: Option<Vec<u8>>,
    log: Option<PathBuf>,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    /// What was started, for messages.
    pub name: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

/// A program that runs; dropped, it's killed with what it started, and reaped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    handle: OwnedFd,
    until: Instant,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    output: Vec<u8>,
    errors: Vec<u8>,
    log: Option<PathBuf>,
    taken: usize,
}

impl Program {
    /// A program by name or path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        // What it starts belongs to the same group, and can be ended with it.
        command.process_group(0);
        Self { command, deadline: DEADLINE, input: None, log: None }
    }

    /// A script for Bash, which stops at the first command that fails.
    #[must_use]
    pub fn bash(script: &str) -> Self {
        Self::new("bash").args(["-euo", "pipefail", "-c", script])
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    /// One variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Takes one variable out of the environment.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Where it starts.
    #[must_use]
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        self.command.current_dir(path);
        self
    }

    /// Who runs it.
    #[must_use]
    pub fn user(mut self, user: &User) -> Self {
        user.applied_to(&mut self.command);
        self
    }

    /// What it reads from standard input; otherwise there's nothing to read.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Standard error goes to this file, as for a program that may write much before it's read.
    #[must_use]
    pub fn log(mut self, path: PathBuf) -> Self {
        self.log = Some(path);
        self
    }

    /// How long it may take.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    ///
    /// Where it can't be started, or isn't done in time.
    pub fn run(mut self) -> anyhow::Result<Finished> {
        let input = self.input.take();
        let mut running = self.start()?;
        let writer = running.stdin.take().zip(input).map(|(mut stdin, bytes)| {
            // A program that doesn't read to the end is no failure here.
            std::thread::spawn(move || drop(stdin.write_all(&bytes)))
        });
        let finished = running.finish();
        if let Some(writer) = writer {
            drop(writer.join());
        }
        finished
    }

    /// Runs it, and gives what it wrote to standard output if it ended well.
    ///
    /// # Errors
    ///
    /// As [`Self::run`], and where it ends with another status than 0.
    pub fn output(self) -> anyhow::Result<String> {
        self.run()?.success()
    }

    /// Starts it, with a standard input that stays open.
    ///
    /// # Errors
    ///
    /// Where it can't be started.
    pub fn start(mut self) -> anyhow::Result<Running> {
        let name = describe(&self.command);
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(match &self.log {
            Some(path) => Stdio::from(File::create(path)?),
            None => Stdio::piped(),
        });
        let mut child = self.command.spawn().with_context(|| format!("{name} can't be started"))?;
        let handle = rustix::process::pidfd_open(process(&child), PidfdFlags::empty())?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Running {
            name,
            child,
            handle,
            until: Instant::now() + self.deadline,
            stdin,
            stdout,
            stderr,
            output: Vec::new(),
            errors: Vec::new(),
            log: self.log,
            taken: 0,
        })
    }
}

impl Running {
    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Something that can be polled for its end.
    #[must_use]
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// Where it's gone.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.handle, signal)?)
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    ///
    /// Where it doesn't read any more.
    pub fn say(&mut self, line: &str) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("standard input is closed")?;
        writeln!(stdin, "{line}").with_context(|| format!("{} doesn't read", self.name))
    }

    /// Waits for the next line of its standard output.
    ///
    /// # Errors
    ///
    /// Where it ends, or the time does, before there is one.
    pub fn line(&mut self) -> anyhow::Result<String> {
        loop {
            let rest = &self.output[self.taken..];
            if let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&rest[..length]).into_owned();
                self.taken += length + 1;
                return Ok(line);
            }
            if self.stdout.is_none() {
                bail!("{} has no more to say; errors: {}", self.name, self.errors());
            }
            self.wait_for_output(self.until)?;
        }
    }

    /// Closes its standard input and waits for its end.
    ///
    /// # Errors
    ///
    /// Where the time ends first.
    pub fn finish(mut self) -> anyhow::Result<Finished> {
        self.stdin = None;
        while !self.has_ended(Duration::ZERO) {
            self.wait_for_output(self.until)?;
        }
        let until = Instant::now() + AFTER_END;
        while self.stdout.is_some() || self.stderr.is_some() {
            self.wait_for_output(until).context("something that it started holds its output")?;
        }
        let status = self.child.wait()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Finished {
            name: self.name.clone(),
            status,
            stdout: text(&self.output),
            stderr: self.errors(),
        })
    }

    /// What it wrote to standard error until now.
    fn errors(&self) -> String {
        match &self.log {
            Some(path) => fs::read_to_string(path).unwrap_or_default(),
            None => String::from_utf8_lossy(&self.errors).into_owned(),
        }
    }

    /// Waits until it writes or ends, and takes what it wrote.
    fn wait_for_output(&mut self, until: Instant) -> anyhow::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let mut ready = [false; 3];
        {
            let out = self.stdout.as_ref().map(|out| out.as_fd());
            let err = self.stderr.as_ref().map(|err| err.as_fd());
            let end = (!self.has_ended(Duration::ZERO)).then(|| self.handle.as_fd());
            let all = [out, err, end];
            if all.iter().all(Option::is_none) {
                // It has ended since it was last asked for, and nothing is left to wait for.
                return Ok(());
            }
            let mut polled: Vec<PollFd<'_>> = all
                .iter()
                .flatten()
                .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
                .collect();
            poll(&mut polled, left)?;
            let mut answers = polled.iter().map(|fd| !fd.revents().is_empty());
            for (ready, fd) in ready.iter_mut().zip(all) {
                *ready = fd.is_some() && answers.next().unwrap_or(false);
            }
        }
        if ready == [false; 3] && left.is_zero() {
            let said = String::from_utf8_lossy(&self.output).into_owned();
            let errors = self.errors();
            bail!("{} isn't done in time; it said {said:?} and {errors:?}", self.name);
        }
        if ready[0] {
            take(&mut self.stdout, &mut self.output)?;
        }
        if ready[1] {
            take(&mut self.stderr, &mut self.errors)?;
        }
        Ok(())
    }

    fn has_ended(&self, within: Duration) -> bool {
        let mut polled = [PollFd::new(&self.handle, PollFlags::IN)];
        poll(&mut polled, within).is_ok_and(|ready| ready > 0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not reaped yet, so the id is still its own.
        let group = process(&self.child);
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        let kill = || {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        };
        kill();
        if !self.has_ended(AFTER_KILL) {
            mounts::abort_fuse_connections();
            kill();
        }
        if self.has_ended(AFTER_KILL) {
            drop(self.child.wait());
        }
        // The rest of the group was killed too, and only has to come to its end.
        let until = Instant::now() + AFTER_KILL;
        while rustix::process::test_kill_process_group(group).is_ok() && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

impl Finished {
    /// What it wrote to standard output, if its status is 0.
    ///
    /// # Errors
    ///
    /// Where it's another.
    pub fn success(self) -> anyhow::Result<String> {
        if !self.status.success() {
            bail!(
                "{} ended with {}\n--- standard output\n{}--- standard error\n{}",
                self.name,
                self.status,
                self.stdout,
                self.stderr
            );
        }
        Ok(self.stdout)
    }

    /// Its exit status, where it exited.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The code of the fault that `holdfast` complained about.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        let line = self.stderr.lines().find_map(|line| line.strip_prefix("holdfast: "))?;
        line.split_once(": ").map(|(code, _)| code)
    }

    /// The signal that ended it.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// Waits for any of these for at most this long.
///
/// # Errors
///
/// What `poll` says, but not that a signal came in between.
pub fn poll(polled: &mut [PollFd<'_>], within: Duration) -> io::Result<usize> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match rustix::event::poll(polled, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

fn take(from: &mut Option<impl io::Read>, into: &mut Vec<u8>) -> io::Result<()> {
    let mut block = [0; 1 << 16];
    let Some(pipe) = from else { return Ok(()) };
    match pipe.read(&mut block)? {
        0 => *from = None,
        read => into.extend_from_slice(&block[..read]),
    }
    Ok(())
}

fn process(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn describe(command: &Command) -> String {
    let arguments = command.get_args().map(|argument| {
        let text = argument.to_string_lossy();
        if text.chars().count() > 200 {
            text.chars().take(200).chain(['…']).collect()
        } else {
            text.into_owned()
        }
    });
    let program = command.get_program().to_string_lossy().into_owned();
    [program].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
}
