//! A thread that takes away what nobody uses: generations that are to go, and descriptors of
//! inodes that the kernel only remembers.
//!
//! It must never take away what the kernel still uses, and nothing of ours is locked while it asks
//! the kernel: the kernel may have to wait for a serving thread first.

mod discard;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::RangeInclusive;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use self::discard::Discarder;
use crate::namespace::Gone;
use crate::node::{GenerationKey, Node};
use crate::store::{Store, Tree};
use crate::tempfs::{Attendant, Commons, TempFs, expect_unknown};

/// How long the kernel is given to answer a pruning with forgets before what is left counts as in
/// use. Nothing is lost if it takes longer: the next forget has it looked at again.
const SETTLE: Duration = Duration::from_millis(20);

/// How long a new connection waits at the most until nothing is believed missing any more.
const DOUBT: Duration = Duration::from_secs(1);

/// How long to wait before a generation that was in use is looked at again although nothing was
/// heard of it: leaving a directory is nothing that the kernel tells.
const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(8);

/// How soon a generation in use is looked at again, at the soonest: a program that works in it
/// makes the kernel forget something all the time.
const PACE: Duration = Duration::from_millis(200);

/// How often the kernel is asked at the most before something else has its turn; a tree that is
/// deeper goes with the next pass.
const ROUNDS: usize = 64;

/// What the thread is asked to do.
#[derive(Default)]
struct Inbox {
    drain: Vec<(GenerationKey, Gone)>,
    lower: Vec<(Node, OsString)>,
    descriptors_short: bool,
    forgotten: bool,
    /// Who waits until no connection believes any more what was missing before it joined.
    joined: Vec<mpsc::SyncSender<()>>,
    changed: BTreeSet<Node>,
    stop: bool,
}

#[derive(Default)]
struct Desk {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, put: impl FnOnce(&mut Inbox)) {
        put(&mut self.lock());
        self.arrived.notify_one();
    }

    /// Waits for anything, but no longer than `limit` if there is one, and takes all of it.
    fn take(&self, limit: Option<Duration>) -> Inbox {
        let nothing = |inbox: &mut Inbox| inbox.is_empty();
        let mut inbox = match limit {
            None => self
                .arrived
                .wait_while(self.lock(), nothing)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                self.arrived
                    .wait_timeout_while(self.lock(), limit, nothing)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        std::mem::take(&mut *inbox)
    }

    /// Lets forgets gather, unless there is something else to do.
    fn pause_for_more(&self) -> Inbox {
        let (mut inbox, _) = self
            .arrived
            .wait_timeout_while(self.lock(), PACE, |inbox| {
                inbox.is_empty() || inbox.has_only_forgets()
            })
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *inbox)
    }

    /// Waits a little for a forget.
    fn wait_for_forget(&self) {
        let (mut inbox, _) = self
            .arrived
            .wait_timeout_while(self.lock(), SETTLE, |inbox| !inbox.forgotten && !inbox.stop)
            .unwrap_or_else(PoisonError::into_inner);
        inbox.forgotten = false;
    }
}

impl Inbox {
    fn is_empty(&self) -> bool {
        !self.forgotten && self.has_nothing_but_forgets()
    }

    fn has_only_forgets(&self) -> bool {
        self.forgotten && self.has_nothing_but_forgets()
    }

    fn has_nothing_but_forgets(&self) -> bool {
        self.drain.is_empty()
            && self.lower.is_empty()
            && !self.descriptors_short
            && self.joined.is_empty()
            && self.changed.is_empty()
            && !self.stop
    }
}

impl Attendant for Desk {
    fn descriptors_short(&self) {
        self.put(|inbox| inbox.descriptors_short = true);
    }

    fn forgotten(&self) {
        self.put(|inbox| inbox.forgotten = true);
    }

    fn joined(&self) {
        let (done, told) = mpsc::sync_channel(1);
        self.put(|inbox| inbox.joined.push(done));
        // It ends soon, or with the reaper; a kernel that takes longer is not worth the wait.
        let _ = told.recv_timeout(DOUBT);
    }

    fn changed(&self, node: Node) {
        self.put(|inbox| {
            inbox.changed.insert(node);
        });
    }
}

