//! From a request to what is done: who asks, what is meant, what is answered.
//!
//! It must never decide who gets what: the namespace does.

mod introspection;
mod qualify;
mod sweep;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use holdfast_fs::namespace::NamespaceError;
use holdfast_fs::registry::{Binding, ConnectionId, Holder, Peer, PolicyRequest, SessionView};
use serde::Serialize;
use serde_json::Value;
use tokio::io::Interest;
use tokio::net::UnixStream;
use zlink::connection::Socket;
use zlink::service::{HandleResult, Infallible, MethodReply};
use zlink::varlink_service as varlink;
use zlink::{Call, Connection, Service};

use self::introspection::{introspect, not_found};
use super::page::{ASKED, page};
use super::peer::{named, named_or_ended};
use super::refuse::{faulted, namespace_error, namespace_fault};
use super::show::{own_guard, own_kind, own_mode};
use super::state::{Facts, State};
use super::watcher::{Watcher, watcher};
use super::wire::{self, Answer, Error, Incoming, Request, Unfit};
use crate::channel::Why;
use crate::fault::{Fault, FaultReport};

/// No file could be larger.
const MOST_BYTES: u64 = i64::MAX.unsigned_abs();
/// The kernel counts 1 KiB for each.
const MOST_INODES: u64 = 1 << 53;

/// What is answered to one client.
pub(super) struct Dispatch {
    state: Rc<State>,
    peer: Peer,
    connection: ConnectionId,
    stream: Rc<UnixStream>,
}

/// An answer, of this interface or of the one that every Varlink service has.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Reply {
    Own(Box<Answer>),
    Info(varlink::Info<'static>),
    Description { description: String },
}

/// A refusal, of this interface or of the one that every Varlink service has.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Refusal {
    Own(Error),
    Varlink(varlink::Error<'static>),
}

/// Why a request isn't carried out.
#[derive(Debug)]
enum Declined {
    Namespace(NamespaceError),
    Fault(Fault),
    /// The namespace can't be served at present.
    Standing(FaultReport),
}

impl From<NamespaceError> for Declined {
    fn from(error: NamespaceError) -> Self {
        Self::Namespace(error)
    }
}

impl From<Fault> for Declined {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Own(Error::from(&fault))
    }
}

impl<Sock: Socket> Service<Sock> for Dispatch {
    type MethodCall<'de> = Incoming;
    type ReplyParams<'ser> = Reply;
    type ReplyStreamParams = Reply;
    type ReplyStreamError = Infallible;
    type ReplyStream = Watcher;
    type ReplyError<'ser> = Refusal;
    type Upgrade = ();

    async fn handle<'ser>(
        &'ser mut self,
        call: &'ser Call<Self::MethodCall<'_>>,
        _connection: &mut Connection<Sock>,
        _descriptors: Vec<OwnedFd>,
    ) -> HandleResult<Self::ReplyParams<'ser>, Self::ReplyStream, Self::ReplyError<'ser>> {
        let answered = if call.upgrade() {
            // An answer would confirm it.
            let parameter = Cow::Borrowed("upgrade");
            Err(Refusal::Varlink(varlink::Error::InvalidParameter { parameter }))
        } else {
            self.answer(call.method()).await
        };
        self.state.note_change();
        let reply = match answered {
            Ok(reply) if call.more() && !call.oneway() => self.go_on(reply),
            Ok(reply) => MethodReply::Single(Some(reply)),
            Err(refusal) => {
                let (uid, pid) = (self.peer.uid, self.peer.process.pid);
                tracing::debug!(uid, pid, method = call.method().method, ?refusal, "refused");
                MethodReply::Error(refusal)
            }
        };
        (reply, Vec::new())
    }
}

impl Dispatch {
    /// Answers to a client on a connection.
    pub(super) const fn new(
        state: Rc<State>,
        peer: Peer,
        connection: ConnectionId,
        stream: Rc<UnixStream>,
    ) -> Self {
        Self { state, peer, connection, stream }
    }

    /// Goes on after the first reply, where the method does; for others there is no more.
    fn go_on<E>(&self, first: Reply) -> MethodReply<Reply, Watcher, E> {
        if let Reply::Own(answer) = &first
            && let Answer::Watch(page) = answer.as_ref()
        {
            let (state, socket) = (Rc::clone(&self.state), Rc::clone(&self.stream));
            let viewer = self.state.viewer(self.peer);
            return MethodReply::Multi(watcher(state, viewer, socket, page.clone()));
        }
        MethodReply::Single(Some(first))
    }

