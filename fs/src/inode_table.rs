//! The inodes that the kernel knows: how to reach each of them, how often it was looked up, what
//! of it is open.
//!
//! It must never touch the filesystem beyond opening what a record names, and never give up a
//! record that the kernel still counts on: a look-up is counted before it is answered.

mod descriptors;
mod record;
mod sys;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::{DashMap, Entry};
use rustix::fs::OFlags;
use rustix::io::Errno;

use self::descriptors::Descriptors;
use self::record::Record;
use self::sys::Mapping;
use crate::error::Error;
use crate::node::{GenerationKey, Node};
use crate::sys::{FileHandle, open_by_handle};

/// Files that stay registered for passthrough although nobody has them open.
const IDLE_BACKINGS: usize = 512;

/// What reaches an inode that was just looked up.
#[derive(Debug)]
pub(crate) enum Reach {
    /// A handle: costs no descriptor.
    Handle(FileHandle),
    /// A descriptor, where handles are refused to this process.
    Descriptor(OwnedFd),
}

/// How a file is open for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// What the release of this open must bring along.
    pub(crate) incarnation: u32,
    /// The registered file, or `None` for data through the page cache.
    pub(crate) backing: Option<u32>,
}

/// The records of all inodes.
///
/// Lock order: a shard of `index`, then the descriptors', `idle` or `free`. No lock is held over a call into the kernel's FUSE client except a shard of `index` while one file is
/// registered for passthrough, which the kernel answers without asking this filesystem.
#[derive(Debug)]
pub(crate) struct InodeTable {
    index: DashMap<u64, u32>,
    descriptors: Descriptors,
    mapping: Mapping,
    free: Mutex<Free>,
    incarnations: AtomicU32,
    idle: Mutex<VecDeque<u64>>,
}

/// What a last release finds.
enum Last {
    /// The inode has no name any more.
    Unlinked,
    /// It waits among the idle ones since an earlier release.
    Queued,
    /// It is idle from now on.
    Idle,
}

