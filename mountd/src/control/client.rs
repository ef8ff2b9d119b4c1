//! A client of the control socket: finds the daemon, and calls its methods.
//!
//! Every call has a deadline. It must never start a daemon, and never take one of another user's
//! for the caller's own.
//!
//! # Use
//!
//! A harness opens a [`Session`] for as long as it lives, and takes a [`Lease`] for each command:
//!
//! ```no_run
//! use std::process::Command;
//!
//! use holdfast::control::client::{Client, Session};
//! use holdfast::control::wire::{LeaseKind, OpenSession};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let named = OpenSession { name: Some("build".to_owned()), ..OpenSession::default() };
//! let session = Session::open(Client::find(None)?, &named)?;
//! session.check()?; // what would keep the next lease from being had
//! let lease = session.lease(LeaseKind::Private)?;
//! let mut child = lease.spawn(Command::new("make").arg("check"))?; // TMPDIR is the lease
//! let status = child.wait()?;
//! let receipt = lease.release()?;
//! println!("{status}, {:?} bytes were left", receipt.bytes);
//! session.rotate()?; // the next lease has an empty directory
//! session.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Both give back what they are when they are dropped. Whatever fails, fails with a
//! [`FaultReport`]: a stable code to compare, words for people, and a remedy.
//!
//! Everything else is one [`Client::call`] with a request of [`wire`](super::wire):
//!
//! ```no_run
//! use holdfast::control::client::Client;
//! use holdfast::control::wire::{ListSessions, Watch};
//!
//! # fn main() -> Result<(), holdfast::fault::FaultReport> {
//! let mut client = Client::find(None)?;
//! for session in client.call(&ListSessions::default())?.sessions {
//!     println!("{} has {} leases", session.id, session.leases);
//! }
//! for event in client.call(&Watch { after: Some(0) })?.events {
//!     println!("{}: {:?}", event.number, event.kind);
//! }
//! # Ok(())
//! # }
//! ```

mod handle;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use tokio::runtime::{Builder, Runtime};
use zlink::{Call, Connection, Reply};

pub use self::handle::{Lease, Session, SpawnError};
use super::wire::{ErrorReply, Method, Outgoing, Watch, Watched};
use crate::config::{ClientSocket, Host};
use crate::fault::{Fault, FaultReport};
use crate::place::{Place, Problem};
use crate::sys::{peer_credentials, readable};

/// How long an answer is waited for.
pub const DEADLINE: Duration = Duration::from_secs(10);

type Stream = zlink::tokio::unix::Stream;

/// A connection to a daemon. A lease may hang on it; it then ends when this is dropped.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    /// Gone once an answer came too late, or didn't come whole.
    connection: Option<Connection<Stream>>,
    socket: PathBuf,
    /// The process that listens.
    daemon: Option<OwnedFd>,
    deadline: Option<Duration>,
}

/// Why nothing more is to be heard of what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The daemon is to stop.
    Daemon,
    /// Whoever it is told to has left.
    Reader,
}

/// Where a daemon was sought, and that none answers there.
#[derive(Debug)]
pub(crate) struct NotFound {
    tried: Vec<(PathBuf, String)>,
}

impl From<NotFound> for Fault {
    fn from(NotFound { tried }: NotFound) -> Self {
        Self::DaemonUnreachable { tried }
    }
}

impl Client {
    /// Finds the daemon: the socket that is named here, else by `HOLDFAST_SOCKET`, else the
    /// system's if it answers, else the user's own.
    ///
    /// # Errors
    /// Where there is none, or it doesn't answer.
    pub fn find(socket: Option<&Path>) -> Result<Self, FaultReport> {
        let place = ClientSocket::find(Host::ask()?, socket)?;
        Ok(Self::search(&place)?.map_err(Fault::from)?)
    }

    /// Connects to the daemon at a socket, whoever's it is.
    ///
    /// # Errors
    /// Where there is none, or it doesn't answer.
    pub fn connect(socket: &Path) -> Result<Self, FaultReport> {
        let place = ClientSocket::Named(socket.to_owned());
        Ok(Self::search(&place)?.map_err(Fault::from)?)
    }

