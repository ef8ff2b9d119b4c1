//! The worker, as its keeper sees it: a process, and a line to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::channel::{Channel, ToKeeper, ToWorker};
use crate::sys::StopSignals;

/// A worker that has been started and not yet been waited for.
#[derive(Debug)]
pub(super) struct Worker {
    process: Child,
    ended: OwnedFd,
    line: Option<Channel>,
}

/// What the keeper waits for.
#[derive(Debug)]
pub(super) enum Event {
    /// The worker says something.
    Said(ToKeeper),
    /// The worker has ended.
    Ended(ExitStatus),
    /// Somebody asks the keeper to stop.
    Signal(i32),
    /// Something that is watched has changed.
    Stirred,
    /// It took too long.
    Late,
}

impl Worker {
    /// Starts this very program as a worker. Its standard input is its end of the line.
    pub(super) fn start() -> io::Result<Self> {
        let (line, theirs) = Channel::pair()?;
        let mut process = Command::new("/proc/self/exe")
            .arg0("holdfast")
            .arg("worker")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            // What a terminal does to its programs must not stop or end it: clients would wait.
            .process_group(0)
            .spawn()?;
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        match pid.ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Ok(ended) => Ok(Self { process, ended, line: Some(line) }),
            Err(errno) => {
                process.kill()?;
                process.wait()?;
                Err(errno.into())
            }
        }
    }

    /// Tells the worker something. One that has ended is noticed where it is waited for.
    pub(super) fn tell(&self, message: &ToWorker, descriptors: &[BorrowedFd<'_>]) {
        if let Some(line) = &self.line
            && let Err(errno) = line.send(message, descriptors)
        {
            tracing::debug!(%errno, "the worker can't be told anything");
        }
    }

    /// Waits for the next thing that happens; for signals and changes only where they are given.
    pub(super) fn next(
        &mut self,
        signals: Option<&StopSignals>,
        watched: [Option<BorrowedFd<'_>>; 2],
        end: Option<Instant>,
    ) -> io::Result<Event> {
        loop {
            let [said, ended, signal, stirs @ ..] = self.wait(signals, watched, end)?;
            // What the worker said last comes before its end.
            if said && let Some(line) = &self.line {
                match line.receive() {
                    Ok(Some((message, _))) => return Ok(Event::Said(message)),
                    Ok(None) => self.line = None,
                    Err(errno) => {
                        tracing::error!(%errno, "the worker says what makes no sense");
                        self.process.kill()?;
                        self.line = None;
                    }
                }
                continue;
            }
            if ended {
                return Ok(Event::Ended(self.process.wait()?));
            }
            if signal && let Some(number) = signals.and_then(StopSignals::take) {
                return Ok(Event::Signal(number));
            }
            if stirs.contains(&true) {
                return Ok(Event::Stirred);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(Event::Late);
            }
        }
    }

    /// Lets the worker go: it ends when its line does. One that doesn't is killed.
    pub(super) fn end(mut self, patience: Duration) -> io::Result<ExitStatus> {
        self.line = None;
        let end = Some(Instant::now() + patience);
        if let Event::Ended(status) = self.next(None, [None; 2], end)? {
            return Ok(status);
        }
        tracing::warn!("the worker doesn't end by itself");
        self.process.kill()?;
        self.process.wait()
    }

    fn wait(
        &self,
        signals: Option<&StopSignals>,
        [table, socket]: [Option<BorrowedFd<'_>>; 2],
        end: Option<Instant>,
    ) -> io::Result<[bool; 5]> {
        let timeout = end
            .map(|end| Timespec::try_from(end.saturating_duration_since(Instant::now())))
            .transpose()
            .map_err(|_| Errno::INVAL)?;
        // The order is that of the answer; what isn't waited for stands for nothing.
        let ended = self.ended.as_fd();
        let (line, signals) = (self.line.as_ref().map(AsFd::as_fd), signals.map(AsFd::as_fd));
        let watched = [line, Some(ended), signals, table, socket];
        // The table of mounts can always be read; that it has changed is urgent.
        let flags = [PollFlags::IN, PollFlags::IN, PollFlags::IN, PollFlags::PRI, PollFlags::IN];
        let mut polled = std::array::from_fn::<_, 5, _>(|nth| match watched[nth] {
            Some(descriptor) => PollFd::from_borrowed_fd(descriptor, flags[nth]),
            None => PollFd::from_borrowed_fd(ended, PollFlags::empty()),
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = [false; 5];
        for ((ready, polled), watched) in ready.iter_mut().zip(&polled).zip(&watched) {
            *ready = watched.is_some() && !polled.revents().is_empty();
        }
        Ok(ready)
    }
}
