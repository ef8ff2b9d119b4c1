//! Takes away what is left of a lease that has ended, in a generation that lives on.
//!
//! It must never have the kernel forget anything that isn't in that lease's directory, and never
//! take away a directory that the kernel knows anything of.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::io::Errno;

use super::{ROUNDS, Work};
use crate::namespace::{GroundError, Remains};
use crate::node::{GenerationKey, Node};
use crate::store::{Survey, Tree};
use crate::tempfs::expect_unknown;

/// How often it is waited for a forget that concerns the lease: others that work in the generation
/// have the kernel forget something all the time.
const WAITS: usize = 8;

/// Where the answer goes.
pub(super) type Answer = Sender<Result<Remains, GroundError>>;

/// A lease that has ended, and what is asked about it.
pub(super) struct Job {
    key: GenerationKey,
    name: String,
    node: Node,
    sweep: bool,
    answer: Answer,
}

impl Job {
    pub(super) fn new(
        key: GenerationKey,
        name: String,
        node: Node,
        sweep: bool,
    ) -> (Self, Receiver<Result<Remains, GroundError>>) {
        let (answer, answered) = channel();
        (Self { key, name, node, sweep, answer }, answered)
    }
}

impl Work {
    pub(super) fn sweep(&self, job: Job) {
        let Job { key, name, node, sweep, answer } = job;
        let remains = match self.commons.tree_of(key) {
            Some(tree) if !self.draining.contains_key(&key) => {
                match self.remains(&tree, &name, node, sweep) {
                    Ok(Remains::Swept(usage)) => {
                        self.discarder.discard_aside(tree, name, usage, answer);
                        return;
                    }
                    remains => remains,
                }
            }
            // It goes with its generation.
            Some(_) | None => Ok(Remains::Nothing),
        };
        // Whoever asked may have left.
        let _ = answer.send(remains);
    }

    /// What is left of a lease. Where it is to be swept and nobody uses it, it is set aside.
    fn remains(
        &self,
        tree: &Arc<Tree>,
        name: &str,
        node: Node,
        sweep: bool,
    ) -> Result<Remains, GroundError> {
        let looking = |errno: Errno| GroundError::Refused { step: "looking at the lease", errno };
        let Some(directory) = tree.open_directory(name, node).map_err(looking)? else {
            return Ok(Remains::Nothing);
        };
        let mut nodes = HashSet::from([node]);
        let survey = Survey::of(directory, |inode| nodes.extend(tree.node(inode)));
        let Survey { mut usage, whole } = survey.map_err(looking)?;
        usage.inodes += 1;
        self.commons.watch_forgets(tree.key(), true);
        let used = !whole || self.is_used(tree, &nodes);
        self.commons.watch_forgets(tree.key(), false);
        if used {
            return Ok(Remains::InUse(usage));
        }
        if !sweep {
            return Ok(Remains::Unused(usage));
        }
        tree.set_aside(name)?;
        // Someone may have walked in between the last look and the removal of the name.
        self.desk.wait_for_forget();
        if self.known_of(&nodes).is_empty() {
            for connection in self.commons.connections() {
                if let Some(kernel) = connection.kernel() {
                    expect_unknown(kernel.invalidate(tree.root_node()));
                }
            }
            return Ok(Remains::Swept(usage));
        }
        tree.put_back(name)?;
        let root = tree.root_node();
        if tree.absent().take(root, OsStr::new(name)) {
            // The kernel was told that it isn't there, so nothing can be mounted on it.
            for connection in self.commons.connections() {
                if let Some(kernel) = connection.kernel() {
                    expect_unknown(kernel.invalidate_name(root, OsStr::new(name)));
                }
            }
        }
        Ok(Remains::InUse(usage))
    }

    /// Whether the kernel uses any of these inodes: it still knows some after it was asked to forget
    /// what it doesn't use. Directories can go only after what is in them.
    fn is_used(&self, tree: &Tree, nodes: &HashSet<Node>) -> bool {
        let absences = tree.absent().take_below(nodes);
        for connection in self.commons.connections() {
            if let Some(kernel) = connection.kernel() {
                connection.forget_absences(kernel, tree, &absences);
            }
        }
        for _ in 0..ROUNDS {
            let known = self.known_of(nodes);
            if known.is_empty() {
                return false;
            }
            let mut asked = false;
            for connection in self.commons.connections() {
                let there: Vec<Node> =
                    known.iter().copied().filter(|node| connection.table().knows(*node)).collect();
                asked |= connection.kernel().is_some_and(|kernel| kernel.prune(&there).is_ok());
            }
            let mut waits = 0;
            while asked && self.known_of(nodes).len() == known.len() && waits < WAITS {
                self.desk.wait_for_forget();
                waits += 1;
            }
            if self.known_of(nodes).len() == known.len() {
                return true;
            }
        }
        true
    }

    fn known_of(&self, nodes: &HashSet<Node>) -> Vec<Node> {
        nodes.iter().copied().filter(|node| self.commons.knows(*node)).collect()
    }
}
