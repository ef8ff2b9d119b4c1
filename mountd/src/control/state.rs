//! What all connections share: the namespace, what is told of the daemon, and the way to end it.
//!
//! It must never serve anybody itself.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_fs::clock::{Clock, Timestamp};
use holdfast_fs::namespace::Namespace;
use holdfast_fs::registry::{Bounds, Peer, Process, Served};
use tokio::sync::watch;

use super::events::{Events, Happening, Viewer};
use super::news::News;
use super::peer::stranger;
use super::records::Records;
use super::show::{Show, count, counts, milliseconds};
use super::standing::Standing;
use super::wire;
use crate::channel::{Change, Why};
use crate::fault::{Fault, FaultReport};

/// Connections, of all users together.
pub(super) const CONNECTIONS: usize = 1024;
/// Some of them are kept for root and the one whose daemon it is, so that others can't shut out
/// whoever could put things right.
const CONNECTIONS_KEPT: usize = 64;
/// Connections of one user.
pub(super) const CONNECTIONS_PER_UID: usize = 256;

/// What is known about the daemon when it begins to serve, and doesn't change.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Where the namespace appears.
    pub(crate) mountpoint: PathBuf,
    /// Where clients find the daemon.
    pub(crate) socket: PathBuf,
    /// Where files are kept, as settings say it.
    pub(crate) store: String,
    /// The user whose daemon it is.
    pub(crate) uid: u32,
    /// The group of that user.
    pub(crate) gid: u32,
    /// Whether it serves all users.
    pub(crate) many_users: bool,
    /// After how long without use to leave.
    pub(crate) idle_exit: Option<Duration>,
    /// How much of everything there may be.
    pub(crate) bounds: Bounds,
    /// Promises that can't be kept on this host, by name, and why not.
    pub(crate) lost_promises: Vec<(String, String)>,
}

/// Ends the daemon, with a reason. The first reason stands.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<watch::Sender<Option<Why>>>);

impl Stop {
    /// Nobody has asked yet.
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Asks for the end.
    pub(crate) fn ask(&self, why: Why) {
        self.0.send_if_modified(|asked| {
            let first = asked.is_none();
            asked.get_or_insert(why);
            first
        });
    }

    /// Whether somebody has asked.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits until somebody asks.
    pub(crate) async fn asked(&self) -> Why {
        let mut asked = self.0.subscribe();
        let found = asked.wait_for(Option::is_some).await.ok().and_then(|why| *why);
        match found {
            Some(why) => why,
            // Nobody is left who could ask.
            None => std::future::pending().await,
        }
    }
}

/// What all connections share. It belongs to the one thread that serves them.
pub(crate) struct State {
    pub(super) namespace: Arc<Namespace>,
    pub(super) facts: Facts,
    pub(super) stop: Stop,
    /// What happened.
    pub(crate) events: Events,
    standing: Standing,
    /// The connection that serves, or served last.
    serving: Cell<Served>,
    /// The connections that still serve what is open on them.
    alive: RefCell<BTreeSet<u64>>,
    mountpoint: String,
    socket: String,
    clock: Arc<dyn Clock>,
    started: Timestamp,
    /// As whom root is seen, where that isn't as root.
    stranger: Option<u32>,
    /// How many clients wait for the last session to end.
    draining: Cell<usize>,
    news: RefCell<News>,
    pub(super) records: RefCell<Records>,
    connections: RefCell<Connections>,
    /// Held by the one who sweeps.
    pub(super) sweeping: tokio::sync::Mutex<()>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Connections {
    all: usize,
    of: HashMap<u32, usize>,
}

/// One client that waits for the last session to end.
struct Draining<'a>(&'a Cell<usize>);

