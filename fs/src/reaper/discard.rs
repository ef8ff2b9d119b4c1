//! A thread that discards the trees of generations that are gone: it takes as long as they are
//! large, and nobody waits for it but those who want to know that the room is back.
//!
//! It must never be given a tree that the kernel still uses.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::sweep::Answer;
use crate::namespace::{Blockage, Gone, GroundError, Remains, Stuck};
use crate::node::GenerationKey;
use crate::registry::Usage;
use crate::store::{Store, Tree};

/// How long to wait before what could not be removed is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// What is to go, and whom to tell.
enum Discarded {
    /// A tree.
    Tree(Arc<Tree>, Gone, Stuck),
    /// A directory of that name that was set aside, and what is in it.
    Aside(Arc<Tree>, String, Usage, Answer),
}

/// The thread. It does what it was given before it ends with this value.
pub(super) struct Discarder {
    work: Option<Sender<Discarded>>,
    thread: Option<JoinHandle<()>>,
}

impl Discarder {
    pub(super) fn start(store: Arc<Store>) -> io::Result<Self> {
        let (work, given) = channel();
        let thread =
            thread::Builder::new().name("discard".into()).spawn(move || run(&store, &given))?;
        Ok(Self { work: Some(work), thread: Some(thread) })
    }

    /// Discards a tree, then says that it is gone.
    pub(super) fn discard(&self, tree: Arc<Tree>, gone: Gone, stuck: Stuck) {
        self.send(Discarded::Tree(tree, gone, stuck));
    }

    /// Removes what was set aside in a tree, then answers.
    pub(super) fn discard_aside(
        &self,
        tree: Arc<Tree>,
        name: String,
        usage: Usage,
        answer: Answer,
    ) {
        self.send(Discarded::Aside(tree, name, usage, answer));
    }

    fn send(&self, discarded: Discarded) {
        if let Some(work) = &self.work
            && work.send(discarded).is_err()
        {
            tracing::error!("nobody discards generations any more");
        }
    }
}

impl Drop for Discarder {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("what discards generations has panicked");
        }
    }
}

fn run(store: &Store, given: &Receiver<Discarded>) {
    let mut left = BTreeSet::new();
    loop {
        let next = if left.is_empty() {
            given.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            given.recv_timeout(AGAIN)
        };
        match next {
            Ok(Discarded::Aside(tree, name, usage, answer)) => {
                let removed = tree.discard_aside(&name).map_err(GroundError::from);
                // Whoever asked may have left.
                let _ = answer.send(removed.map(|()| Remains::Swept(usage)));
            }
            Ok(Discarded::Tree(tree, gone, stuck)) => {
                let key = tree.key();
                // Of a tree in memory, this is all there is to do.
                drop(tree);
                if let Err(error) = store.discard(key) {
                    tracing::error!(generation = key.get(), %error, "files are left, for now");
                    left.insert(key);
                    stuck(Blockage::Refused(error.to_string()));
                }
                gone();
            }
            Err(RecvTimeoutError::Timeout) => retry(store, &mut left),
            Err(RecvTimeoutError::Disconnected) => return retry(store, &mut left),
        }
    }
}

fn retry(store: &Store, left: &mut BTreeSet<GenerationKey>) {
    left.retain(|key| match store.discard(*key) {
        Ok(()) => {
            tracing::info!(generation = key.get(), "files that were left are gone");
            false
        }
        Err(error) => {
            tracing::debug!(generation = key.get(), %error, "files are still left");
            true
        }
    });
}