    async fn answer(&self, incoming: &Incoming) -> Result<Reply, Refusal> {
        let parameters = match &incoming.parameters {
            None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
            Some(parameters @ Value::Object(_)) => parameters.clone(),
            // Positions are no names, though serde would take them for such.
            Some(_) => {
                let reason = "`parameters` is not an object".to_owned();
                return Err(Fault::RequestInvalid { reason }.into());
            }
        };
        if let Some(method) = incoming.method.strip_prefix("org.varlink.service.") {
            return introspect(method, &incoming.method, &parameters);
        }
        match Request::parse(&incoming.method, parameters) {
            Ok(request) => {
                tracing::debug!(
                    uid = self.peer.uid,
                    pid = self.peer.process.pid,
                    method = request.method(),
                    "asked"
                );
                let answer = self.carry_out(request).await.map_err(|why| self.refusal(&why))?;
                Ok(Reply::Own(Box::new(answer)))
            }
            Err(Unfit::Method) => Err(not_found(&incoming.method)),
            Err(Unfit::Parameters(reason)) => Err(Fault::RequestInvalid { reason }.into()),
        }
    }

    /// The refusal that a client gets. What an operator should know is told once in a while.
    fn refusal(&self, declined: &Declined) -> Refusal {
        let error = match declined {
            Declined::Fault(fault) => return Refusal::Own(Error::from(fault)),
            // The keeper has told the operator.
            Declined::Standing(report) => return Refusal::Own(faulted(report)),
            Declined::Namespace(error) => error,
        };
        match error {
            NamespaceError::Registry(_) => {}
            NamespaceError::Ground(_)
            | NamespaceError::SessionFull { .. }
            | NamespaceError::TotalReached { .. }
            | NamespaceError::SessionOutOfInodes { .. } => {
                let (uid, fault) = (self.peer.uid, namespace_fault(error));
                if self.state.is_news(uid, fault.code()) {
                    tracing::warn!(uid, %error, cause = fault.cause(), "refused");
                }
            }
        }
        Refusal::Own(namespace_error(error))
    }

    /// Nothing begins any more once the daemon is to stop.
    fn refuse_while_stopping(&self) -> Result<(), Fault> {
        if self.state.stop.is_asked() { Err(Fault::Stopping) } else { Ok(()) }
    }

    /// No lease is given out that could not be reached.
    async fn refuse_while_faulted(&self) -> Result<(), Declined> {
        self.state.standing().check().await.map_err(Declined::Standing)
    }

