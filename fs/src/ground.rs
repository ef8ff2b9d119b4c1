//! Directories of sessions, generations and leases, made and taken away in the filesystem.
//!
//! It must never decide when: that is the registry's to know. What the kernel still uses is not
//! taken away, whoever asks.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::io::Errno;
use thiserror::Error;

use crate::node::{GenerationKey, Node};
use crate::reaper::Reaper;
use crate::store::{Limits, Ownership, Room, Store, StoreError, Tree};
use crate::tempfs::TempFs;

/// Why a directory could not be made.
#[derive(Debug, Error)]
pub enum GroundError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session or generation isn't there.
    #[error("no such directory")]
    Missing,
    /// There is no number left for one more.
    #[error("no number is left")]
    Exhausted,
}

/// The directories that the namespace stands on.
#[derive(Debug)]
pub struct Ground {
    fs: Arc<TempFs>,
    store: Arc<Store>,
    reaper: Reaper,
}

impl Ground {
    /// Ground on a filesystem and a store. `drained` is told, on the reaper's thread, when a
    /// generation is gone.
    ///
    /// # Errors
    /// Where the reaper's thread can't be started.
    pub fn new(
        fs: Arc<TempFs>,
        store: Arc<Store>,
        drained: Box<dyn Fn(GenerationKey) + Send>,
    ) -> std::io::Result<Self> {
        let reaper = Reaper::start(Arc::clone(&fs), Arc::clone(&store), drained)?;
        Ok(Self { fs, store, reaper })
    }

    /// Makes the directory of a session.
    ///
    /// # Errors
    /// Where no number is left for it.
    pub fn raise_session(&self, id: &str, ownership: Ownership) -> Result<Node, GroundError> {
        let node = self
            .fs
            .structure()
            .add_session(OsStr::new(id), ownership)
            .ok_or(GroundError::Exhausted)?;
        self.listing_changed(Node::ROOT);
        Ok(node)
    }

    /// Makes a generation of a session.
    ///
    /// # Errors
    /// Where the store refuses.
    pub fn raise_generation(
        &self,
        session: &str,
        number: u32,
        key: GenerationKey,
        limits: Limits,
        ownership: Ownership,
    ) -> Result<Node, GroundError> {
        let session = self.session(session)?;
        let tree = self.store.make(key, limits, ownership)?;
        let root = tree.root_node();
        self.fs.plant(tree);
        if !self.fs.structure().add_generation(session, number, root) {
            self.fs.uproot(key);
            return Err(GroundError::Missing);
        }
        self.listing_changed(session);
        Ok(root)
    }

    /// Makes the directory of a private lease.
    ///
    /// # Errors
    /// Where the store refuses.
    pub fn raise_lease(
        &self,
        key: GenerationKey,
        id: &str,
        ownership: Ownership,
    ) -> Result<Node, GroundError> {
        let tree = self.tree(key)?;
        let node = tree.make_directory(id, ownership)?;
        self.fs.structure().protect(node, tree.root_node());
        // The store has the name, and the kernel may remember that it wasn't there.
        if let Some(kernel) = self.fs.kernel() {
            expect_unknown(kernel.invalidate_name(tree.root_node(), OsStr::new(id)));
        }
        self.listing_changed(tree.root_node());
        Ok(node)
    }

    /// Ends a private lease: its directory is one like any other from now on, and goes with its
    /// generation.
    pub fn end_lease(&self, lease: Node) {
        self.fs.structure().release(lease);
    }

    /// The node of a generation's directory.
    #[must_use]
    pub fn root_of(&self, key: GenerationKey) -> Option<Node> {
        Some(self.fs.tree_of(key)?.root_node())
    }

    /// Takes a generation away as soon as the kernel uses nothing in it. Doesn't wait for it.
    pub fn drain(&self, key: GenerationKey) {
        self.reaper.drain(key);
    }

    /// Takes the directory of a session away that has no generation left.
    ///
    /// # Errors
    /// Where there is no such session.
    pub fn lower_session(&self, id: &str) -> Result<(), GroundError> {
        let node = self.session(id)?;
        let known = self.fs.table().knows(node);
        self.fs.structure().remove_child(Node::ROOT, node, known);
        self.listing_changed(Node::ROOT);
        if known {
            self.reaper.lower(node, OsStr::new(id));
        }
        Ok(())
    }

    /// Gives a generation other limits.
    ///
    /// # Errors
    /// Where the store refuses.
    pub fn resize(&self, key: GenerationKey, limits: Limits) -> Result<(), GroundError> {
        Ok(self.store.resize(&*self.tree(key)?, limits)?)
    }

    /// What a generation uses.
    ///
    /// # Errors
    /// Where the store doesn't tell.
    pub fn room(&self, key: GenerationKey) -> Result<Room, GroundError> {
        Ok(self.tree(key)?.room()?)
    }

    fn tree(&self, key: GenerationKey) -> Result<Arc<Tree>, GroundError> {
        self.fs.tree_of(key).ok_or(GroundError::Missing)
    }

    fn session(&self, id: &str) -> Result<Node, GroundError> {
        self.fs.structure().child(Node::ROOT, OsStr::new(id)).ok_or(GroundError::Missing)
    }

    fn listing_changed(&self, directory: Node) {
        if let Some(kernel) = self.fs.kernel() {
            expect_unknown(kernel.invalidate_listing(directory));
        }
    }
}

/// The kernel answers `ENOENT` for what it doesn't know, which is as good.
pub(crate) fn expect_unknown(result: Result<(), Errno>) {
    match result {
        Ok(()) | Err(Errno::NOENT | Errno::NOTCONN | Errno::NODEV) => {}
        Err(errno) => tracing::warn!(%errno, "the kernel keeps a directory as it was"),
    }
}