    /// The first daemon that answers.
    pub(crate) fn search(place: &ClientSocket) -> Result<Result<Self, NotFound>, Fault> {
        let (places, trusted) = match place {
            ClientSocket::Named(socket) => (std::slice::from_ref(socket), true),
            ClientSocket::Search(sockets) => (sockets.as_slice(), false),
        };
        let mut tried = Vec::new();
        for socket in places {
            match dial(socket) {
                Ok(stream) => match stranger(&stream, trusted) {
                    None => return Self::over(stream, socket).map(Ok),
                    Some(uid) => tried.push((socket.clone(), format!("a daemon of uid {uid}"))),
                },
                // One that lets nobody in any more is there all the same.
                Err(Errno::AGAIN) => {
                    return Err(Fault::DaemonUnresponsive {
                        socket: socket.clone(),
                        waited: DEADLINE,
                    });
                }
                Err(errno) => tried.push((socket.clone(), errno.to_string())),
            }
        }
        Ok(Err(NotFound { tried }))
    }

    fn over(stream: OwnedFd, socket: &Path) -> Result<Self, Fault> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
        let entered = runtime.enter();
        let daemon = process_of(&stream);
        let stream = Stream::try_from(UnixStream::from(stream))
            .map_err(|error| failed(&io::Error::other(error)))?;
        drop(entered);
        Ok(Self {
            runtime,
            connection: Some(Connection::new(stream)),
            socket: socket.to_owned(),
            daemon,
            deadline: Some(DEADLINE),
        })
    }

    /// Waits this long for each answer from here on; without an end where nothing is said.
    pub const fn set_deadline(&mut self, deadline: Option<Duration>) {
        self.deadline = deadline;
    }

    /// The socket that this is connected to.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits until the daemon has ended.
    ///
    /// # Errors
    /// Where it hasn't in time.
    pub fn wait_for_end(self, patience: Duration) -> Result<(), FaultReport> {
        // Where its process can't be seen from here, the end of the connection has to do.
        let Some(daemon) = self.daemon else { return Ok(()) };
        drop(self.connection);
        let waits = async { readable(daemon)?.readable().await.map(drop) };
        match self.runtime.block_on(async { tokio::time::timeout(patience, waits).await }) {
            Ok(waited) => Ok(waited.map_err(|error| failed(&error))?),
            Err(_) => {
                Err(Fault::DaemonUnresponsive { socket: self.socket, waited: patience }.into())
            }
        }
    }

    /// Calls a method.
    ///
    /// # Errors
    /// What the daemon refuses with, or that it doesn't answer.
    pub fn call<M: Method>(&mut self, request: &M) -> Result<M::Reply, FaultReport> {
        let mut connection = self.take()?;
        let call = Call::new(Outgoing::new(request));
        let answering = within(self.deadline, exchange(&mut connection, call));
        let answered = self.runtime.block_on(answering);
        let (answer, whole) = self.judge(answered);
        if whole {
            self.connection = Some(connection);
        }
        answer?.into_parameters().ok_or_else(empty)
    }

    /// Tells what happens, page by page, until the daemon is to stop, `tell` says that nobody reads
    /// it any more, or `left` comes to its end. Only the first page has a deadline. The connection
    /// is of no use afterwards.
    ///
    /// # Errors
    /// What the daemon refuses with, or that it has gone without a word.
    pub(crate) fn watch(
        &mut self,
        request: &Watch,
        left: impl Future<Output = ()>,
        mut tell: impl FnMut(Watched) -> bool,
    ) -> Result<End, FaultReport> {
        let mut connection = self.take()?;
        let call = Call::new(Outgoing::new(request)).set_more(true);
        self.runtime.block_on(async {
            let mut left = pin!(left);
            let mut answered = within(self.deadline, exchange(&mut connection, call)).await;
            loop {
                let reply = self.judge::<Watched>(answered).0?;
                let goes_on = reply.continues() == Some(true);
                if !tell(reply.into_parameters().ok_or_else(empty)?) {
                    return Ok(End::Reader);
                }
                if !goes_on {
                    return Ok(End::Daemon);
                }
                answered = tokio::select! {
                    () = &mut left => return Ok(End::Reader),
                    next = connection.receive_reply() => Some(next.map(|(answered, _)| answered)),
                };
            }
        })
    }

    fn take(&mut self) -> Result<Connection<Stream>, FaultReport> {
        self.connection.take().ok_or_else(|| self.gone("the connection has ended".to_owned()))
    }

    fn gone(&self, answer: String) -> FaultReport {
        Fault::DaemonUnreachable { tried: vec![(self.socket.clone(), answer)] }.into()
    }

    /// What an answer means, and whether it came whole, so that another request can follow.
    fn judge<R>(&self, answered: Option<Answered<R>>) -> (Result<Reply<R>, FaultReport>, bool) {
        match answered {
            Some(Ok(Ok(reply))) => (Ok(reply), true),
            Some(Ok(Err(error))) => (Err(error.report()), true),
            Some(Err(zlink::Error::VarlinkService(error))) => {
                (Err(not_understood(&error.to_string())), true)
            }
            Some(Err(zlink::Error::Json(error))) => {
                (Err(not_understood(&error.to_string())), false)
            }
            Some(Err(error)) => (Err(self.gone(error.to_string())), false),
            None => {
                let waited = self.deadline.unwrap_or_default();
                let socket = self.socket.clone();
                (Err(Fault::DaemonUnresponsive { socket, waited }.into()), false)
            }
        }
    }
}

