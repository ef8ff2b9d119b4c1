//! Builds what serves, and waits for what happens to it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use holdfast_fs::clock::System;
use holdfast_fs::fuse::Connection;
use holdfast_fs::store::Store;
use holdfast_fs::tempfs::{Options, TempFs};
use rustix::io::Errno;
use rustix::process::{Resource, getegid, geteuid, getrlimit};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use crate::channel::{Begin, Channel, ToKeeper, ToWorker, Why};
use crate::fault::Fault;

/// One thread is fastest for one client, and a second one helps where there are more.
const THREADS: usize = 2;
/// Descriptors that inodes may hold; more would hold memory and gain nothing.
const MOST_DESCRIPTORS: u64 = 32_768;

/// What the keeper hands over.
pub(super) struct Given {
    pub(super) begin: Begin,
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
}

/// Serves until the keeper lets go.
pub(super) fn serve(line: &Arc<Channel>, given: Given) -> Result<(), Fault> {
    let Given { begin, device, listener, directory, connection } = given;
    let fs = filesystem(&begin)?;
    let store = Arc::new(match directory {
        Some(directory) => Store::beneath(directory),
        None => Store::tmpfs(),
    });
    let connection = Connection::open(connection, Arc::clone(&fs), THREADS)
        .map_err(|error| system("shake hands with the kernel", &error))?;
    tracing::info!(features = ?connection.features(), device, "connected");
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
    LocalSet::new().block_on(&runtime, attend(line, events))
}

/// Does what there is to be done, event by event.
async fn attend(line: &Channel, mut events: UnboundedReceiver<Event>) -> Result<(), Fault> {
    tell(line, &ToKeeper::Ready);
    while let Some(event) = events.recv().await {
        match event {
            Event::Told(ToWorker::Quiesce) => tell(line, &ToKeeper::Quiet),
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
        }
    }
    Ok(())
}

fn filesystem(begin: &Begin) -> Result<Arc<TempFs>, Fault> {
    let refused = |step| move |errno| Fault::System { step, errno };
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MOST_DESCRIPTORS);
    let options = Options {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        many_users: begin.privileged,
        // The other half is for open files, stores and clients.
        descriptors: usize::try_from(limit.min(MOST_DESCRIPTORS) / 2).unwrap_or(usize::MAX),
    };
    let records = TempFs::records().map_err(refused("make the file of inode records"))?;
    let fs = TempFs::new(records, options, Arc::new(System))
        .map_err(refused("map the inode records"))?;
    Ok(Arc::new(fs))
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
