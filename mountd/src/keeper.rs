//! The process that `serve` starts as: it holds what must outlive the worker.
//!
//! It takes the seat, opens the store, makes the mount, starts the worker, keeps mount and socket in
//! place, and takes all of it down again. It must never parse a request, touch a path below the
//! mount, or wait without an end.

mod ask;
mod child;
mod privilege;
mod seat;
mod signpost;
mod stand;
mod store;

pub(crate) use privilege::require_all as require_privileges;
pub(crate) use seat::look as look_at_socket;
pub(crate) use store::look as look_at_store;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::channel::{Begin, ToKeeper, ToWorker, Why};
use crate::config::{Host, Settings, Store};
use crate::fault::{Fault, FaultReport};
use crate::mount::attach::Mount;
use crate::place::Place;
use crate::supervisor::{Hold, Supervisor};
use crate::sys::StopSignals;
use child::{Event, Worker};
use seat::Seat;
use signpost::Signpost;
use stand::Stand;

/// How long the worker may take to get ready.
const START: Duration = Duration::from_secs(30);
/// How long the worker may take to let requests in flight go out.
const QUIESCE: Duration = Duration::from_secs(2);
/// How long the worker may take to end.
const END: Duration = Duration::from_secs(5);

/// What is told once the namespace is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Serving {
    /// Where it appears.
    pub(crate) mountpoint: PathBuf,
    /// Where the daemon listens.
    pub(crate) socket: PathBuf,
    /// Whether a daemon that was there before serves it.
    pub(crate) already: bool,
}

/// Serves the namespace until asked to stop. `announce` is called once it is served.
pub(crate) fn serve(
    host: Host,
    settings: &Settings,
    announce: impl FnOnce(&Serving),
) -> Result<(), FaultReport> {
    let signals =
        StopSignals::block().map_err(|errno| Fault::System { step: "wait for signals", errno })?;
    raise_descriptor_limit();
    // Whatever was the current directory may go.
    std::env::set_current_dir("/").map_err(|error| system("leave the directory", &error))?;
    let mountpoint = canonical(&settings.mountpoint).unwrap_or_else(|| settings.mountpoint.clone());
    if let Some(socket) = signpost::found(host, settings, &mountpoint) {
        announce(&Serving { mountpoint, socket, already: true });
        return Ok(());
    }
    privilege::require_all(host)?;
    let Some(mut seat) = seat::take(host, settings, &mountpoint)? else {
        let socket = settings.socket.clone();
        announce(&Serving { mountpoint, socket, already: true });
        return Ok(());
    };
    let signpost =
        signpost::elsewhere(host, settings).and_then(|at| Signpost::put(host, &at, seat.socket()));
    let hold = Hold::new(host, settings.mountpoint.clone(), settings.context.clone());
    let mut keeper = Keeper { host, signals, hold, worker: None, number: 0 };
    let result = keeper.run(settings, &mut seat, announce);
    let cleared = keeper.clear();
    if let Some(signpost) = signpost {
        signpost.take_away();
    }
    seat.leave();
    result.and(cleared.map_err(FaultReport::from))
}

/// What the keeper has, in the order in which it gets it.
struct Keeper {
    host: Host,
    signals: StopSignals,
    hold: Hold,
    worker: Option<Worker>,
    /// The connection that serves, or is about to: the first is 1.
    number: u64,
}

/// How the time of a worker ended, where nothing failed.
enum Stopped {
    Signal(i32),
    Worker(Why),
}

impl Keeper {
    /// Starts, serves, and comes back with the reason for stopping.
    fn run(
        &mut self,
        settings: &Settings,
        seat: &mut Seat,
        announce: impl FnOnce(&Serving),
    ) -> Result<(), FaultReport> {
        Mount::require_device()?;
        let store = match &settings.store {
            Store::Tmpfs => None,
            Store::Dir(path) => Some(store::open(path, self.host)?),
        };
        let path = self.hold.check(|path| seat.was_made(path))?.place.path().to_owned();
        seat.remember_made(self.hold.made());
        let begin = Begin {
            privileged: self.host.privileged,
            keeper: std::process::id(),
            mountpoint: path.clone(),
            socket: seat.socket().to_owned(),
            store: settings.store.clone(),
            idle_exit: settings.idle_exit,
        };
        let stopped = match self.start(seat, store, begin)? {
            Some(stopped) => stopped,
            None => {
                let socket = settings.socket.clone();
                tracing::info!(mountpoint = %path.display(), "serving");
                announce(&Serving { mountpoint: path.clone(), socket, already: false });
                let supervisor = Supervisor::serving(path.clone());
                self.stand(Stand::new(settings, seat, supervisor)?)?
            }
        };
        match stopped {
            Stopped::Signal(number) => tracing::info!(number, "stopping on a signal"),
            Stopped::Worker(Why::Asked) => tracing::info!("stopping because a client asked"),
            Stopped::Worker(Why::Idle) => tracing::info!("stopping because nobody uses it"),
        }
        Ok(())
    }

