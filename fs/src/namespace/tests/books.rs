//! A ground that keeps books, and what else a namespace is given.
//!
//! It must never forgive: what no ground could do is a failed test.

mod ground;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::super::*;
use crate::registry::{
    Holder, LeaseId, OpenedSession, PolicyRequest, SessionId, SessionRecord, Usage,
};
use crate::saved::Earlier;

/// A step of the ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Session,
    Generation,
    Lease,
    Resize,
    Used,
    Keep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) session: SessionId,
    pub(super) number: u32,
    pub(super) room: Room,
    pub(super) owner: Owner,
    pub(super) leases: BTreeSet<LeaseId>,
}

#[derive(Default)]
pub(super) struct Pages {
    pub(super) sessions: BTreeMap<SessionId, Owner>,
    pub(super) trees: BTreeMap<GenerationKey, Tree>,
    pub(super) used: BTreeMap<GenerationKey, Usage>,
    /// What fails, and how.
    pub(super) failing: BTreeMap<Step, GroundError>,
    /// What a daemon that starts again finds: generations, and what is kept of sessions.
    pub(super) disk: BTreeMap<GenerationKey, (u64, Tree)>,
    pub(super) kept: BTreeMap<SessionId, SessionRecord>,
    /// Whether no limit can be held.
    pub(super) boundless: bool,
    /// Private leases that have ended and whose directories are there, and which of them are used.
    pub(super) ended: BTreeMap<LeaseId, GenerationKey>,
    pub(super) in_use: BTreeSet<LeaseId>,
    /// Generations in which something was opened for writing.
    pub(super) written: BTreeSet<GenerationKey>,
    /// Generations that an earlier daemon has left.
    pub(super) unclaimed: Vec<Unclaimed>,
    draining: BTreeMap<GenerationKey, Gone>,
    stuck: BTreeMap<GenerationKey, Stuck>,
    inodes: u64,
}

/// A ground that keeps books.
#[derive(Default)]
pub(super) struct Books(Mutex<Pages>);

impl Books {
    pub(super) fn open(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap()
    }

    pub(super) fn fail(&self, step: Step, error: GroundError) {
        self.open().failing.insert(step, error);
    }

    pub(super) fn use_up(&self, key: GenerationKey, bytes: u64, inodes: u64) {
        self.open().used.insert(key, Usage { bytes, inodes });
    }

    /// What the reaper does where something isn't let go.
    pub(super) fn is_stuck(&self, key: GenerationKey, why: Blockage) {
        let stuck = self.open().stuck.remove(&key).expect("it is to go");
        stuck(why);
    }

    /// What the reaper does: discards what is drained, but says nothing yet.
    pub(super) fn reap(&self) -> BTreeMap<GenerationKey, Gone> {
        let mut pages = self.open();
        let draining = std::mem::take(&mut pages.draining);
        for key in draining.keys() {
            pages.trees.remove(key);
            pages.disk.remove(key);
            pages.used.remove(key);
        }
        draining
    }
}

impl Pages {
    fn step(&mut self, step: Step) -> Result<u64, GroundError> {
        match self.failing.get(&step) {
            Some(error) => Err(*error),
            None => {
                self.inodes += 1;
                // The first one is the root's.
                Ok(self.inodes + 1)
            }
        }
    }
}

/// What the observer was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Watch(Process),
    Unwatch(Process),
    Due(Option<Timestamp>),
    Gone(SessionId),
    Blocked(u32, Option<Blockage>),
}

struct Listener(Mutex<Sender<Told>>);

impl Listener {
    fn tell(&self, told: Told) {
        // A test may be over before the last thread of it.
        let _ = self.0.lock().unwrap().send(told);
    }
}

impl Observer for Listener {
    fn watch(&self, process: Process) {
        self.tell(Told::Watch(process));
    }

    fn unwatch(&self, process: Process) {
        self.tell(Told::Unwatch(process));
    }

    fn due(&self, at: Option<Timestamp>) {
        self.tell(Told::Due(at));
    }

    fn session_gone(&self, session: SessionId) {
        self.tell(Told::Gone(session));
    }

    fn discard_blocked(&self, generation: Leaving, why: Option<Blockage>) {
        self.tell(Told::Blocked(generation.number, why));
    }
}

/// Children of pid 100 and above descend from the process that is 100 less.
struct Hundreds;

impl Lineage for Hundreds {
    fn of(&self, process: Process) -> Vec<Process> {
        let parent = process.pid.checked_sub(100).map(|pid| Process { pid, ..process });
        std::iter::once(process).chain(parent).collect()
    }
}

#[derive(Default)]
pub(super) struct Dial(AtomicU64);

