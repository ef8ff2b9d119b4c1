//! Lets clients in: each on a task of its own, so that a slow, silent or hostile one holds up
//! nobody else.
//!
//! It must never know what is asked.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener as StdListener;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt as _;
use holdfast_fs::registry::{ConnectionId, Peer};
use rustix::io::Errno;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use zlink::{ReadyListener, Server};

use super::dispatch::Dispatch;
use super::framing::{Framed, message};
use super::processes::Watching;
use super::refusals::Refusals;
use super::room::Writing;
use super::state::State;
use super::wire;
use crate::channel::Why;
use crate::fault::Fault;

/// How long to wait where no descriptor is left for a client; no event tells when one is.
const SHORTAGE: Duration = Duration::from_millis(100);
/// How long answers that are on their way may take when the daemon stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves clients until the daemon is to stop, and says why it is. It must run in a `LocalSet`.
///
/// # Errors
/// Where there is nothing to wait with.
pub(crate) async fn serve(
    mut listeners: UnboundedReceiver<StdListener>,
    state: Rc<State>,
    watching: Watching,
    refusals: Refusals,
    writing: Writing,
) -> Result<Why, Fault> {
    let failed = |step| {
        move |error: io::Error| Fault::System {
            step,
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        }
    };
    let mut clients = JoinSet::new();
    let why = tokio::select! {
        biased;
        why = state.stop.asked() => why,
        () = idle(&state) => Why::Idle,
        watched = watching.run(Rc::clone(&state)) => {
            watched.map_err(failed("wait for processes"))?;
            // Without a namespace there is nothing to serve.
            Why::Asked
        }
        never = refusals.run(Rc::clone(&state)) => match never {},
        never = writing.run(Rc::clone(&state)) => match never {},
        accepted = accept(&mut listeners, &state, &mut clients) => {
            accepted.map_err(failed("listen"))?;
            // Nobody will come any more.
            Why::Asked
        }
    };
    state.stop.ask(why);
    let rest = async { while clients.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_WORDS, rest).await.is_err() {
        tracing::debug!("clients that don't take their answers are left");
    }
    Ok(why)
}

async fn idle(state: &State) {
    match state.facts.idle_exit {
        Some(wait) => state.idle_for(wait).await,
        None => std::future::pending().await,
    }
}

/// Accepts, for as long as it is polled: from the listener that came last, and before that whoever
/// waits at the one before, which can't be called any more.
async fn accept(
    listeners: &mut UnboundedReceiver<StdListener>,
    state: &Rc<State>,
    clients: &mut JoinSet<()>,
) -> io::Result<()> {
    let mut last = 0;
    let mut attend = |clients: &mut JoinSet<()>, stream| {
        last += 1;
        clients.spawn_local(attend(Rc::clone(state), stream, ConnectionId(last)));
    };
    let Some(mut listener) = next(listeners).await? else { return Ok(()) };
    loop {
        tokio::select! {
            new = next(listeners) => {
                let Some(new) = new? else { return Ok(()) };
                while let Some(Ok((stream, _))) = listener.accept().now_or_never() {
                    attend(clients, stream);
                }
                listener = new;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => attend(clients, stream),
                Err(error) => {
                    // Whose doing it is can't be told.
                    if state.is_news(state.facts.uid, "accept") {
                        tracing::warn!(%error, "a client can't be let in");
                    }
                    tokio::time::sleep(SHORTAGE).await;
                }
            },
            // So that what has ended isn't kept.
            Some(ended) = clients.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection failed");
                }
            }
        }
    }
}

async fn next(listeners: &mut UnboundedReceiver<StdListener>) -> io::Result<Option<UnixListener>> {
    let Some(listener) = listeners.recv().await else { return Ok(None) };
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener).map(Some)
}

/// Serves one client until it leaves.
async fn attend(state: Rc<State>, stream: UnixStream, connection: ConnectionId) {
    let Some(peer) = super::peer::of(stream.as_fd()) else {
        tracing::debug!(?connection, "a client that has left, or can't be seen");
        let what = "clients that the daemon can't see, as from another pid namespace".to_owned();
        turn_away(&stream, &Fault::NotSupported { what });
        return;
    };
    let admitted = state.recognise(peer).and_then(|peer| state.admit(peer.uid).map(|()| peer));
    let peer = match admitted {
        Ok(peer) => peer,
        Err(fault) => {
            let (uid, pid) = (peer.uid, peer.process.pid);
            if state.is_news(uid, fault.code()) {
                tracing::warn!(uid, pid, cause = fault.cause(), "turned away");
            }
            turn_away(&stream, &fault);
            return;
        }
    };
    let seat = Seat { state, peer, connection };
    let stream = Rc::new(stream);
    let dispatch = Dispatch::new(Rc::clone(&seat.state), peer, connection, Rc::clone(&stream));
    let framed = Framed::new(stream, seat.state.stop.clone());
    if let Err(error) = Server::new(ReadyListener::new(framed), dispatch).run().await {
        tracing::debug!(?connection, %error, "a connection broke off");
    }
}

/// What a client that was let in takes up; gives it back however its task ends.
struct Seat {
    state: Rc<State>,
    peer: Peer,
    connection: ConnectionId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.state.namespace.connection_gone(self.connection);
        self.state.dismiss(self.peer.uid);
    }
}

/// Says why as far as that goes without waiting.
fn turn_away(stream: &UnixStream, fault: &Fault) {
    let words = message(&wire::Error::from(fault));
    if let Err(error) = stream.try_write(&words) {
        tracing::debug!(%error, "a client leaves without being told why");
    }
}

#[cfg(test)]
mod tests;
