//! Waits for what the namespace waits for: the end of processes, and moments.
//!
//! A process is held by a pidfd, so another one with the same pid is never taken for it. It must
//! never ask twice for what an event will tell.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_fs::clock::Timestamp;
use holdfast_fs::namespace::{Blockage, Leaving, Observer};
use holdfast_fs::registry::{Process, SessionId};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use super::events::Happening;
use super::peer::start_of;
use super::state::State;
use crate::sys::readable;

pub(crate) use super::peer::Lines;

/// How long to wait where no descriptor is left to wait with; no event tells when one is.
const SHORTAGE: Duration = Duration::from_secs(1);

/// For how long a shortage that was told is no news.
const STALE_AFTER: Duration = Duration::from_secs(3600);

/// What the namespace says.
enum Said {
    Watch(Process),
    Unwatch(Process),
    Due(Option<Timestamp>),
    Gone,
    Discard(Leaving, Option<Blockage>),
}

/// The namespace's end.
#[derive(Debug)]
struct Teller(UnboundedSender<Said>);

impl Teller {
    fn tell(&self, said: Said) {
        // Where nobody listens any more, the daemon is about to end.
        let _ = self.0.send(said);
    }
}

impl Observer for Teller {
    fn watch(&self, process: Process) {
        self.tell(Said::Watch(process));
    }

    fn unwatch(&self, process: Process) {
        self.tell(Said::Unwatch(process));
    }

    fn due(&self, at: Option<Timestamp>) {
        self.tell(Said::Due(at));
    }

    fn session_gone(&self, _session: SessionId) {
        self.tell(Said::Gone);
    }

    fn discard_blocked(&self, generation: Leaving, why: Option<Blockage>) {
        self.tell(Said::Discard(generation, why));
    }
}

/// What there is to wait for.
pub(crate) struct Watching {
    said: UnboundedReceiver<Said>,
}

/// Who the namespace is given to tell, and what then waits.
pub(crate) fn watching() -> (Arc<dyn Observer>, Watching) {
    let (teller, said) = unbounded_channel();
    (Arc::new(Teller(teller)), Watching { said })
}

impl Watching {
    /// Waits, and tells the namespace what happens, for as long as it is polled.
    pub(super) async fn run(mut self, state: Rc<State>) -> io::Result<()> {
        let mut processes = Processes::default();
        let timer = Timer::new()?;
        loop {
            tokio::select! {
                said = self.said.recv() => match said {
                    Some(Said::Watch(process)) => processes.watch(process),
                    Some(Said::Unwatch(process)) => processes.unwatch(process),
                    Some(Said::Due(at)) => timer.set(at)?,
                    // Whoever waits for that looks again below.
                    Some(Said::Gone) => {}
                    Some(Said::Discard(generation, why)) => {
                        state.events.note(Happening::Discard(generation, why));
                    }
                    // The namespace is gone.
                    None => return Ok(()),
                },
                process = processes.next() => state.namespace.process_gone(process),
                elapsed = timer.elapsed() => {
                    elapsed?;
                    state.namespace.tick();
                }
            }
            state.note_change();
        }
    }
}

/// The processes that are waited for.
#[derive(Default)]
struct Processes {
    waits: JoinSet<Process>,
    handles: HashMap<Process, AbortHandle>,
    told: Rc<Told>,
}

/// When it was last told that a process can't be waited for: whoever can cause that can't fill the
/// log with it.
#[derive(Default)]
struct Told(Cell<Option<Instant>>);

impl Told {
    fn is_news(&self) -> bool {
        let news = self.0.get().is_none_or(|told| told.elapsed() >= STALE_AFTER);
        if news {
            self.0.set(Some(Instant::now()));
        }
        news
    }
}

impl Processes {
    fn watch(&mut self, process: Process) {
        let (waits, told) = (&mut self.waits, &self.told);
        self.handles
            .entry(process)
            .or_insert_with(|| waits.spawn_local(end_of(process, Rc::clone(told))));
    }

    fn unwatch(&mut self, process: Process) {
        if let Some(handle) = self.handles.remove(&process) {
            handle.abort();
        }
    }

    /// The next one that has ended.
    async fn next(&mut self) -> Process {
        loop {
            match self.waits.join_next().await {
                // One that ended while it was let go is of no interest any more.
                Some(Ok(process)) if self.handles.remove(&process).is_some() => return process,
                Some(Ok(_) | Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Waits for the end of a process.
async fn end_of(process: Process, told: Rc<Told>) -> Process {
    loop {
        let waited = match hold(process) {
            Ok(Some(held)) => wait_for(held).await,
            Ok(None) => return process,
            Err(errno) => Err(errno.into()),
        };
        match waited {
            Ok(()) => return process,
            Err(error) => {
                if told.is_news() {
                    tracing::warn!(pid = process.pid, %error, "a process can't be waited for yet");
                }
                tokio::time::sleep(SHORTAGE).await;
            }
        }
    }
}

/// Holds the process, so that its pid can't become another one's; `None` where it has ended.
fn hold(process: Process) -> rustix::io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        // Only now: what starts later under this pid isn't what is held.
        Ok(held) => Ok((start_of(process.pid) == Some(process.start)).then_some(held)),
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

async fn wait_for(process: OwnedFd) -> io::Result<()> {
    readable(process)?.readable().await.map(drop)
}

/// The moment at which the namespace wants to be called, on the clock that its moments are of:
/// one that goes on while the machine sleeps.
struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        readable(timer).map(Self)
    }

    fn set(&self, at: Option<Timestamp>) -> io::Result<()> {
        // Zero is no moment but the word for none.
        let at = at.map(|at| at.since_start().max(Duration::from_nanos(1))).unwrap_or_default();
        let value = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(at.subsec_nanos()),
        };
        let setting = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &setting)?;
        Ok(())
    }

    async fn elapsed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            match rustix::io::read(self.0.get_ref(), &mut [0_u8; 8]) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