impl Dial {
    pub(super) fn turn(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Dial {
    fn now(&self) -> Timestamp {
        Timestamp::from_start(Duration::from_secs(self.0.load(Ordering::Relaxed)))
    }
}

pub(super) fn around(books: &Arc<Books>, dial: &Arc<Dial>) -> (Surroundings, Receiver<Told>) {
    let (sender, told) = channel();
    let (ground, ledger, clock) = (Arc::clone(books), Arc::clone(books), Arc::clone(dial));
    let surroundings = Surroundings {
        ground,
        ledger: Some(ledger),
        observer: Arc::new(Listener(Mutex::new(sender))),
        lineage: Arc::new(Hundreds),
        clock,
        draw: Box::new(KernelDraw),
        bounds: Bounds::default(),
        total: None,
        first_key: GenerationKey::new(1).unwrap(),
    };
    (surroundings, told)
}

/// A namespace and everything around it.
pub(super) struct World {
    pub(super) namespace: Arc<Namespace>,
    pub(super) books: Arc<Books>,
    pub(super) dial: Arc<Dial>,
    told: Receiver<Told>,
}

pub(super) const fn peer(pid: u32) -> Peer {
    Peer { uid: 1000, gid: 100, process: process(pid) }
}

pub(super) const fn process(pid: u32) -> Process {
    Process { pid, start: 1 }
}

pub(super) const fn held(pid: u32) -> Holder {
    Holder::Process(process(pid))
}

impl World {
    pub(super) fn new() -> Self {
        Self::of(None)
    }

    pub(super) fn with_total(total: u64) -> Self {
        Self::of(Some(total))
    }

    fn of(total: Option<u64>) -> Self {
        let (books, dial) = (Arc::new(Books::default()), Arc::new(Dial::default()));
        let (surroundings, told) = around(&books, &dial);
        let surroundings = Surroundings { total, ..surroundings };
        Self { namespace: Namespace::new(surroundings), books, dial, told }
    }

    /// What a daemon that starts again makes of what this one has left.
    pub(super) fn again(
        &self,
        same_boot: bool,
        lives: &dyn Fn(Process) -> bool,
    ) -> Result<Self, RestoreError> {
        let (books, dial) = (Arc::new(Books::default()), Arc::new(Dial::default()));
        let sessions: Vec<_> = {
            let (here, mut there) = (self.books.open(), books.open());
            there.inodes = here.inodes;
            there.disk = here.disk.clone();
            there.kept = here.kept.clone();
            here.kept.values().cloned().collect()
        };
        if same_boot {
            dial.turn(self.dial.now().since_start().as_secs());
        }
        let (mut surroundings, told) = around(&books, &dial);
        let last = self.books.open().disk.last_key_value().map_or(0, |(key, _)| key.get());
        surroundings.first_key = GenerationKey::new(last + 1).unwrap();
        let earlier = Earlier { sessions, same_boot };
        let namespace = Namespace::restore(surroundings, earlier, lives)?;
        Ok(Self { namespace, books, dial, told })
    }

    pub(super) fn told(&self) -> Vec<Told> {
        self.told.try_iter().collect()
    }

    pub(super) fn open(&self, name: &str, policy: &PolicyRequest) -> OpenedSession {
        self.namespace.open_session(&peer(1), Some(name), policy, held(1)).unwrap()
    }

    /// The reaper discards everything that is to be drained, and says so.
    pub(super) fn reap(&self) {
        for gone in self.books.reap().into_values() {
            gone();
        }
    }

    /// What is kept is what there is.
    pub(super) fn kept(&self) {
        let sessions = self.namespace.list_sessions(&Peer { uid: 0, ..peer(1) });
        let state = self.namespace.lock();
        let there = sessions.iter().map(|session| state.registry.record(session.id).unwrap());
        let there: Vec<_> = there.collect();
        assert_eq!(self.books.open().kept.values().cloned().collect::<Vec<_>>(), there);
    }

    /// The registry shows what the books have.
    pub(super) fn agree(&self) {
        let root = Peer { uid: 0, ..peer(1) };
        let sessions = self.namespace.list_sessions(&root);
        let leases = self.namespace.list_leases(&root);
        let pages = self.books.open();
        let ids: Vec<_> = sessions.iter().map(|session| session.id).collect();
        assert_eq!(ids, pages.sessions.keys().copied().collect::<Vec<_>>());
        let mut trees = BTreeMap::new();
        for session in &sessions {
            for generation in &session.generations {
                let private = leases
                    .iter()
                    .filter(|lease| lease.key == generation.key)
                    .filter(|lease| lease.kind == LeaseKind::Private);
                let draining = generation.retired && generation.leases == 0;
                let leases: BTreeSet<_> = private.map(|lease| lease.id).collect();
                trees.insert(generation.key, (session.id, generation.number, leases, draining));
            }
        }
        let raised: BTreeMap<_, _> = pages
            .trees
            .iter()
            .map(|(key, tree)| {
                (
                    *key,
                    (
                        tree.session,
                        tree.number,
                        tree.leases.clone(),
                        pages.draining.contains_key(key),
                    ),
                )
            })
            .collect();
        assert_eq!(trees, raised);
    }
}