/// Places of the mapping that are not in use.
#[derive(Debug, Default)]
struct Free {
    returned: Vec<u32>,
    untouched: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InodeTable {
    /// An empty file that [`InodeTable::new`] can keep its records in.
    pub(crate) fn file() -> Result<OwnedFd, Errno> {
        Mapping::file()
    }

    /// A table whose records live in a file that it is given, and that holds no more than about
    /// `budget` descriptors of its own.
    pub(crate) fn new(records: impl AsFd, budget: usize) -> Result<Self, Errno> {
        Ok(Self {
            index: DashMap::new(),
            descriptors: Descriptors::new(budget),
            mapping: Mapping::new(records)?,
            free: Mutex::default(),
            incarnations: AtomicU32::new(1),
            idle: Mutex::default(),
        })
    }

    /// Whether there is a record of a node.
    pub(crate) fn knows(&self, node: Node) -> bool {
        self.index.contains_key(&node.raw())
    }

    /// Counts one look-up of a node that has a record; `false` where it has none.
    pub(crate) fn remember_again(&self, node: Node) -> bool {
        self.index.get(&node.raw()).is_some_and(|place| {
            self.mapping.record(*place).lookups.fetch_add(1, Ordering::AcqRel);
            true
        })
    }

    /// Counts one look-up of a node, making its record where it has none.
    pub(crate) fn remember(
        &self,
        node: Node,
        directory: bool,
        reach: impl FnOnce() -> Result<Option<Reach>, Errno>,
    ) -> Result<(), Errno> {
        match self.index.entry(node.raw()) {
            Entry::Occupied(entry) => {
                self.mapping.record(*entry.get()).lookups.fetch_add(1, Ordering::AcqRel);
            }
            Entry::Vacant(entry) => {
                let (handle, descriptor) = match reach()? {
                    None => (None, None),
                    Some(Reach::Handle(handle)) => (Some(handle), None),
                    Some(Reach::Descriptor(descriptor)) => (None, Some(descriptor)),
                };
                let place = self.allocate()?;
                if let Some(descriptor) = descriptor {
                    self.descriptors.hold(node.raw(), descriptor);
                }
                let record = self.mapping.record(place);
                let incarnation = self.incarnations.fetch_add(1, Ordering::Relaxed);
                record.fill(handle.as_ref(), directory, incarnation);
                record.lookups.store(1, Ordering::Relaxed);
                record.node.store(node.raw(), Ordering::Release);
                entry.insert(place);
            }
        }
        Ok(())
    }

    fn allocate(&self) -> Result<u32, Errno> {
        let mut free = lock(&self.free);
        if let Some(place) = free.returned.pop() {
            return Ok(place);
        }
        let place = free.untouched;
        if place == self.mapping.capacity() {
            return Err(Errno::NFILE);
        }
        free.untouched += 1;
        Ok(place)
    }

    /// Takes `count` look-ups back. The last one frees the record; the registered file that must
    /// then be closed is returned.
    pub(crate) fn forget(&self, node: Node, count: u64) -> Option<u32> {
        let Entry::Occupied(entry) = self.index.entry(node.raw()) else { return None };
        let place = *entry.get();
        let record = self.mapping.record(place);
        let lookups = record.lookups.load(Ordering::Acquire).saturating_sub(count);
        record.lookups.store(lookups, Ordering::Release);
        if lookups > 0 {
            return None;
        }
        record.node.store(0, Ordering::Release);
        let backing = record.backing.swap(0, Ordering::AcqRel);
        self.descriptors.let_go(node.raw());
        entry.remove();
        lock(&self.free).returned.push(place);
        (backing != 0).then_some(backing)
    }

    fn with<T>(&self, node: Node, look: impl FnOnce(&Record) -> T) -> Result<T, Error> {
        let place = self.index.get(&node.raw()).ok_or(Error::Forgotten)?;
        Ok(look(self.mapping.record(*place)))
    }

    /// A descriptor that names the inode and does nothing else (`O_PATH`).
    pub(crate) fn path(&self, node: Node, mount: BorrowedFd<'_>) -> Result<Arc<OwnedFd>, Error> {
        if let Some(descriptor) = self.descriptors.get(node.raw()) {
            return Ok(descriptor);
        }
        let (handle, directory) =
            self.with(node, |record| (record.handle(), record.is_directory()))?;
        let handle = handle.ok_or(Error::Forgotten)?;
        let descriptor = Arc::new(open_by_handle(mount, &handle, OFlags::PATH | OFlags::NOFOLLOW)?);
        // Under the shard's lock, which orders it against a forget: what is kept after that would
        // keep a generation for good.
        if directory && let Some(_known) = self.index.get(&node.raw()) {
            self.descriptors.keep_directory(node.raw(), &descriptor);
        }
        Ok(descriptor)
    }

    /// A descriptor of the inode with other flags, where handles are to be had.
    pub(crate) fn open(
        &self,
        node: Node,
        mount: BorrowedFd<'_>,
        flags: OFlags,
    ) -> Result<Option<OwnedFd>, Error> {
        match self.with(node, Record::handle)? {
            None => Ok(None),
            Some(handle) => Ok(Some(open_by_handle(mount, &handle, flags)?)),
        }
    }

    /// Keeps an inode alive that is about to lose its last name, or has just lost it: the kernel
    /// may still ask for it until it has forgotten it.
    pub(crate) fn keep_unlinked(&self, node: Node, descriptor: Arc<OwnedFd>) {
        // The shard's lock orders this against a forget, which must find what it has to let go.
        if let Some(place) = self.index.get(&node.raw()) {
            self.mapping.record(*place).set_unlinked();
            self.descriptors.hold_shared(node.raw(), descriptor);
        }
    }

    /// Whether the inode has lost its last name.
    pub(crate) fn is_unlinked(&self, node: Node) -> bool {
        self.with(node, Record::is_unlinked).unwrap_or(false)
    }

    /// Counts one open. An inode that has no registered file needs one: `file` is then given to
    /// `register`, and where that has none to offer, data goes through the page cache, for this
    /// and every other open of the inode meanwhile. Without a `file`, `None` says that one is
    /// needed, and nothing is counted.
    pub(crate) fn opened(
        &self,
        node: Node,
        file: Option<BorrowedFd<'_>>,
        register: impl FnOnce(BorrowedFd<'_>) -> Option<u32>,
    ) -> Result<Option<Opened>, Error> {
        let entry = self.index.get_mut(&node.raw()).ok_or(Error::Forgotten)?;
        let record = self.mapping.record(*entry);
        let backing = match (record.backing.load(Ordering::Acquire), file) {
            (0, _) if record.opens.load(Ordering::Acquire) > 0 && record.is_cached() => None,
            (0, None) => return Ok(None),
            (0, Some(file)) => {
                let backing = register(file);
                record.backing.store(backing.unwrap_or(0), Ordering::Release);
                record.set_cached(backing.is_none());
                backing
            }
            (backing, _) => Some(backing),
        };
        record.opens.fetch_add(1, Ordering::AcqRel);
        Ok(Some(Opened { incarnation: record.incarnation.load(Ordering::Relaxed), backing }))
    }

    /// Takes an open back. The registered files that are to be closed are returned: they are those
    /// that nobody has open and that were idle longest.
    pub(crate) fn released(&self, node: Node, incarnation: u32) -> Option<u32> {
        let last = {
            let entry = self.index.get_mut(&node.raw())?;
            let record = self.mapping.record(*entry);
            // A release can arrive after its inode was forgotten and looked up anew.
            if record.incarnation.load(Ordering::Relaxed) != incarnation {
                return None;
            }
            let opens = record.opens.load(Ordering::Acquire).saturating_sub(1);
            record.opens.store(opens, Ordering::Release);
            if opens > 0 || record.backing.load(Ordering::Acquire) == 0 {
                return None;
            }
            if record.is_unlinked() {
                Last::Unlinked
            } else if record.set_queued(true) {
                Last::Queued
            } else {
                Last::Idle
            }
        };
        match last {
            Last::Unlinked => return self.take_idle_backing(node.raw()),
            Last::Queued => return None,
            Last::Idle => {}
        }
        let longest = {
            let mut idle = lock(&self.idle);
            idle.push_back(node.raw());
            if idle.len() > IDLE_BACKINGS { idle.pop_front() } else { None }
        };
        self.take_idle_backing(longest?)
    }

    /// The registered file of an inode that nobody has open, no longer the inode's.
    fn take_idle_backing(&self, node: u64) -> Option<u32> {
        let entry = self.index.get_mut(&node)?;
        let record = self.mapping.record(*entry);
        record.set_queued(false);
        if record.opens.load(Ordering::Acquire) > 0 {
            return None;
        }
        let backing = record.backing.swap(0, Ordering::AcqRel);
        (backing != 0).then_some(backing)
    }

    /// Like [`InodeTable::released`] without a release: for an inode that has just lost its last
    /// name, whose space shall be free.
    pub(crate) fn close_if_idle(&self, node: Node) -> Option<u32> {
        self.take_idle_backing(node.raw())
    }

    /// How many opens of an inode there are.
    pub(crate) fn opens(&self, node: Node) -> u32 {
        self.with(node, |record| record.opens.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Adds to each of these generations the nodes of it that the kernel knows.
    pub(crate) fn sort_nodes(&self, generations: &mut BTreeMap<GenerationKey, Vec<Node>>) {
        for entry in &self.index {
            let node = Node::from_raw(*entry.key());
            if let Some(nodes) = generations.get_mut(&node.generation()) {
                nodes.push(node);
            }
        }
    }

    /// Whether the kernel knows anything of a generation.
    pub(crate) fn knows_any_of(&self, generation: GenerationKey) -> bool {
        self.index.iter().any(|entry| Node::from_raw(*entry.key()).generation() == generation)
    }

    /// The directories above the generations that the kernel knows.
    pub(crate) fn structural(&self) -> Vec<Node> {
        let nodes = self.index.iter().map(|entry| Node::from_raw(*entry.key()));
        nodes.filter(|node| node.is_above_generations()).collect()
    }

    /// Every inode that the kernel knows.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.index.iter().map(|entry| Node::from_raw(*entry.key())).collect()
    }

    /// Descriptors that are held.
    pub(crate) fn held(&self) -> usize {
        self.descriptors.held()
    }

    /// Whether so many descriptors are held that some should go.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.descriptors.is_over_budget()
    }

    /// The kernel has been asked to forget inodes whose descriptors are held.
    pub(crate) fn was_asked_to_forget(&self) {
        self.descriptors.was_asked();
    }

    /// Where no more descriptors should be held, waits a little until some are let go.
    pub(crate) fn wait_for_room(&self, limit: Duration) {
        self.descriptors.wait_for_room(limit);
    }

    /// Nodes whose descriptors are held longest, if there are so many that some should go.
    pub(crate) fn over_budget(&self) -> Option<Vec<Node>> {
        Some(self.descriptors.over_budget()?.into_iter().map(Node::from_raw).collect())
    }

    /// Records in use.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }
}

#[cfg(test)]
mod tests;