impl<'a> Draining<'a> {
    fn begin(waiting: &'a Cell<usize>) -> Self {
        waiting.set(waiting.get() + 1);
        Self(waiting)
    }
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl State {
    /// The state of a daemon that begins to serve.
    ///
    /// # Errors
    /// Where a path can't be told to clients, which read UTF-8.
    pub(crate) fn new(
        namespace: Arc<Namespace>,
        facts: Facts,
        clock: Arc<dyn Clock>,
        stop: Stop,
        standing: Standing,
    ) -> Result<Self, Fault> {
        let text = |path: &PathBuf| {
            path.to_str().map(str::to_owned).ok_or_else(|| Fault::SettingsInvalid {
                place: path.display().to_string(),
                reason: "the path is not UTF-8, which clients read".to_owned(),
            })
        };
        let (mountpoint, socket) = (text(&facts.mountpoint)?, text(&facts.socket)?);
        let started = clock.now();
        Ok(Self {
            namespace,
            facts,
            stop,
            events: Events::new(),
            standing,
            serving: Cell::default(),
            alive: RefCell::default(),
            mountpoint,
            socket,
            clock,
            started,
            stranger: stranger(),
            draining: Cell::new(0),
            news: RefCell::default(),
            records: RefCell::default(),
            connections: RefCell::default(),
            sweeping: tokio::sync::Mutex::default(),
            changed: watch::Sender::new(()),
        })
    }

    /// A connection begins to serve. It serves all leases that are taken from now on.
    pub(crate) fn serve(&self, served: Served) {
        self.alive.borrow_mut().insert(served.epoch);
        self.serving.set(served);
        self.namespace.serve(served);
    }

    /// A connection has ended, and with it whatever was open on it.
    pub(crate) fn ended(&self, epoch: u64) {
        self.alive.borrow_mut().remove(&epoch);
        if self.stop.is_asked() {
            return;
        }
        let process = Process { pid: std::process::id(), start: 0 };
        let everybody = Peer { uid: 0, gid: 0, process };
        let leases = self.namespace.list_leases(&everybody);
        for lease in leases.into_iter().filter(|lease| lease.served.epoch == epoch) {
            self.events.note(Happening::HandlesDead {
                lease: lease.id.to_string(),
                session: lease.session.to_string(),
                owner: lease.uid,
                epoch,
            });
        }
    }

    /// Something has happened to the mount or the socket.
    pub(crate) fn happened(&self, change: Change) {
        self.events.note(Happening::of(change, self.serving.get()));
    }

    /// What the keeper says of the mount.
    pub(crate) const fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(super) fn show(&self) -> Show<'_> {
        Show { mountpoint: &self.mountpoint, alive: self.alive.borrow(), now: self.clock.now() }
    }

    /// The present moment.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// For whom events are looked at where this client asks.
    pub(super) const fn viewer(&self, peer: Peer) -> Viewer {
        Viewer { peer, daemon: self.facts.uid }
    }

    pub(super) fn socket(&self) -> &str {
        &self.socket
    }

    pub(super) fn describe(&self) -> wire::Description {
        let bounds = &self.facts.bounds;
        wire::Description {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mountpoint: self.mountpoint.clone(),
            socket: self.socket.clone(),
            store: self.facts.store.clone(),
            uid: self.facts.uid,
            many_users: self.facts.many_users,
            idle_exit_ms: self.facts.idle_exit.map(milliseconds),
            limits: wire::Limits {
                request_bytes: count(wire::LONGEST_REQUEST),
                connections: count(CONNECTIONS),
                connections_per_uid: count(CONNECTIONS_PER_UID),
                sessions_per_uid: count(bounds.sessions_per_uid),
                leases_per_session: count(bounds.leases_per_session),
                tokens_per_session: count(bounds.tokens_per_session),
                generations: count(bounds.generations),
            },
            lost_promises: self.lost_promises(),
        }
    }

    /// What is wrong, as this client may know it: the cause can have paths in it, and is for whoever
    /// can do something about it.
    fn fault_for(&self, peer: &Peer, report: FaultReport) -> wire::Fault {
        let FaultReport { code, message, remedy, cause } = report;
        let cause = cause.filter(|_| peer.may_touch(self.facts.uid));
        wire::Fault { code, message, remedy, cause }
    }

    pub(super) fn status(&self, peer: &Peer) -> wire::CurrentStatus {
        let total = self.namespace.total();
        wire::CurrentStatus {
            uptime_ms: milliseconds(self.clock.now().since(self.started)),
            draining: self.draining(),
            device: self.serving.get().device,
            epoch: self.serving.get().epoch,
            fault: self.standing.fault().map(|fault| self.fault_for(peer, fault)),
            total: total.map(|total| total.limit),
            used: total.map(|total| total.used),
            counts: counts(self.namespace.counts(), self.connections.borrow().all),
        }
    }

    pub(super) fn lost_promises(&self) -> Vec<wire::LostPromise> {
        let lost = self.facts.lost_promises.iter();
        lost.map(|(name, why)| wire::LostPromise { name: name.clone(), why: why.clone() }).collect()
    }

    pub(super) fn draining(&self) -> bool {
        self.draining.get() > 0
    }

