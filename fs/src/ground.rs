//! Directories of sessions, generations and leases, made and taken away in the filesystem.
//!
//! It must never decide when: that is the registry's to know. What the kernel still uses is not
//! taken away, whoever asks.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::param::page_size;

use crate::namespace::{Found, Gone, Ground, GroundError, Owner, Remains, Room, Stuck, Unclaimed};
use crate::node::{GenerationKey, Node};
use crate::reaper::Reaper;
use crate::registry::{LeaseId, Mode, SessionId, Usage};
use crate::store::{Limits, Ownership, Store, StoreError, Tree};
use crate::tempfs::{Commons, expect_unknown};

/// The ground of a namespace whose files are in a store.
#[derive(Debug)]
pub struct StoreGround {
    commons: Arc<Commons>,
    store: Arc<Store>,
    reaper: Reaper,
}

impl StoreGround {
    /// Ground on a filesystem and a store.
    ///
    /// # Errors
    /// Where the thread that discards can't be started.
    pub fn new(commons: Arc<Commons>, store: Arc<Store>) -> io::Result<Self> {
        commons.set_durable(store.is_durable());
        let reaper = Reaper::start(Arc::clone(&commons), Arc::clone(&store))?;
        Ok(Self { commons, store, reaper })
    }

    fn tree(&self, key: GenerationKey) -> Result<Arc<Tree>, GroundError> {
        self.commons.tree_of(key).ok_or(missing("finding the generation"))
    }

    fn session(&self, session: &SessionId) -> Result<Node, GroundError> {
        self.commons
            .structure()
            .child(Node::ROOT, OsStr::new(&session.to_string()))
            .ok_or(missing("finding the session"))
    }

    /// Has the kernel list a directory anew. It waits for nobody who could wait for the caller:
    /// what it takes are pages of the listing, for as long as one is copied.
    fn listing_changed(&self, directory: Node) {
        for connection in self.commons.connections() {
            if let Some(kernel) = connection.kernel().filter(|_| connection.may_doubt(directory)) {
                expect_unknown(kernel.invalidate(directory));
            }
        }
    }
}

impl Ground for StoreGround {
    fn holds_limits(&self) -> bool {
        self.store.holds_limits()
    }

    fn grain(&self) -> u64 {
        page_size() as u64
    }

    fn raise_session(&self, session: &SessionId, owner: Owner) -> Result<u64, GroundError> {
        let name = session.to_string();
        let ownership = ownership(owner, 0o700, 0o711);
        let node = self
            .commons
            .structure()
            .add_session(OsStr::new(&name), ownership)
            .ok_or(GroundError::Exhausted)?;
        self.listing_changed(Node::ROOT);
        Ok(node.raw())
    }

    fn raise_generation(
        &self,
        session: &SessionId,
        number: u32,
        key: GenerationKey,
        room: Room,
        owner: Owner,
    ) -> Result<u64, GroundError> {
        let session = self.session(session)?;
        let tree = self.store.make(key, limits(room), ownership(owner, 0o700, 0o1777))?;
        let root = tree.root_node();
        self.commons.plant(tree);
        if !self.commons.structure().add_generation(session, number, root) {
            self.commons.uproot(key);
            return Err(missing("finding the session"));
        }
        self.listing_changed(session);
        Ok(root.raw())
    }

    fn raise_lease(
        &self,
        key: GenerationKey,
        lease: &LeaseId,
        owner: Owner,
    ) -> Result<u64, GroundError> {
        let tree = self.tree(key)?;
        let name = lease.to_string();
        let made = tree.make_directory(&name, ownership(owner, 0o700, 0o1777));
        let node = made.map_err(|error| match error {
            StoreError::Refused { errno: Errno::NOSPC, .. } if tree.has_no_inodes() => {
                GroundError::OutOfInodes
            }
            error => error.into(),
        })?;
        self.commons.structure().protect(node, tree.root_node());
        // Nobody can have asked for the name before it was drawn, so the kernel doesn't take it
        // for missing; and it is never told anything about names in a live generation.
        self.listing_changed(tree.root_node());
        Ok(node.raw())
    }

    fn take_back_lease(&self, key: GenerationKey, lease: &LeaseId) {
        let _ = self.end_lease(key, lease);
        let removed = self.tree(key).map(|tree| tree.remove_directory(&lease.to_string()));
        if let Ok(Err(error)) = removed {
            tracing::warn!(%lease, %error, "a directory stays that nobody was given");
        }
    }

    fn restore_session(
        &self,
        session: &SessionId,
        owner: Owner,
        inode: u64,
    ) -> Result<(), GroundError> {
        let (name, ownership) = (session.to_string(), ownership(owner, 0o700, 0o711));
        let node = Node::from_raw(inode);
        if self.commons.structure().restore_session(OsStr::new(&name), ownership, node) {
            Ok(())
        } else {
            Err(GroundError::Refused { step: "numbering the session", errno: Errno::EXIST })
        }
    }

