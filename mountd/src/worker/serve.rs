//! Builds what serves, and waits for what happens to it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;

use holdfast_fs::clock::{Monotonic, System};
use holdfast_fs::fuse::Connection;
use holdfast_fs::ground::StoreGround;
use holdfast_fs::namespace::{KernelDraw, Namespace, Observer, Surroundings};
use holdfast_fs::registry::Bounds;
use holdfast_fs::store::{Store, StoreError};
use holdfast_fs::tempfs::TempFs;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::budget::Budget;
use super::promises;
use super::restore::Lasting;
use crate::channel::{Begin, Channel, ToKeeper, ToWorker, Why};
use crate::control::{self, Facts, State, Stop, Watching};
use crate::fault::Fault;

/// One thread is fastest for one client, and a second one helps where there are more.
const THREADS: usize = 2;

/// What the keeper hands over.
pub(super) struct Given {
    pub(super) begin: Begin,
    /// Whether a user namespace of its own could be had, where one is needed.
    pub(super) reads_all: bool,
    /// The device number of the mount.
    pub(super) device: u64,
    /// Where clients are let in.
    pub(super) listener: OwnedFd,
    /// The directory of a `dir:` store.
    pub(super) directory: Option<OwnedFd>,
    /// The kernel's end.
    pub(super) connection: OwnedFd,
}

/// What the worker waits for.
enum Event {
    /// The keeper says something.
    Told(ToWorker),
    /// The keeper has let go.
    LetGo,
    /// The connection to the kernel ended.
    ConnectionEnded(io::Result<()>),
    /// Clients are served no longer.
    Quiet(Result<Why, Fault>),
}

/// Serves until the keeper lets go.
pub(super) fn serve(line: &Arc<Channel>, given: Given) -> Result<(), Fault> {
    let Given { begin, reads_all, device, listener, directory, connection } = given;
    let budget = Budget::of_this_process();
    let store = Arc::new(match directory {
        Some(directory) => Store::beneath(directory),
        None => Store::tmpfs(),
    });
    let fs = filesystem(&begin, budget)?;
    let (observer, watching) = control::watching();
    let bounds = Bounds {
        generations: budget.generations,
        generations_per_uid: budget.generations_per_uid(begin.privileged),
        ..Bounds::default()
    };
    let lasting = Lasting::of(&store)?;
    let namespace = namespace(&fs, store, &lasting, observer, bounds)?;
    let epoch = lasting.begin_epoch()?;
    let connection = Connection::open(connection, fs, THREADS)
        .map_err(|error| system("shake hands with the kernel", &error))?;
    let features = connection.features();
    tracing::info!(?features, device, "connected");
    let facts = Facts {
        mountpoint: begin.mountpoint,
        socket: begin.socket,
        store: begin.store.to_string(),
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        many_users: begin.privileged,
        device,
        epoch,
        idle_exit: begin.idle_exit,
        bounds,
        lost_promises: promises::lost(features, begin.privileged, reads_all, &begin.store),
    };
    let stop = Stop::new();
    let state = State::new(namespace, facts, Arc::new(Monotonic), stop.clone())?;

    let (happened, events) = unbounded_channel();
    listen_to_keeper(line, &happened)?;
    let ended = happened.clone();
    start("fuse", move || {
        let end = connection.run();
        let _ = ended.send(Event::ConnectionEnded(end));
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| system("start what answers clients", &error))?;
    LocalSet::new().block_on(&runtime, async {
        let _clients = let_in(UnixListener::from(listener), state, watching, happened);
        tell(line, &ToKeeper::Ready);
        attend(line, &stop, events).await;
    });
    Ok(())
}

/// Does what there is to be done, event by event.
async fn attend(line: &Channel, stop: &Stop, mut events: UnboundedReceiver<Event>) {
    let (mut quiet, mut hushed) = (false, false);
    while let Some(event) = events.recv().await {
        match event {
            Event::Told(ToWorker::Quiesce) => {
                hushed = true;
                stop.ask(Why::Asked);
            }
            Event::Told(message @ (ToWorker::Begin(_) | ToWorker::Serve { .. })) => {
                tracing::warn!(?message, "out of turn");
            }
            Event::LetGo => break,
            Event::ConnectionEnded(end) => {
                if let Err(error) = end {
                    tracing::error!(%error, "the connection to the kernel failed");
                }
                tell(line, &ToKeeper::Stop(Why::ConnectionEnded));
            }
            Event::Quiet(end) => {
                quiet = true;
                match end {
                    Ok(why) if !hushed => tell(line, &ToKeeper::Stop(why)),
                    Ok(_) => {}
                    Err(fault) => tell(line, &ToKeeper::Failed(fault.report())),
                }
            }
        }
        if quiet && hushed {
            tell(line, &ToKeeper::Quiet);
            hushed = false;
        }
    }
}

/// Serves clients on a task of its own.
fn let_in(
    listener: UnixListener,
    state: State,
    watching: Watching,
    happened: UnboundedSender<Event>,
) -> JoinHandle<()> {
    spawn_local(async move {
        let end = control::serve(listener, state, watching).await;
        let _ = happened.send(Event::Quiet(end));
    })
}

fn filesystem(begin: &Begin, budget: Budget) -> Result<Arc<TempFs>, Fault> {
    let refused = |step| move |errno| Fault::System { step, errno };
    let options = holdfast_fs::tempfs::Options {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        many_users: begin.privileged,
        descriptors: budget.inodes,
    };
    let records = TempFs::records().map_err(refused("make the file of inode records"))?;
    let fs = TempFs::new(records, options, Arc::new(System)).map_err(|errno| match errno {
        Errno::FBIG => Fault::System {
            step: "make the file of inode records, larger than the hard limit of file sizes",
            errno,
        },
        errno => refused("map the inode records")(errno),
    })?;
    Ok(Arc::new(fs))
}

fn namespace(
    fs: &Arc<TempFs>,
    store: Arc<Store>,
    lasting: &Lasting,
    observer: Arc<dyn Observer>,
    bounds: Bounds,
) -> Result<Arc<Namespace>, Fault> {
    let first_key = store.first_free_key().map_err(|error| match error {
        StoreError::Refused { step, errno } => {
            Fault::StoreUnusable { step: step.to_owned(), errno }
        }
        StoreError::NoLimits | StoreError::Unfit | StoreError::InodeTooLarge(_) => {
            Fault::StoreUnusable { step: error.to_string(), errno: Errno::NOTSUP }
        }
    })?;
    let ground = StoreGround::new(Arc::clone(fs), Arc::clone(&store))
        .map_err(|error| system("start what discards generations", &error))?;
    let surroundings = Surroundings {
        ground: Arc::new(ground),
        ledger: None,
        observer,
        lineage: Arc::new(control::Lines),
        clock: Arc::new(Monotonic),
        draw: Box::new(KernelDraw),
        bounds,
        first_key,
    };
    lasting.namespace(&store, surroundings)
}

fn listen_to_keeper(line: &Arc<Channel>, happened: &UnboundedSender<Event>) -> Result<(), Fault> {
    let (line, happened) = (Arc::clone(line), happened.clone());
    start("keeper", move || {
        loop {
            let event = match line.receive() {
                Ok(Some((message, _))) => Event::Told(message),
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

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|error| system("start a thread", &error))
}

fn system(step: &'static str, error: &io::Error) -> Fault {
    Fault::System { step, errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
}
