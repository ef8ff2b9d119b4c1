//! A thread that takes away what nobody uses: generations that are to go, and descriptors of
//! inodes that the kernel only remembers.
//!
//! It must never take away what the kernel still uses, and nothing of ours is locked while it asks
//! the kernel: the kernel may have to wait for a serving thread first.

mod desk;
mod discard;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use self::desk::Desk;
use self::discard::Discarder;
use self::sweep::Job;
use crate::namespace::{Blockage, Gone, GroundError, Remains, Stuck};
use crate::node::{GenerationKey, Node};
use crate::store::{Store, Tree};
use crate::tempfs::{Attendant, Commons, TempFs, expect_unknown};

/// How long to wait before a generation that was in use is looked at again although nothing was
/// heard of it: leaving a directory is nothing that the kernel tells.
const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(8);

/// How often the kernel is asked at the most before something else has its turn; a tree that is
/// deeper goes with the next pass.
const ROUNDS: usize = 64;

/// How often a generation is looked at before it is told that it is in use.
const STUCK: u32 = 3;

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
    pub(crate) fn drain(&self, key: GenerationKey, gone: Gone, stuck: Stuck) {
        self.desk.put(|inbox| inbox.drain.push((key, gone, stuck)));
    }

    /// Looks whether the kernel uses anything in the directory of a lease that has ended, and takes
    /// it away where it is to be swept.
    pub(crate) fn sweep(
        &self,
        key: GenerationKey,
        name: String,
        node: Node,
        sweep: bool,
    ) -> Result<Remains, GroundError> {
        let (job, answer) = Job::new(key, name, node, sweep);
        self.desk.put(|inbox| inbox.sweep.push(job));
        let gone = GroundError::Refused { step: "asking the reaper", errno: Errno::CANCELED };
        answer.recv().unwrap_or(Err(gone))
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

/// A generation that is to go.
struct Draining {
    gone: Gone,
    stuck: Stuck,
    /// How often it was looked at.
    passes: u32,
}

struct Work {
    commons: Arc<Commons>,
    discarder: Discarder,
    desk: Arc<Desk>,
    draining: BTreeMap<GenerationKey, Draining>,
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
            for (key, gone, stuck) in inbox.drain {
                self.commons.watch_forgets(key, true);
                self.draining.insert(key, Draining { gone, stuck, passes: 0 });
            }
            for (session, name) in inbox.lower {
                self.lower(session, &name);
            }
            self.pass();
            for draining in self.draining.values_mut() {
                draining.passes = draining.passes.saturating_add(1);
                if draining.passes == STUCK {
                    (draining.stuck)(Blockage::InUse);
                }
            }
            for job in inbox.sweep {
                self.sweep(job);
            }
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
        let Some(draining) = self.draining.remove(&key) else { return };
        match self.take_out(key) {
            Drained::Yes(tree) => self.discarder.discard(tree, draining.gone, draining.stuck),
            Drained::Already => (draining.gone)(),
            Drained::InUse => {
                self.draining.insert(key, draining);
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