    /// From here on no session is opened. Waits until the last one is gone, or until whoever waits
    /// for that has left, which lets sessions be opened again; says whether the last one is gone.
    pub(super) async fn drain(&self, left: impl Future<Output = ()>) -> bool {
        let _draining = Draining::begin(&self.draining);
        self.note_change();
        let last_gone = async {
            let mut changed = self.changed.subscribe();
            while self.namespace.counts().sessions > 0 {
                if changed.changed().await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            biased;
            () = last_gone => true,
            () = left => false,
        }
    }

    /// Something may have begun or ended; whoever waits for that looks again.
    pub(super) fn note_change(&self) {
        self.changed.send_replace(());
    }

    /// As whom a client is served.
    ///
    /// The socket of a daemon that serves its user alone lets that user in and root. From within
    /// the user namespace that such a daemon has, root looks like nobody; it acts as the user. So
    /// does every other uid, which the socket's mode (0600, from the moment it can be called) keeps
    /// out: only root gets past that.
    ///
    /// # Errors
    /// Where it is not to be served.
    pub(super) fn recognise(&self, peer: Peer) -> Result<Peer, Fault> {
        recognise(&self.facts, self.stranger, peer)
    }

    /// One more connection of a user, if there may be one.
    ///
    /// # Errors
    /// Where a limit is reached.
    pub(super) fn admit(&self, uid: u32) -> Result<(), Fault> {
        let limit = |limit: &str, value| {
            Err(Fault::LimitReached { limit: limit.to_owned(), value: count(value) })
        };
        let mut connections = self.connections.borrow_mut();
        let most = most_connections(&self.facts, uid);
        if connections.all >= most {
            return limit("connections", most);
        }
        let own = connections.of.entry(uid).or_default();
        if *own >= CONNECTIONS_PER_UID {
            return limit("connections per uid", CONNECTIONS_PER_UID);
        }
        *own += 1;
        connections.all += 1;
        drop(connections);
        self.note_change();
        Ok(())
    }

    /// Whether something that a user's doing has caused is news, so that nobody fills the log.
    pub(super) fn is_news(&self, uid: u32, cause: &'static str) -> bool {
        self.news.borrow_mut().is_news(uid, cause, self.clock.now())
    }

    /// A connection that was admitted is gone.
    pub(super) fn dismiss(&self, uid: u32) {
        let mut connections = self.connections.borrow_mut();
        connections.all = connections.all.saturating_sub(1);
        if let Some(own) = connections.of.get_mut(&uid) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                connections.of.remove(&uid);
            }
        }
        drop(connections);
        self.note_change();
    }

    /// Waits until nobody has used the daemon for this long: no session, no lease, no connection.
    /// What is still in use keeps its session, so it counts as well.
    pub(super) async fn idle_for(&self, wait: Duration) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let alone = self.connections.borrow().all == 0 && self.namespace.counts().sessions == 0;
            let change = changed.changed();
            if alone {
                tokio::select! {
                    () = tokio::time::sleep(wait) => return,
                    _ = change => {}
                }
            } else if change.await.is_err() {
                return;
            }
        }
    }
}

/// How many connections there may be for this user to get one more.
const fn most_connections(facts: &Facts, uid: u32) -> usize {
    if uid == 0 || uid == facts.uid { CONNECTIONS } else { CONNECTIONS - CONNECTIONS_KEPT }
}

fn recognise(facts: &Facts, stranger: Option<u32>, peer: Peer) -> Result<Peer, Fault> {
    let Facts { uid, gid, many_users, .. } = *facts;
    if many_users || peer.may_touch(uid) {
        Ok(peer)
    } else if stranger == Some(peer.uid) {
        Ok(Peer { uid, gid, ..peer })
    } else {
        Err(Fault::DaemonNotYours { owner: uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(many_users: bool) -> Facts {
        Facts {
            mountpoint: PathBuf::from("/mount"),
            socket: PathBuf::from("/socket"),
            store: "tmpfs".to_owned(),
            uid: 1000,
            gid: 100,
            many_users,
            idle_exit: None,
            bounds: Bounds::default(),
            lost_promises: Vec::new(),
        }
    }

    #[test]
    fn some_connections_are_kept_for_those_who_can_put_things_right() {
        let most = |uid| most_connections(&facts(true), uid);
        assert_eq!((most(0), most(1000)), (CONNECTIONS, CONNECTIONS));
        assert_eq!(most(1001), CONNECTIONS - CONNECTIONS_KEPT);
    }

    #[test]
    fn a_daemon_of_one_user_serves_that_user_and_root() {
        let peer = |uid| Peer { uid, gid: uid, process: Process { pid: 7, start: 7 } };
        let served = |stranger, uid| recognise(&facts(false), stranger, peer(uid));
        let refused = Err(Fault::DaemonNotYours { owner: 1000 });
        assert_eq!(served(None, 1000), Ok(peer(1000)));
        assert_eq!(served(None, 0), Ok(peer(0)));
        assert_eq!(served(None, 65534), refused);
        assert_eq!(served(Some(65534), 1001), refused);
        let acts = Peer { uid: 1000, gid: 100, ..peer(65534) };
        assert_eq!(served(Some(65534), 65534), Ok(acts), "root, seen from a user namespace");
        assert_eq!(recognise(&facts(true), None, peer(65534)), Ok(peer(65534)));
    }
}
