//! Descriptors that reach inodes: those that must be held, and a few of directories that are kept
//! because they are asked for again and again.
//!
//! It must never hold a descriptor of an inode that the kernel has forgotten.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use quick_cache::sync::Cache;

/// Directories that are kept open at the most, whatever the budget.
const DIRECTORIES: usize = 512;

/// How long the kernel may not have been asked to forget, where that was asked for.
const ASKING: Duration = Duration::from_secs(2);

/// The descriptors of a table.
pub(super) struct Descriptors {
    held: DashMap<u64, Arc<OwnedFd>>,
    count: AtomicUsize,
    /// The order in which they came to be held; it may name some that are gone.
    order: Mutex<VecDeque<u64>>,
    directories: Cache<u64, Arc<OwnedFd>>,
    budget: usize,
    /// Whether a thread waits for descriptors to become free.
    waiting: Mutex<bool>,
    /// Whether the last wait was for nothing, and nothing has become free since: what is held is
    /// in use, and waiting doesn't help.
    fruitless: AtomicBool,
    /// How often the kernel was asked to forget.
    asked: AtomicUsize,
    freed: Condvar,
}

impl Descriptors {
    pub(super) fn new(budget: usize) -> Self {
        let directories = (budget / 4).clamp(16, DIRECTORIES);
        Self {
            held: DashMap::new(),
            count: AtomicUsize::new(0),
            order: Mutex::default(),
            directories: Cache::new(directories),
            budget: budget.saturating_sub(directories).max(16),
            waiting: Mutex::new(false),
            fruitless: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
            freed: Condvar::new(),
        }
    }

    pub(super) fn get(&self, node: u64) -> Option<Arc<OwnedFd>> {
        if let Some(held) = self.held.get(&node) {
            return Some(Arc::clone(&held));
        }
        self.directories.get(&node)
    }

    pub(super) fn hold(&self, node: u64, descriptor: OwnedFd) {
        self.hold_shared(node, Arc::new(descriptor));
    }

    pub(super) fn hold_shared(&self, node: u64, descriptor: Arc<OwnedFd>) {
        if self.held.insert(node, descriptor).is_none() {
            let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
            let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            order.push_back(node);
            // What was let go leaves its place behind; it is swept away before it weighs.
            if order.len() > 2 * count + 1024 {
                order.retain(|node| self.held.contains_key(node));
            }
        }
    }

    pub(super) fn keep_directory(&self, node: u64, descriptor: &Arc<OwnedFd>) {
        self.directories.insert(node, Arc::clone(descriptor));
    }

    pub(super) fn let_go(&self, node: u64) {
        if self.held.remove(&node).is_some() {
            let count = self.count.fetch_sub(1, Ordering::AcqRel);
            self.fruitless.store(false, Ordering::Release);
            if count == self.budget {
                self.wake();
            }
        }
        self.directories.remove(&node);
    }

    /// How many there are.
    pub(super) fn held(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether three quarters of the budget are used.
    pub(super) fn is_over_budget(&self) -> bool {
        self.count.load(Ordering::Acquire) >= self.budget / 4 * 3
    }

    /// Where the budget is used up, waits a little for a descriptor to become free. One thread at
    /// a time does: another one has to read what the kernel forgets.
    pub(super) fn wait_for_room(&self, limit: Duration) {
        if self.count.load(Ordering::Acquire) < self.budget
            || self.fruitless.load(Ordering::Acquire)
        {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if *waiting {
            return;
        }
        *waiting = true;
        let full = |_: &mut bool| self.count.load(Ordering::Acquire) >= self.budget;
        // First until the kernel has been asked at all, which a busy machine may delay, and then
        // for its answer, which comes by way of another thread.
        let before = self.count.load(Ordering::Acquire);
        let asked = self.asked.load(Ordering::Acquire);
        let unasked =
            |waiting: &mut bool| full(waiting) && self.asked.load(Ordering::Acquire) == asked;
        let (waiting, _) = self
            .freed
            .wait_timeout_while(waiting, ASKING, unasked)
            .unwrap_or_else(PoisonError::into_inner);
        let (mut waiting, waited) = self
            .freed
            .wait_timeout_while(waiting, limit, full)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && self.count.load(Ordering::Acquire) >= before {
            self.fruitless.store(true, Ordering::Release);
        }
        *waiting = false;
    }

    /// The kernel has been asked to forget.
    pub(super) fn was_asked(&self) {
        self.asked.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    /// Wakes who waits for room, who must not be between looking and sleeping.
    fn wake(&self) {
        drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.freed.notify_all();
    }

    /// The older half of what is held, where three quarters of the budget are used.
    pub(super) fn over_budget(&self) -> Option<Vec<u64>> {
        if !self.is_over_budget() {
            return None;
        }
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.retain(|node| self.held.contains_key(node));
        let half = order.len().div_ceil(2);
        let oldest: Vec<u64> = order.drain(..half).collect();
        // Those that turn out to be in use come to the end of the queue.
        order.extend(&oldest);
        Some(oldest)
    }
}

impl std::fmt::Debug for Descriptors {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Descriptors")
            .field("held", &self.held.len())
            .field("directories", &self.directories.len())
            .field("budget", &self.budget)
            .finish()
    }
}