    async fn carry_out(&self, request: Request) -> Result<Answer, Declined> {
        let (namespace, peer) = (&self.state.namespace, &self.peer);
        let session = |view| wire::ShownSession { session: self.state.show().session(&view) };
        let lease = |view| {
            let lease = self.state.show().lease(&view);
            wire::ShownLease { lease, qualification: None }
        };
        Ok(match request {
            Request::Describe(_) => Answer::Describe(self.state.describe()),
            Request::OpenSession(asked) => Answer::OpenSession(self.open_session(asked)?),
            Request::RetainSession(asked) => {
                self.refuse_while_stopping()?;
                namespace.show_session(peer, &asked.session)?;
                let holder = self.holder(asked.owner_pid, asked.linger_ms)?;
                let token = namespace.retain_session(peer, &asked.session, holder)?;
                Answer::RetainSession(wire::RetainedSession { token: token.to_string() })
            }
            Request::ReleaseSession(asked) => {
                namespace.release_session(peer, &asked.session, &asked.token)?;
                Answer::ReleaseSession(wire::Nothing {})
            }
            Request::RotateSession(asked) => {
                Answer::RotateSession(session(namespace.rotate_session(peer, &asked.session)?))
            }
            Request::ResizeSession(wire::ResizeSession { session: name, size, inodes }) => {
                sensible(size, inodes)?;
                Answer::ResizeSession(session(namespace.resize_session(peer, &name, size, inodes)?))
            }
            Request::CloseSession(asked) => {
                let force = asked.force.unwrap_or(false);
                namespace.close_session(peer, &asked.session, force)?;
                Answer::CloseSession(wire::Nothing {})
            }
            Request::ListSessions(asked) => {
                let after = asked.after.as_deref();
                let (shown, more) = page(namespace.sessions_behind(peer, after, ASKED));
                let show = self.state.show();
                let sessions = shown.iter().map(|view| show.session(view)).collect();
                Answer::ListSessions(wire::ShownSessions { sessions, more })
            }
            Request::ShowSession(asked) => {
                Answer::ShowSession(session(namespace.show_session(peer, &asked.session)?))
            }
            Request::Check(asked) => {
                self.refuse_while_stopping()?;
                self.refuse_while_faulted().await?;
                Answer::Check(session(namespace.check(peer, &asked.session)?))
            }
            Request::AcquireLease(asked) => {
                self.refuse_while_stopping()?;
                self.refuse_while_faulted().await?;
                Answer::AcquireLease(self.acquire_lease(&asked)?)
            }
            Request::BindLease(asked) => {
                namespace.check_lease(peer, &asked.lease)?;
                let process = match asked.pid {
                    // A command may be done before its harness gets to say whose the lease is; the
                    // lease is then over at once.
                    Some(pid) => named_or_ended(peer, pid)?,
                    None => peer.process,
                };
                Answer::BindLease(lease(namespace.bind_lease(peer, &asked.lease, process)?))
            }
            Request::CheckLease(asked) => Answer::CheckLease(self.check_lease(&asked.lease)?),
            Request::ReleaseLease(asked) => Answer::ReleaseLease(self.release_lease(&asked.lease)?),
            Request::ListLeases(asked) => {
                let after = asked.after.as_deref();
                let (shown, more) = page(namespace.leases_behind(peer, after, ASKED));
                let show = self.state.show();
                let leases = shown.iter().map(|view| show.lease(view)).collect();
                Answer::ListLeases(wire::ShownLeases { leases, more })
            }
            Request::Qualify(asked) => Answer::Qualify(self.qualify(asked)?),
            Request::Sweep(asked) => Answer::Sweep(self.sweep(&asked).await?),
            Request::Status(_) => Answer::Status(self.state.status(peer)),
            Request::Watch(asked) => {
                let viewer = self.state.viewer(*peer);
                Answer::Watch(self.state.events.behind(asked.after, &viewer))
            }
            Request::Down(asked) => {
                self.down(asked.mode.unwrap_or(wire::DownMode::Refuse)).await?;
                Answer::Down(wire::Nothing {})
            }
        })
    }

    fn open_session(&self, asked: wire::OpenSession) -> Result<wire::OpenedSession, Declined> {
        self.refuse_while_stopping()?;
        let owner = self.owner(&asked)?;
        let is_open = |name| self.is_open(&owner, name);
        if self.state.draining() && !asked.name.as_deref().is_some_and(is_open) {
            return Err(Fault::Stopping.into());
        }
        let holder = self.holder(asked.owner_pid, asked.linger_ms)?;
        sensible(asked.size, asked.inodes)?;
        let policy = PolicyRequest {
            size: asked.size,
            inodes: asked.inodes,
            mode: asked.mode.map(own_mode),
            guard: asked.guard.map(own_guard),
        };
        let name = asked.name.as_deref();
        let opened = self.state.namespace.open_session(&owner, name, &policy, holder)?;
        Ok(wire::OpenedSession {
            session: self.state.show().session(&opened.session),
            token: opened.token.to_string(),
            attached: opened.attached,
        })
    }

    /// For whom a session is opened: root may do it for somebody else. Whether that user exists
    /// isn't known here; the session's group is root's own.
    fn owner(&self, asked: &wire::OpenSession) -> Result<Peer, Fault> {
        let uid = match asked.uid {
            Some(uid) if uid != self.peer.uid => uid,
            Some(_) | None => return Ok(self.peer),
        };
        if self.peer.uid != 0 {
            let session = asked.name.clone().unwrap_or_default();
            return Err(Fault::SessionNotYours { session });
        }
        let Facts { many_users, uid: own, .. } = self.state.facts;
        if !many_users && uid != own {
            let what = "a session of another user than the one whose daemon it is".to_owned();
            return Err(Fault::NotSupported { what });
        }
        Ok(Peer { uid, ..self.peer })
    }

    /// Whether a session of this user is open under this name.
    fn is_open(&self, user: &Peer, name: &str) -> bool {
        self.state.namespace.show_session(user, name).is_ok_and(|session| {
            session.uid == user.uid && session.name.as_deref() == Some(name) && !session.sealed
        })
    }

