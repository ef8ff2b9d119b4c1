//! What all connections to the kernel have in common: the trees, the directories above them, and
//! the list of the connections themselves.
//!
//! It must never know how a connection reaches an inode: each has its own records. As long as there
//! are several, no kernel cache may be believed, since a change can come through any of them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use dashmap::DashMap;

use super::{Attendant, TempFs, Witness};
use crate::clock::WallClock;
use crate::node::{GenerationKey, Node};
use crate::store::Tree;
use crate::structure::Structure;

/// What this process may do, and how much it may hold.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Owner of the root directory: whoever runs the daemon.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Whether files are made for whoever asks. Needs `CAP_SETUID`, `CAP_SETGID` and the
    /// capabilities over files; without it there is one user.
    pub many_users: bool,
    /// Descriptors that may be held for inodes.
    pub descriptors: usize,
}

/// What all connections share.
///
/// Lock order: `trees` (a shard), then the table's of a connection, then the structure's;
/// `connections` and `draining` are read and let go before any of them.
pub struct Commons {
    trees: DashMap<GenerationKey, Arc<Tree>>,
    structure: Structure,
    /// Whether what is written lasts, so that synchronising it means something.
    durable: AtomicBool,
    attendant: OnceLock<Arc<dyn Attendant>>,
    witness: OnceLock<Arc<dyn Witness>>,
    draining: RwLock<HashSet<GenerationKey>>,
    connections: RwLock<Vec<Arc<TempFs>>>,
    several: AtomicBool,
    options: Options,
}

impl Commons {
    /// A filesystem without sessions and without a connection.
    #[must_use]
    pub fn new(options: Options, clock: Arc<dyn WallClock>) -> Arc<Self> {
        Arc::new(Self {
            trees: DashMap::new(),
            structure: Structure::new(options.uid, options.gid, clock),
            durable: AtomicBool::new(true),
            attendant: OnceLock::new(),
            witness: OnceLock::new(),
            draining: RwLock::default(),
            connections: RwLock::default(),
            several: AtomicBool::new(false),
            options,
        })
    }

    /// Takes a connection in. Where there was one before, its kernel is asked to believe nothing
    /// any more of what it has been told.
    pub fn join(&self, connection: Arc<TempFs>) {
        let mut connections = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        connections.push(connection);
        let several = connections.len() > 1;
        self.several.store(several, Ordering::Release);
        drop(connections);
        if several && let Some(attendant) = self.attendant.get() {
            attendant.joined();
        }
    }

    /// A connection has ended, and its kernel uses nothing more through it.
    pub fn leave(&self, connection: &Arc<TempFs>) {
        let mut connections = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|other| !Arc::ptr_eq(other, connection));
        self.several.store(connections.len() > 1, Ordering::Release);
        drop(connections);
        for node in connection.table().structural() {
            self.forget(node);
        }
        if let Some(attendant) = self.attendant.get() {
            attendant.forgotten();
        }
    }

    /// How many descriptors one more connection may hold: what the others leave, and a quarter in
    /// any case, since they will let go of what they don't use.
    pub(super) fn budget(&self) -> usize {
        let all = self.options.descriptors;
        let held: usize =
            self.connections().iter().map(|connection| connection.table().held()).sum();
        all.saturating_sub(held).max(all / 4)
    }

    /// The connections that there are.
    pub(crate) fn connections(&self) -> Vec<Arc<TempFs>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether changes can come through more than one connection.
    pub(crate) fn are_several(&self) -> bool {
        self.several.load(Ordering::Acquire)
    }

    /// Whether the kernel knows a node, on any connection.
    pub(crate) fn knows(&self, node: Node) -> bool {
        self.connections().iter().any(|connection| connection.table().knows(node))
    }

    /// Whether the kernel knows anything of a generation, on any connection.
    pub(crate) fn knows_any_of(&self, key: GenerationKey) -> bool {
        self.connections().iter().any(|connection| connection.table().knows_any_of(key))
    }

    /// A connection has forgotten a directory above the generations, or is gone.
    pub(crate) fn forget(&self, node: Node) {
        if !self.knows(node) {
            self.structure.forget(node);
        }
    }

    /// The contents of a file have changed through one of the connections: what another one's
    /// kernel has of them is out of date.
    pub(crate) fn changed(&self, node: Node) {
        if self.are_several()
            && let Some(attendant) = self.attendant.get()
        {
            attendant.changed(node);
        }
    }

    /// Says whether what is written to the store lasts.
    pub(crate) fn set_durable(&self, durable: bool) {
        self.durable.store(durable, Ordering::Release);
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire)
    }

    /// Gives the filesystem its attendant; the first one stays.
    pub(crate) fn attend(&self, attendant: Arc<dyn Attendant>) {
        let _ = self.attendant.set(attendant);
    }

    /// Gives the filesystem its witness; the first one stays.
    pub fn set_witness(&self, witness: Arc<dyn Witness>) {
        let _ = self.witness.set(witness);
    }

    pub(super) fn witness(&self) -> Option<&dyn Witness> {
        self.witness.get().map(AsRef::as_ref)
    }

    pub(crate) fn attendant(&self) -> Option<&dyn Attendant> {
        self.attendant.get().map(AsRef::as_ref)
    }

    /// Has the attendant told of inodes of a generation that the kernel forgets, or no longer.
    pub(crate) fn watch_forgets(&self, key: GenerationKey, watch: bool) {
        let mut draining = self.draining.write().unwrap_or_else(PoisonError::into_inner);
        if watch {
            draining.insert(key);
        } else {
            draining.remove(&key);
        }
    }

    pub(crate) fn is_draining(&self, key: GenerationKey) -> bool {
        self.draining.read().unwrap_or_else(PoisonError::into_inner).contains(&key)
    }

    pub(crate) const fn structure(&self) -> &Structure {
        &self.structure
    }

    pub(crate) const fn options(&self) -> &Options {
        &self.options
    }

    /// Brings a generation's tree in.
    pub(crate) fn plant(&self, tree: Tree) -> Arc<Tree> {
        let tree = Arc::new(tree);
        self.trees.insert(tree.key(), Arc::clone(&tree));
        tree
    }

    /// Takes a generation's tree out.
    pub(crate) fn uproot(&self, key: GenerationKey) -> Option<Arc<Tree>> {
        self.trees.remove(&key).map(|(_, tree)| tree)
    }

    /// The generations that there are.
    pub(crate) fn keys(&self) -> Vec<GenerationKey> {
        self.trees.iter().map(|tree| *tree.key()).collect()
    }

    /// The tree of a generation.
    pub(crate) fn tree_of(&self, key: GenerationKey) -> Option<Arc<Tree>> {
        self.trees.get(&key).map(|tree| Arc::clone(&tree))
    }
}

impl std::fmt::Debug for Commons {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Commons")
            .field("generations", &self.trees.len())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