/// The thread, for whoever has work for it. It ends with this value.
pub(crate) struct Reaper {
    desk: Arc<Desk>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reaper {
    pub(crate) fn start(commons: Arc<Commons>, store: Arc<Store>) -> io::Result<Self> {
        let desk = Arc::new(Desk::default());
        commons.attend(Arc::clone(&desk) as Arc<dyn Attendant>);
        let discarder = Discarder::start(store)?;
        let work = Work {
            commons,
            discarder,
            desk: Arc::clone(&desk),
            draining: BTreeMap::new(),
            patience: *PATIENCE.start(),
        };
        let thread = thread::Builder::new().name("reaper".into()).spawn(move || work.run())?;
        Ok(Self { desk, thread: Some(thread) })
    }

    /// Takes a generation away once the kernel uses nothing in it, and then calls `gone`.
    pub(crate) fn drain(&self, key: GenerationKey, gone: Gone) {
        self.desk.put(|inbox| inbox.drain.push((key, gone)));
    }

    /// A session's directory has lost its name.
    pub(crate) fn lower(&self, session: Node, name: &OsStr) {
        self.desk.put(|inbox| inbox.lower.push((session, name.to_owned())));
    }
}

impl std::fmt::Debug for Reaper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reaper").finish_non_exhaustive()
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.desk.put(|inbox| inbox.stop = true);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the reaper has panicked");
        }
    }
}

/// What became of a generation that is to go.
enum Drained {
    /// It has no name any more; this is its tree.
    Yes(Arc<Tree>),
    /// It was gone.
    Already,
    /// The kernel uses something in it.
    InUse,
}

/// What the kernel knows on one connection of the generations that are to go.
struct Known {
    connection: Arc<TempFs>,
    nodes: BTreeMap<GenerationKey, Vec<Node>>,
}

/// Asks the kernel to forget all of it; whether it was asked on any connection.
fn prune(known: &[Known]) -> bool {
    let mut asked = false;
    for Known { connection, nodes } in known {
        let Some(kernel) = connection.kernel() else { continue };
        let nodes: Vec<Node> = nodes.values().flatten().copied().collect();
        match kernel.prune(&nodes) {
            Ok(()) => asked = true,
            Err(errno) => {
                tracing::debug!(%errno, "generations wait until the kernel forgets them");
            }
        }
    }
    asked
}

fn count(known: &[Known]) -> BTreeMap<GenerationKey, usize> {
    let mut counts = BTreeMap::new();
    for (key, nodes) in known.iter().flat_map(|known| &known.nodes) {
        *counts.entry(*key).or_default() += nodes.len();
    }
    counts
}

struct Work {
    commons: Arc<Commons>,
    discarder: Discarder,
    desk: Arc<Desk>,
    draining: BTreeMap<GenerationKey, Gone>,
    patience: Duration,
}

impl Work {
    fn run(mut self) {
        loop {
            let limit = (!self.draining.is_empty()).then_some(self.patience);
            let mut inbox = self.desk.take(limit);
            if inbox.has_only_forgets() {
                inbox = self.desk.pause_for_more();
            }
            if inbox.stop {
                return;
            }
            if !inbox.joined.is_empty() {
                self.doubt(inbox.joined);
            }
            self.invalidate(&inbox.changed);
            if inbox.descriptors_short {
                self.relieve();
            }
            self.patience = if inbox.drain.is_empty() {
                (self.patience * 2).min(*PATIENCE.end())
            } else {
                *PATIENCE.start()
            };
            for (key, gone) in inbox.drain {
                self.commons.watch_forgets(key, true);
                self.draining.insert(key, gone);
            }
            for (session, name) in inbox.lower {
                self.lower(session, &name);
            }
            self.pass();
        }
    }

    /// Looks at all generations that are to go, and lets those go that the kernel doesn't use.
    /// Where it was cut off, it uses none: what is still open is passed through, and keeps its
    /// contents without us.
    /// Directories can go only after what is in them, so the kernel is asked again for as long as
    /// that helps; and it is waited for once for all of them, so that nobody's generations in use
    /// hold up another's.
    fn pass(&mut self) {
        let connections = self.commons.connections();
        for key in self.draining.keys() {
            self.forget_absences(&connections, *key);
        }
        for _ in 0..ROUNDS {
            let known = self.known();
            for key in self.draining.keys().copied().collect::<Vec<_>>() {
                if known.iter().all(|known| known.nodes[&key].is_empty()) {
                    self.finish(key);
                }
            }
            if self.draining.is_empty() || !prune(&known) {
                return;
            }
            let before = count(&known);
            if !self.has_shrunk(&before) {
                self.desk.wait_for_forget();
                if !self.has_shrunk(&before) {
                    return;
                }
            }
        }
    }

