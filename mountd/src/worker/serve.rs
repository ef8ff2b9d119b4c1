//! Builds what serves, and does what there is to be done, event by event.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;

use holdfast_fs::clock::{Monotonic, System};
use holdfast_fs::ground::StoreGround;
use holdfast_fs::namespace::{KernelDraw, Namespace, Observer, Surroundings};
use holdfast_fs::registry::{Bounds, Served};
use holdfast_fs::store::{Store, StoreError};
use holdfast_fs::tempfs::Commons;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::budget::Budget;
use super::connections::Connections;
use super::event::{Event, start, system};
use super::promises;
use super::restore::Lasting;
use super::total;
use crate::channel::{Begin, Channel, ToKeeper, ToWorker, Why};
use crate::control::{self, Facts, Happening, Refusals, Standing, State, Stop, Watching, Writing};
use crate::fault::Fault;

/// What the keeper hands over.
pub(super) struct Given {
    pub(super) begin: Begin,
    /// Whether a user namespace of its own could be had, where one is needed.
    pub(super) reads_all: bool,
    /// The first connection to the kernel: its number, the device number of its mount, and the
    /// kernel's end.
    pub(super) connection: (u64, u64, OwnedFd),
    /// Where clients are let in.
    pub(super) listener: OwnedFd,
    /// The directory of a `dir:` store.
    pub(super) directory: Option<OwnedFd>,
}

/// Serves until the keeper lets go.
pub(super) fn serve(line: &Arc<Channel>, given: Given) -> Result<(), Fault> {
    let Given { begin, reads_all, connection, listener, directory } = given;
    let budget = Budget::of_this_process();
    let store = Arc::new(match directory {
        Some(directory) => Store::beneath(directory),
        None => Store::tmpfs(),
    });
    let commons = filesystem(&begin, budget);
    let (observer, watching) = control::watching();
    let bounds = Bounds {
        generations: budget.generations,
        generations_per_uid: budget.generations_per_uid(begin.privileged),
        ..Bounds::default()
    };
    let lasting = Lasting::of(&store)?;
    // A directory has whatever room its filesystem has.
    let total = store.holds_limits().then(|| begin.total.unwrap_or_else(total::by_default));
    if let Some(bytes) = total {
        tracing::info!(bytes, "what all sessions together may hold");
    }
    let namespace = namespace(&commons, store, &lasting, observer, (bounds, total))?;
    let (witness, refusals) = control::refusals();
    commons.set_witness(witness);
    let (happened, events) = unbounded_channel();
    let writing = writing(&commons);
    let mut connections = Connections::new(commons, lasting, happened.clone());
    let (number, device, connection) = connection;
    let (epoch, features) = connections.open(number, connection)?;
    tracing::info!(?features, device, "connected");
    let facts = Facts {
        mountpoint: begin.mountpoint,
        socket: begin.socket,
        store: begin.store.to_string(),
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        many_users: begin.privileged,
        idle_exit: begin.idle_exit,
        bounds,
        lost_promises: promises::lost(features, begin.privileged, reads_all, &begin.store),
    };
    let stop = Stop::new();
    let asks = Arc::clone(line);
    let standing = Standing::new(move |asked| tell(&asks, &ToKeeper::Look { asked }));
    let state = State::new(namespace, facts, Arc::new(Monotonic), stop.clone(), standing)?;
    let state = Rc::new(state);
    state.serve(Served { epoch, device });
    state.events.note(Happening::Mounted { epoch, device });

    listen_to_keeper(line, &happened)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| system("start what answers clients", &error))?;
    LocalSet::new().block_on(&runtime, async {
        let (listeners, let_in_by) = unbounded_channel();
        // It is received below.
        let _ = listeners.send(UnixListener::from(listener));
        let _clients =
            let_in(let_in_by, Rc::clone(&state), (watching, refusals, writing), happened);
        tell(line, &ToKeeper::Ready { number });
        let desk = Desk { line, state: &state, stop: &stop, listeners, connections };
        desk.attend(events).await;
    });
    Ok(())
}

/// Where events come in.
struct Desk<'a> {
    line: &'a Channel,
    state: &'a State,
    stop: &'a Stop,
    listeners: UnboundedSender<UnixListener>,
    connections: Connections,
}