    /// Starts the worker and makes the mount; where somebody asked to stop meanwhile, says so.
    fn start(
        &mut self,
        seat: &Seat,
        store: Option<OwnedFd>,
        begin: Begin,
    ) -> Result<Option<Stopped>, FaultReport> {
        let worker = Worker::start().map_err(|error| system("start the worker", &error))?;
        let worker = self.worker.insert(worker);
        let mut descriptors = vec![seat.listener()];
        descriptors.extend(store.as_ref().map(AsFd::as_fd));
        worker.tell(&ToWorker::Begin(begin), &descriptors);
        let end = Instant::now() + START;
        if let Some(stopped) = self.wait_until(|said| matches!(said, ToKeeper::Prepared), end)? {
            return Ok(Some(stopped));
        }
        self.connect()?;
        let ready = |said: &ToKeeper| matches!(said, ToKeeper::Ready { .. });
        if let Some(stopped) = self.wait_until(ready, end)? {
            return Ok(Some(stopped));
        }
        self.hold.attach()?;
        Ok(None)
    }

    /// Begins a connection at the place that was checked, and has the worker serve it.
    fn connect(&mut self) -> Result<(), Fault> {
        let (connection, device) = self.hold.begin()?;
        self.number += 1;
        if let Some(worker) = &self.worker {
            worker.tell(&ToWorker::Serve { number: self.number, device }, &[connection]);
        }
        Ok(())
    }

    fn tell(&self, message: &ToWorker) {
        if let Some(worker) = &self.worker {
            worker.tell(message, &[]);
        }
    }

    /// Waits until the worker says what is waited for.
    fn wait_until(
        &mut self,
        done: impl Fn(&ToKeeper) -> bool,
        end: Instant,
    ) -> Result<Option<Stopped>, FaultReport> {
        loop {
            match self.next(None, Some(end))? {
                Event::Said(message) if done(&message) => return Ok(None),
                Event::Said(ToKeeper::Failed(report) | ToKeeper::Unfit { report, .. }) => {
                    return Err(report);
                }
                Event::Said(ToKeeper::Stop(why)) => return Ok(Some(Stopped::Worker(why))),
                Event::Said(message) => tracing::warn!(?message, "out of turn"),
                Event::Ended(status) => return Err(worker_failed(status).into()),
                Event::Signal(number) => return Ok(Some(Stopped::Signal(number))),
                Event::Stirred => {}
                Event::Late => {
                    let status = format!("not ready after {START:?}");
                    return Err(Fault::WorkerFailed { status }.into());
                }
            }
        }
    }

    fn next(
        &mut self,
        stand: Option<&Stand<'_>>,
        end: Option<Instant>,
    ) -> Result<Event, FaultReport> {
        let Some(worker) = &mut self.worker else { return Err(Fault::Stopping.into()) };
        let watched = stand.map_or([None; 2], Stand::watched);
        let event = worker.next(Some(&self.signals), watched, end);
        if matches!(event, Ok(Event::Ended(_))) {
            self.worker = None;
        }
        event.map_err(|error| system("wait for the worker", &error).into())
    }

    /// Takes down what was put up. While the worker lives the mount goes first, so that what is
    /// still written reaches it; where it has died the connection goes first, so that nobody waits
    /// for an answer.
    fn clear(&mut self) -> Result<(), Fault> {
        if let Some(worker) = &mut self.worker {
            worker.tell(&ToWorker::Quiesce, &[]);
            let end = Instant::now() + QUIESCE;
            // What it says until it is quiet doesn't matter any more.
            loop {
                match worker.next(None, [None; 2], Some(end)) {
                    Ok(Event::Said(ToKeeper::Quiet) | Event::Late) => break,
                    Ok(Event::Said(_) | Event::Signal(_) | Event::Stirred) => {}
                    Ok(Event::Ended(_)) => {
                        self.worker = None;
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the worker can't be waited for");
                        break;
                    }
                }
            }
        }
        if self.worker.is_none() {
            self.hold.close_connection();
        }
        let detached = self.hold.take_down();
        if let Some(worker) = self.worker.take() {
            match worker.end(END) {
                Ok(status) if status.success() => {}
                Ok(status) => tracing::warn!(%status, "the worker ended"),
                Err(error) => tracing::warn!(%error, "the worker can't be waited for"),
            }
        }
        self.hold.leave();
        detached
    }
}

/// The path without links, as a daemon that serves it names it.
fn canonical(path: &Path) -> Option<PathBuf> {
    Place::of(path).ok().map(|place| place.path().to_owned())
}

/// A tree needs many descriptors, and the soft limit is there for programs that use `select`.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(errno) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%errno, "the limit of descriptors stays as it is");
    }
}

fn worker_failed(status: ExitStatus) -> Fault {
    Fault::WorkerFailed { status: status.to_string() }
}

fn system(step: &'static str, error: &io::Error) -> Fault {
    Fault::System { step, errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
}
