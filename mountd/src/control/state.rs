//! What all connections share: the namespace, what is told of the daemon, and the way to end it.
//!
//! It must never serve anybody itself.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_fs::clock::{Clock, Timestamp};
use holdfast_fs::namespace::Namespace;
use holdfast_fs::registry::{Bounds, Peer};
use tokio::sync::watch;

use super::show::{Show, count, counts, milliseconds};
use super::wire;
use crate::channel::Why;
use crate::fault::Fault;

/// Connections, of all users together.
pub(super) const CONNECTIONS: usize = 1024;
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
    /// Whether it serves all users.
    pub(crate) many_users: bool,
    /// The device number of the mount, as `st_dev`.
    pub(crate) device: u64,
    /// Which connection to the kernel this is; the first is 1.
    pub(crate) epoch: u64,
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
    mountpoint: String,
    socket: String,
    clock: Arc<dyn Clock>,
    started: Timestamp,
    draining: Cell<bool>,
    connections: RefCell<Connections>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Connections {
    all: usize,
    of: HashMap<u32, usize>,
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
            mountpoint,
            socket,
            clock,
            started,
            draining: Cell::new(false),
            connections: RefCell::default(),
            changed: watch::Sender::new(()),
        })
    }

    pub(super) fn show(&self) -> Show<'_> {
        Show {
            mountpoint: &self.mountpoint,
            device: self.facts.device,
            epoch: self.facts.epoch,
            now: self.clock.now(),
        }
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

    pub(super) fn status(&self) -> wire::CurrentStatus {
        wire::CurrentStatus {
            uptime_ms: milliseconds(self.clock.now().since(self.started)),
            draining: self.draining.get(),
            device: self.facts.device,
            epoch: self.facts.epoch,
            counts: counts(self.namespace.counts(), self.connections.borrow().all),
        }
    }

    pub(super) fn lost_promises(&self) -> Vec<wire::LostPromise> {
        let lost = self.facts.lost_promises.iter();
        lost.map(|(name, why)| wire::LostPromise { name: name.clone(), why: why.clone() }).collect()
    }

    pub(super) fn draining(&self) -> bool {
        self.draining.get()
    }

    /// From here on no session is opened. Waits until the last one is gone.
    pub(super) async fn drain(&self) {
        self.draining.set(true);
        let mut changed = self.changed.subscribe();
        while self.namespace.counts().sessions > 0 {
            if changed.changed().await.is_err() {
                break;
            }
        }
    }

    /// Something may have begun or ended; whoever waits for that looks again.
    pub(super) fn note_change(&self) {
        self.changed.send_replace(());
    }

    /// One more connection of a user, if there may be one.
    ///
    /// # Errors
    /// Where a limit is reached, or where the daemon serves its own user alone.
    pub(super) fn admit(&self, peer: &Peer) -> Result<(), Fault> {
        let owner = self.facts.uid;
        // From within a user namespace root looks like nobody; it could not enter the mount anyway.
        if !self.facts.many_users && !peer.may_touch(owner) {
            return Err(Fault::DaemonNotYours { owner });
        }
        let limit = |limit: &str, value| {
            Err(Fault::LimitReached { limit: limit.to_owned(), value: count(value) })
        };
        let mut connections = self.connections.borrow_mut();
        if connections.all >= CONNECTIONS {
            return limit("connections", CONNECTIONS);
        }
        let own = connections.of.entry(peer.uid).or_default();
        if *own >= CONNECTIONS_PER_UID {
            return limit("connections per uid", CONNECTIONS_PER_UID);
        }
        *own += 1;
        connections.all += 1;
        drop(connections);
        self.note_change();
        Ok(())
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