type Answered<R> = Result<Result<Reply<R>, ErrorReply>, zlink::Error>;

/// What is done within a time; without an end where none is said.
async fn within<T>(deadline: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout(deadline, work).await.ok(),
        None => Some(work.await),
    }
}

async fn exchange<M: Method>(
    connection: &mut Connection<Stream>,
    call: Call<Outgoing<'_, M>>,
) -> Answered<M::Reply> {
    let sent = connection.send_call(&call, Vec::new()).await;
    // A daemon that turns a client away says why, and doesn't wait for a request.
    match (connection.receive_reply().await, sent) {
        (Err(_), Err(error)) => Err(error),
        (answered, Ok(()) | Err(_)) => answered.map(|(answered, _)| answered),
    }
}

/// Connects, and waits for a place in the queue for as long as for an answer.
fn dial(path: &Path) -> rustix::io::Result<OwnedFd> {
    // A path that is too long for an address is reached from its directory, as it was bound.
    let place;
    let address = match SocketAddrUnix::new(path) {
        Err(Errno::NAMETOOLONG) => {
            place = Place::of(path).map_err(|problem| {
                if let Problem::ParentMissing { errno, .. } = problem {
                    errno
                } else {
                    Errno::NOENT
                }
            })?;
            SocketAddrUnix::new(place.address())?
        }
        address => address?,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(DEADLINE))?;
    rustix::io::retry_on_intr(|| connect(&socket, &address))?;
    Ok(socket)
}

/// Whose daemon it is, where that is neither the caller's user nor root and nobody named it.
fn stranger(socket: &OwnedFd, trusted: bool) -> Option<u32> {
    if trusted {
        return None;
    }
    let uid = peer_credentials(socket.as_fd()).map_or(u32::MAX, |peer| peer.uid);
    (uid != geteuid().as_raw() && uid != 0).then_some(uid)
}

/// The process at the other end, held so that its pid can't become another one's.
fn process_of(socket: &OwnedFd) -> Option<OwnedFd> {
    let pid = i32::try_from(peer_credentials(socket.as_fd()).ok()?.pid).ok()?;
    let daemon = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::NONBLOCK);
    daemon.inspect_err(|error| tracing::debug!(%error, "the daemon's process can't be seen")).ok()
}

fn failed(error: &io::Error) -> Fault {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    Fault::System { step: "talk to the daemon", errno }
}

fn empty() -> FaultReport {
    not_understood("an answer with nothing in it")
}

fn not_understood(what: &str) -> FaultReport {
    let what = format!("this daemon is of another version than this client: {what}");
    Fault::NotSupported { what }.into()
}

#[cfg(test)]
mod tests;