impl Desk<'_> {
    /// Does what there is to be done, until the keeper lets go.
    async fn attend(mut self, mut events: UnboundedReceiver<Event>) {
        let (mut quiet, mut hushed) = (false, false);
        while let Some(event) = events.recv().await {
            match event {
                Event::Told(ToWorker::Quiesce, _) => {
                    hushed = true;
                    self.stop.ask(Why::Asked);
                }
                Event::Told(message, descriptors) => self.told(message, descriptors),
                Event::LetGo => break,
                Event::ConnectionEnded(number, end) => self.connection_ended(number, end),
                Event::Quiet(end) => {
                    quiet = true;
                    match end {
                        Ok(why) if !hushed => tell(self.line, &ToKeeper::Stop(why)),
                        Ok(_) => {}
                        Err(fault) => tell(self.line, &ToKeeper::Failed(fault.report())),
                    }
                }
            }
            if quiet && hushed {
                tell(self.line, &ToKeeper::Quiet);
                hushed = false;
            }
        }
    }

    fn told(&mut self, message: ToWorker, descriptors: Vec<OwnedFd>) {
        let descriptor = descriptors.into_iter().next();
        match (message, descriptor) {
            (ToWorker::Serve { number, device }, Some(connection)) => {
                self.serve(number, device, connection);
            }
            (ToWorker::Listen, Some(listener)) => {
                // Where nobody is let in any more, the daemon is about to end.
                let _ = self.listeners.send(UnixListener::from(listener));
            }
            (ToWorker::Stands { asked, fault }, _) => self.state.standing().told(asked, fault),
            (ToWorker::Happened(change), _) => self.state.happened(change),
            (message, _) => tracing::warn!(?message, "out of turn"),
        }
    }

    fn serve(&mut self, number: u64, device: u64, connection: OwnedFd) {
        match self.connections.open(number, connection) {
            Ok((epoch, features)) => {
                tracing::info!(?features, device, "connected anew");
                self.state.serve(Served { epoch, device });
                tell(self.line, &ToKeeper::Ready { number });
            }
            Err(fault) => tell(self.line, &ToKeeper::Unfit { number, report: fault.report() }),
        }
    }

    fn connection_ended(&mut self, number: u64, end: io::Result<()>) {
        if let Err(error) = end {
            tracing::debug!(%error, number, "a connection to the kernel ended");
        }
        if let Some(epoch) = self.connections.ended(number) {
            self.state.ended(epoch);
        }
        tell(self.line, &ToKeeper::Ended { number });
    }
}

/// Serves clients on a task of its own.
fn let_in(
    listeners: UnboundedReceiver<UnixListener>,
    state: Rc<State>,
    (watching, refusals, writing): (Watching, Refusals, Writing),
    happened: UnboundedSender<Event>,
) -> JoinHandle<()> {
    spawn_local(async move {
        let end = control::serve(listeners, state, watching, refusals, writing).await;
        let _ = happened.send(Event::Quiet(end));
    })
}

fn filesystem(begin: &Begin, budget: Budget) -> Arc<Commons> {
    let options = holdfast_fs::tempfs::Options {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        many_users: begin.privileged,
        descriptors: budget.inodes,
    };
    Commons::new(options, Arc::new(System))
}

/// Tells whoever looks after the room of sessions that somebody writes.
fn writing(commons: &Arc<Commons>) -> Writing {
    let begins = Arc::new(Notify::new());
    let tells = Arc::clone(&begins);
    commons.tell_when_written(move || tells.notify_one());
    let commons = Arc::clone(commons);
    Writing::new(begins, move || commons.is_written())
}

fn namespace(
    commons: &Arc<Commons>,
    store: Arc<Store>,
    lasting: &Lasting,
    observer: Arc<dyn Observer>,
    (bounds, total): (Bounds, Option<u64>),
) -> Result<Arc<Namespace>, Fault> {
    let first_key = store.first_free_key().map_err(|error| match error {
        StoreError::Refused { step, errno } => {
            Fault::StoreUnusable { step: step.to_owned(), errno }
        }
        StoreError::NoLimits | StoreError::Unfit | StoreError::InodeTooLarge(_) => {
            Fault::StoreUnusable { step: error.to_string(), errno: Errno::NOTSUP }
        }
    })?;
    let ground = StoreGround::new(Arc::clone(commons), Arc::clone(&store))
        .map_err(|error| system("start what discards generations", &error))?;
    let surroundings = Surroundings {
        ground: Arc::new(ground),
        ledger: None,
        observer,
        lineage: Arc::new(control::Lines),
        clock: Arc::new(Monotonic),
        draw: Box::new(KernelDraw),
        bounds,
        total,
        first_key,
    };
    lasting.namespace(&store, surroundings)
}

fn listen_to_keeper(line: &Arc<Channel>, happened: &UnboundedSender<Event>) -> Result<(), Fault> {
    let (line, happened) = (Arc::clone(line), happened.clone());
    start("keeper", move || {
        loop {
            let event = match line.receive() {
                Ok(Some((message, descriptors))) => Event::Told(message, descriptors),
                Ok(None) => Event::LetGo,
                Err(errno) => {
                    tracing::error!(%errno, "the keeper says what makes no sense");
                    Event::LetGo
                }
            };
            let last = matches!(event, Event::LetGo);
            if happened.send(event).is_err() || last {
                break;
            }
        }
    })
}

/// The keeper's end is noticed where it is listened to.
fn tell(line: &Channel, message: &ToKeeper) {
    if let Err(errno) = line.send(message, &[]) {
        tracing::debug!(%errno, "the keeper can't be told anything");
    }
}