    fn restore_generation(
        &self,
        session: &SessionId,
        number: u32,
        key: GenerationKey,
        inode: u64,
    ) -> Result<Found, GroundError> {
        let session = self.session(session)?;
        let Some(tree) = self.store.open(key)? else {
            return Ok(Found::Missing("its directory isn't there"));
        };
        let root = tree.root_node();
        if root.raw() != inode {
            return Ok(Found::Missing("another directory is in its place"));
        }
        self.commons.plant(tree);
        self.commons.structure().add_generation(session, number, root);
        Ok(Found::Whole)
    }

    fn restore_lease(
        &self,
        key: GenerationKey,
        lease: &LeaseId,
        inode: u64,
    ) -> Result<Found, GroundError> {
        let tree = self.tree(key)?;
        match tree.directory_node(&lease.to_string()) {
            Ok(node) if node.raw() == inode => {
                self.commons.structure().protect(node, tree.root_node());
                Ok(Found::Whole)
            }
            Ok(_) => Ok(Found::Missing("something else is in the place of its directory")),
            Err(StoreError::Refused { errno: Errno::NOENT, .. }) => {
                Ok(Found::Missing("its directory isn't there"))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn end_lease(&self, key: GenerationKey, lease: &LeaseId) -> Option<u64> {
        let node = self.commons.tree_of(key)?.directory_node(&lease.to_string()).ok()?;
        self.commons.structure().release(node);
        Some(node.raw())
    }

    fn drain(&self, key: GenerationKey, gone: Gone, stuck: Stuck) {
        self.reaper.drain(key, gone, stuck);
    }

    fn lower_session(&self, session: &SessionId) {
        let Ok(node) = self.session(session) else { return };
        self.commons.structure().remove_child(Node::ROOT, node);
        self.listing_changed(Node::ROOT);
        if self.commons.knows(node) {
            self.reaper.lower(node, OsStr::new(&session.to_string()));
        } else {
            self.commons.structure().forget(node);
        }
    }

    fn resize(&self, key: GenerationKey, room: Room) -> Result<(), GroundError> {
        match self.commons.tree_of(key) {
            Some(tree) => Ok(self.store.resize(&tree, limits(room))?),
            None => Ok(()),
        }
    }

    fn used(&self, key: GenerationKey) -> Result<Usage, GroundError> {
        match self.commons.tree_of(key) {
            Some(tree) => Ok(tree.used()?),
            None => Ok(Usage::default()),
        }
    }

    fn is_written(&self, key: GenerationKey, take_note: bool) -> bool {
        self.commons.tree_of(key).is_some_and(|tree| tree.is_written(take_note))
    }

    fn sweep_lease(
        &self,
        key: GenerationKey,
        lease: &LeaseId,
        inode: u64,
        sweep: bool,
    ) -> Result<Remains, GroundError> {
        let (name, node) = (lease.to_string(), Node::from_raw(inode));
        self.reaper.sweep(key, name, node, sweep)
    }

    fn unclaimed(
        &self,
        first: GenerationKey,
        claimed: &dyn Fn(GenerationKey) -> bool,
    ) -> Result<Vec<Unclaimed>, GroundError> {
        let mut unclaimed = Vec::new();
        for key in self.store.keys()?.into_iter().filter(|key| *key < first && !claimed(*key)) {
            if let Some((uid, usage)) = self.store.look(key)? {
                unclaimed.push(Unclaimed { key, uid, usage });
            }
        }
        Ok(unclaimed)
    }

    fn sweep_generation(&self, key: GenerationKey) -> Result<(), GroundError> {
        Ok(self.store.discard(key)?)
    }
}

const fn missing(step: &'static str) -> GroundError {
    GroundError::Refused { step, errno: Errno::NOENT }
}

const fn limits(room: Room) -> Limits {
    Limits { size: room.size, inodes: room.inodes }
}

const fn ownership(owner: Owner, private: u16, shared: u16) -> Ownership {
    let permissions = match owner.mode {
        Mode::Private => private,
        Mode::Shared => shared,
    };
    Ownership { uid: owner.uid, gid: owner.gid, permissions }
}

impl From<StoreError> for GroundError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused { errno: Errno::NOSPC, .. } => Self::Full,
            StoreError::Refused { errno: Errno::MFILE | Errno::NFILE, .. } => Self::Exhausted,
            StoreError::Refused { step, errno } => Self::Refused { step, errno },
            StoreError::Unfit => Self::Unfit,
            StoreError::NoLimits => Self::NO_LIMITS,
            StoreError::InodeTooLarge(_) => Self::NotSupported("inode numbers of this size"),
        }
    }
}