    /// What the kernel knows, on each connection, of each generation that is to go.
    fn known(&self) -> Vec<Known> {
        let of = |connection: Arc<TempFs>| {
            let mut nodes: BTreeMap<_, _> =
                self.draining.keys().map(|key| (*key, Vec::new())).collect();
            connection.table().sort_nodes(&mut nodes);
            Known { connection, nodes }
        };
        self.commons.connections().into_iter().map(of).collect()
    }

    fn has_shrunk(&self, before: &BTreeMap<GenerationKey, usize>) -> bool {
        let now = count(&self.known());
        now.iter().any(|(key, now)| before.get(key).is_some_and(|before| now < before))
    }

    /// Has the kernel give up what it remembers of names that are missing in a generation.
    fn forget_absences(&self, connections: &[Arc<TempFs>], key: GenerationKey) {
        let Some(tree) = self.commons.tree_of(key) else { return };
        let absences = tree.absent().take_all();
        for connection in connections {
            if let Some(kernel) = connection.kernel() {
                connection.forget_absences(kernel, &tree, &absences);
            }
        }
    }

    /// From now on changes can come through several connections, so nothing is to be believed that
    /// the kernel was told before. The new one isn't served before the names are done: until then
    /// each that the kernel takes for missing still is.
    fn doubt(&self, joined: Vec<mpsc::SyncSender<()>>) {
        let connections = self.commons.connections();
        for key in self.commons.keys() {
            self.forget_absences(&connections, key);
        }
        // What a kernel is told from now on it doesn't believe anyway. One that knows the root alone
        // has nothing to doubt, and to tell it so would have it drop the answer that it waits for: it
        // would then take the root for what it is before the first answer, closed to everybody.
        let told: Vec<_> = connections
            .into_iter()
            .map(|connection| (connection.table().nodes(), connection))
            .filter(|(nodes, _)| nodes.iter().any(|node| *node != Node::ROOT))
            .collect();
        // From here on the new connection may be served.
        drop(joined);
        for (nodes, connection) in told {
            let Some(kernel) = connection.kernel() else { continue };
            if let Err(errno) = kernel.prune(&nodes) {
                tracing::debug!(%errno, "the kernel can't be asked to forget inodes");
            }
            for node in nodes.into_iter().filter(|node| connection.table().knows(*node)) {
                expect_unknown(kernel.invalidate(node));
            }
        }
    }

    fn invalidate(&self, changed: &BTreeSet<Node>) {
        if changed.is_empty() {
            return;
        }
        for connection in self.commons.connections() {
            let Some(kernel) = connection.kernel() else { continue };
            for node in changed {
                expect_unknown(kernel.invalidate(*node));
            }
        }
    }

    fn finish(&mut self, key: GenerationKey) {
        let Some(gone) = self.draining.remove(&key) else { return };
        match self.take_out(key) {
            Drained::Yes(tree) => self.discarder.discard(tree, gone),
            Drained::Already => gone(),
            Drained::InUse => {
                self.draining.insert(key, gone);
            }
        }
    }

    /// Has the kernel forget what it doesn't use of the inodes whose descriptors are held longest.
    fn relieve(&self) {
        for connection in self.commons.connections() {
            if let (Some(nodes), Some(kernel)) =
                (connection.table().over_budget(), connection.kernel())
                && let Err(errno) = kernel.prune(&nodes)
            {
                tracing::debug!(%errno, "the kernel can't be asked to forget inodes");
            }
            connection.table().was_asked_to_forget();
        }
    }

    fn lower(&self, session: Node, name: &OsStr) {
        for connection in self.commons.connections() {
            if let Some(kernel) = connection.kernel()
                && kernel.prune(&[session]).is_err()
            {
                expect_unknown(kernel.invalidate_name(Node::ROOT, name));
            }
        }
    }

    /// Takes out the name and the tree of a generation that the kernel knows nothing of.
    fn take_out(&self, key: GenerationKey) -> Drained {
        let Some(tree) = self.commons.tree_of(key) else { return Drained::Already };
        let root = tree.root_node();
        let Some(session) = self.commons.structure().parent(root) else { return Drained::Already };
        let number = self.commons.structure().number(session, root);
        self.commons.structure().remove_child(session, root);
        // Someone may have walked in between the last look and the removal of the name.
        if self.commons.knows_any_of(key)
            && let Some(number) = number
        {
            self.commons.structure().add_generation(session, number, root);
            return Drained::InUse;
        }
        for connection in self.commons.connections() {
            if let Some(kernel) = connection.kernel() {
                expect_unknown(kernel.invalidate(session));
            }
        }
        self.commons.watch_forgets(key, false);
        self.commons.uproot(key);
        Drained::Yes(tree)
    }
}