    fn acquire_lease(&self, asked: &wire::AcquireLease) -> Result<wire::AcquiredLease, Declined> {
        self.refuse_while_stopping()?;
        if asked.pid.is_some() {
            // What is wrong with the session is told before what is wrong with the process.
            self.state.namespace.check(&self.peer, &asked.session)?;
        }
        let hold = asked.hold.unwrap_or(wire::Hold::Process);
        let binding = match (hold, asked.pid) {
            (wire::Hold::Process, Some(pid)) => Binding::Process(named(&self.peer, pid)?),
            (wire::Hold::Process, None) => Binding::Process(self.peer.process),
            (wire::Hold::Connection, None) => Binding::Connection(self.connection),
            (wire::Hold::Nothing, None) => Binding::Unbound,
            (wire::Hold::Connection | wire::Hold::Nothing, Some(_)) => {
                let reason = "`pid` is for a lease that hangs on a process".to_owned();
                return Err(Fault::RequestInvalid { reason }.into());
            }
        };
        let kind = own_kind(asked.kind.unwrap_or(wire::LeaseKind::Shared));
        let view = self.state.namespace.acquire_lease(&self.peer, &asked.session, kind, binding)?;
        let lease = self.state.show().lease(&view);
        let mut environment: BTreeMap<_, _> =
            ["TMPDIR", "TMP", "TEMP"].map(|name| (name.to_owned(), lease.path.clone())).into();
        environment.insert("HOLDFAST_SOCKET".to_owned(), self.state.socket().to_owned());
        let member = format!("{}:{}", lease.session, lease.id);
        environment.insert("HOLDFAST_MEMBER".to_owned(), member);
        let lost_promises = self.state.lost_promises();
        Ok(wire::AcquiredLease { lease, environment, lost_promises })
    }

    /// What an owner token is to hang on.
    fn holder(&self, pid: Option<u32>, linger_ms: Option<u64>) -> Result<Holder, Fault> {
        match (pid, linger_ms) {
            (None, None) => Ok(Holder::Process(self.peer.process)),
            (Some(pid), None) => named(&self.peer, pid).map(Holder::Process),
            (None, Some(linger)) => Ok(Holder::Linger { ttl: Duration::from_millis(linger) }),
            (Some(_), Some(_)) => Err(Fault::RequestInvalid {
                reason: "a token hangs on a process or lingers, not both".to_owned(),
            }),
        }
    }

    async fn down(&self, mode: wire::DownMode) -> Result<(), Declined> {
        let owner = self.state.facts.uid;
        if !self.peer.may_touch(owner) {
            return Err(Fault::DaemonNotYours { owner }.into());
        }
        self.state.namespace.check_outside(&self.peer)?;
        match mode {
            wire::DownMode::Refuse => self.refuse_while_sessions_live()?,
            wire::DownMode::Drain => {
                if !self.state.drain(left(&self.stream)).await {
                    let reason = "whoever waited for the last session has left".to_owned();
                    return Err(Fault::RequestInvalid { reason }.into());
                }
            }
            wire::DownMode::Force => {}
        }
        let (uid, pid) = (self.peer.uid, self.peer.process.pid);
        tracing::info!(uid, pid, ?mode, "a client ends the daemon");
        self.state.stop.ask(Why::Asked);
        Ok(())
    }

    fn refuse_while_sessions_live(&self) -> Result<(), Fault> {
        // One that is sealed and has no lease is nobody's any more: it only waits to be discarded.
        let lives = |view: &&SessionView| !view.sealed || view.leases > 0;
        let everybody = Peer { uid: 0, ..self.peer };
        if !self.state.namespace.list_sessions(&everybody).iter().any(|view| lives(&view)) {
            return Ok(());
        }
        let sessions = self.state.namespace.list_sessions(&self.peer);
        let name = |view: &SessionView| match &view.name {
            Some(name) => name.clone(),
            None => view.id.to_string(),
        };
        Err(Fault::SessionsAlive { sessions: sessions.iter().filter(lives).map(name).collect() })
    }
}

/// Waits until a client has left, or says no more. What it has sent isn't read.
pub(super) async fn left(stream: &UnixStream) {
    // This interest is told of the end of what is sent, and not of what can be read.
    if let Err(error) = stream.ready(Interest::PRIORITY).await {
        tracing::debug!(%error, "a client can't be waited for");
    }
}

/// Refuses limits that no store has; some would be taken for none.
fn sensible(size: Option<u64>, inodes: Option<u64>) -> Result<(), Fault> {
    for (name, value, most) in [("size", size, MOST_BYTES), ("inodes", inodes, MOST_INODES)] {
        if value.is_some_and(|value| value > most) {
            let reason = format!("`{name}` is more than {most}");
            return Err(Fault::RequestInvalid { reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
