//! The directories that the daemon alone makes or removes: the root, a session's, a generation's,
//! a private lease's.
//!
//! It must never hold files: what is below a generation's directory belongs to its store.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dashmap::DashMap;
use rustix::fs::FileType;

use crate::attributes::{Attributes, FileTime};
use crate::clock::WallClock;
use crate::node::{GenerationKey, Node};
use crate::store::Ownership;

/// Permissions of the root: like `/tmp`, so that everyone is told by the directories themselves
/// what can't be done to them.
const ROOT_PERMISSIONS: u16 = 0o1777;

/// Offsets of a listing that `.` and `..` take.
pub(crate) const BEFORE_CHILDREN: u64 = 2;

/// How many children are told at once. Who wants more asks again, and a long listing that is read
/// piece by piece isn't made anew for each.
const MOST_CHILDREN: usize = 512;

/// What the kernel accounts for a directory's size.
const SIZE: u64 = 4096;

/// A directory above the generations.
#[derive(Debug)]
struct Directory {
    parent: Node,
    /// Its name is gone, but the kernel still knows it.
    removed: bool,
    ownership: Ownership,
    accessed: FileTime,
    modified: FileTime,
    changed: FileTime,
    /// Children by the offset that a listing goes on from behind them.
    children: BTreeMap<u64, (OsString, Node)>,
    offsets: HashMap<OsString, u64>,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) node: Node,
    pub(crate) name: OsString,
    pub(crate) offset: u64,
}

/// Where a structural directory stands, in the words of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name of the session that it is, or that it is in.
    pub(crate) session: String,
    /// The owner of that session's directory.
    pub(crate) owner: u32,
    /// Its own name, where it is a private lease's.
    pub(crate) lease: Option<String>,
    /// The path below the root.
    pub(crate) path: String,
}

/// All structural directories.
///
/// Lock order: `above` alone; nothing else is locked and no system call is made under it.
#[derive(Debug)]
pub(crate) struct Structure {
    above: RwLock<Above>,
    /// Structural directories within stores, generations' own and private leases', each with the
    /// directory that it is in.
    within: DashMap<Node, Node>,
    clock: Arc<dyn WallClock>,
}

#[derive(Debug)]
struct Above {
    directories: BTreeMap<Node, Directory>,
    next: u64,
}

impl Structure {
    /// A namespace that has only its root.
    pub(crate) fn new(uid: u32, gid: u32, clock: Arc<dyn WallClock>) -> Self {
        let ownership = Ownership { uid, gid, permissions: ROOT_PERMISSIONS };
        let root = Directory::new(Node::ROOT, ownership, clock.wall());
        Self {
            above: RwLock::new(Above {
                directories: BTreeMap::from([(Node::ROOT, root)]),
                next: Node::ROOT.raw() + 1,
            }),
            within: DashMap::new(),
            clock,
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Above> {
        self.above.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Above> {
        self.above.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a session's directory.
    pub(crate) fn add_session(&self, name: &OsStr, ownership: Ownership) -> Option<Node> {
        let now = self.clock.wall();
        let mut above = self.write();
        let number = above.next;
        let node = Node::new(GenerationKey::STRUCTURE, number)?;
        above.next += 1;
        let session = Directory::new(Node::ROOT, ownership, now);
        above.directories.insert(node, session);
        let root = above.directories.get_mut(&Node::ROOT)?;
        root.insert(number, name.to_owned(), node, now);
        Some(node)
    }

    /// Makes a session's directory again under the number that it had; whether it is free.
    pub(crate) fn restore_session(&self, name: &OsStr, ownership: Ownership, node: Node) -> bool {
        let now = self.clock.wall();
        let mut above = self.write();
        let number = node.inode();
        if !node.is_above_generations() || above.directories.contains_key(&node) {
            return false;
        }
        above.next = above.next.max(number + 1);
        above.directories.insert(node, Directory::new(Node::ROOT, ownership, now));
        let Some(root) = above.directories.get_mut(&Node::ROOT) else { return false };
        root.insert(number, name.to_owned(), node, now);
        true
    }

    /// Hangs a generation's directory, which is in its store, below a session's.
    pub(crate) fn add_generation(&self, session: Node, number: u32, root: Node) -> bool {
        let now = self.clock.wall();
        let mut above = self.write();
        let Some(directory) = above.directories.get_mut(&session) else { return false };
        directory.insert(u64::from(number), number.to_string().into(), root, now);
        self.within.insert(root, session);
        true
    }

    /// Takes a child away from a directory. A session's directory goes on telling its attributes,
    /// without a name, until it is forgotten.
    pub(crate) fn remove_child(&self, parent: Node, child: Node) -> bool {
        let now = self.clock.wall();
        let mut above = self.write();
        let Some(directory) = above.directories.get_mut(&parent) else { return false };
        let Some(offset) = directory.offset_of(child) else { return false };
        if let Some((name, _)) = directory.children.remove(&offset) {
            directory.offsets.remove(&name);
        }
        directory.touch(now);
        if let Some(child) = above.directories.get_mut(&child) {
            child.removed = true;
        }
        drop(above);
        self.within.remove(&child);
        true
    }

    /// The kernel has forgotten a directory.
    pub(crate) fn forget(&self, node: Node) {
        if node.is_above_generations() {
            let mut above = self.write();
            if above.directories.get(&node).is_some_and(|directory| directory.removed) {
                above.directories.remove(&node);
            }
        }
    }

    /// Makes a directory within a store structural.
    pub(crate) fn protect(&self, node: Node, parent: Node) {
        self.within.insert(node, parent);
    }

    /// Ends that.
    pub(crate) fn release(&self, node: Node) {
        self.within.remove(&node);
    }

    /// Whether only the daemon makes or removes this directory.
    pub(crate) fn is_structural(&self, node: Node) -> bool {
        node.is_above_generations() || self.within.contains_key(&node)
    }

    /// The number of a generation in its session.
    pub(crate) fn number(&self, session: Node, root: Node) -> Option<u32> {
        let above = self.read();
        let children = &above.directories.get(&session)?.children;
        let offset = children.iter().find(|(_, (_, node))| *node == root)?.0;
        u32::try_from(offset - BEFORE_CHILDREN).ok()
    }

    /// The child of a directory above the generations.
    pub(crate) fn child(&self, parent: Node, name: &OsStr) -> Option<Node> {
        let above = self.read();
        let directory = above.directories.get(&parent)?;
        Some(directory.children.get(directory.offsets.get(name)?)?.1)
    }

    /// Where the structural directory of this name in another one stands; `None` where it has gone.
    pub(crate) fn place(&self, parent: Node, name: &OsStr) -> Option<Place> {
        let name = name.to_string_lossy().into_owned();
        let (session, generation, lease) = if parent == Node::ROOT {
            (self.child(parent, OsStr::new(&name))?, None, None)
        } else if parent.is_above_generations() {
            (parent, Some(name), None)
        } else {
            let session = self.parent(parent)?;
            (session, Some(self.number(session, parent)?.to_string()), Some(name))
        };
        let above = self.read();
        let root = above.directories.get(&Node::ROOT)?;
        let (id, _) = root.children.get(&root.offset_of(session)?)?;
        let owner = above.directories.get(&session)?.ownership.uid;
        let session = id.to_string_lossy().into_owned();
        let parts = [Some(session.clone()), generation, lease.clone()];
        let path = parts.into_iter().flatten().collect::<Vec<_>>().join("/");
        Some(Place { session, owner, lease, path })
    }

    /// The directory that a structural one is in.
    pub(crate) fn parent(&self, node: Node) -> Option<Node> {
        if let Some(parent) = self.within.get(&node) {
            return Some(*parent);
        }
        Some(self.read().directories.get(&node)?.parent)
    }

    /// The next children behind an offset, in the order in which they were made; none where there
    /// are no more.
    pub(crate) fn children(&self, node: Node, offset: u64) -> Option<Vec<Child>> {
        let above = self.read();
        let children = &above.directories.get(&node)?.children;
        Some(
            children
                .range(offset + 1..)
                .take(MOST_CHILDREN)
                .map(|(offset, (name, node))| Child {
                    node: *node,
                    name: name.clone(),
                    offset: *offset,
                })
                .collect(),
        )
    }

    /// The attributes of a directory above the generations.
    pub(crate) fn attributes(&self, node: Node) -> Option<Attributes> {
        let above = self.read();
        let directory = above.directories.get(&node)?;
        Some(Attributes {
            node,
            kind: FileType::Directory,
            permissions: directory.ownership.permissions,
            size: SIZE,
            blocks: 0,
            block_size: 4096,
            links: directory.links(),
            uid: directory.ownership.uid,
            gid: directory.ownership.gid,
            device: 0,
            accessed: directory.accessed,
            modified: directory.modified,
            changed: directory.changed,
        })
    }

    /// Sets the times of a directory above the generations, so that copying a tree with its times
    /// works wherever it is copied to.
    pub(crate) fn set_times(
        &self,
        node: Node,
        accessed: Option<FileTime>,
        modified: Option<FileTime>,
    ) -> Option<()> {
        let now = self.clock.wall();
        let mut above = self.write();
        let directory = above.directories.get_mut(&node)?;
        directory.accessed = accessed.unwrap_or(directory.accessed);
        directory.modified = modified.unwrap_or(directory.modified);
        directory.changed = now;
        Some(())
    }

    /// The present time, for times that are set to it.
    pub(crate) fn now(&self) -> FileTime {
        self.clock.wall()
    }
}

impl Directory {
    fn new(parent: Node, ownership: Ownership, now: FileTime) -> Self {
        Self {
            parent,
            removed: false,
            ownership,
            accessed: now,
            modified: now,
            changed: now,
            children: BTreeMap::new(),
            offsets: HashMap::new(),
        }
    }

    /// Where a child stands in a listing. A session stands where its number says, whose search
    /// would else take as long as there are sessions; generations of a session are few.
    fn offset_of(&self, child: Node) -> Option<u64> {
        let by_number = child.inode().checked_add(BEFORE_CHILDREN)?;
        if self.children.get(&by_number).is_some_and(|(_, node)| *node == child) {
            return Some(by_number);
        }
        self.children.iter().find(|(_, (_, node))| *node == child).map(|(offset, _)| *offset)
    }

    fn insert(&mut self, number: u64, name: OsString, node: Node, now: FileTime) {
        let offset = number + BEFORE_CHILDREN;
        self.offsets.insert(name.clone(), offset);
        self.children.insert(offset, (name, node));
        self.touch(now);
    }

    fn links(&self) -> u32 {
        if self.removed {
            return 0;
        }
        u32::try_from(self.children.len()).unwrap_or(u32::MAX).saturating_add(2)
    }

    fn touch(&mut self, now: FileTime) {
        self.modified = now;
        self.changed = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::System;

    fn structure() -> Structure {
        Structure::new(0, 0, Arc::new(System))
    }

    const OWNER: Ownership = Ownership { uid: 1000, gid: 1000, permissions: 0o700 };

    #[test]
    fn a_session_and_its_generation_are_found_by_name() {
        let structure = structure();
        let session = structure.add_session(OsStr::new("abcdefgh"), OWNER).unwrap();
        let root = Node::new(GenerationKey::FIRST, 2).unwrap();
        assert!(structure.add_generation(session, 1, root));
        assert_eq!(structure.child(Node::ROOT, OsStr::new("abcdefgh")), Some(session));
        assert_eq!(structure.child(session, OsStr::new("1")), Some(root));
        assert_eq!(structure.child(session, OsStr::new("2")), None);
        assert_eq!(structure.parent(root), Some(session));
        assert!(structure.is_structural(root) && structure.is_structural(session));
        assert_eq!(structure.attributes(session).unwrap().links, 3);
    }

    #[test]
    fn what_is_removed_is_gone_and_its_number_is_not_used_again() {
        let structure = structure();
        let first = structure.add_session(OsStr::new("aaaaaaaa"), OWNER).unwrap();
        assert!(structure.remove_child(Node::ROOT, first));
        structure.forget(first);
        assert_eq!(structure.attributes(first), None);
        let second = structure.add_session(OsStr::new("aaaaaaaa"), OWNER).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn a_removed_session_tells_its_attributes_while_it_is_open() {
        let structure = structure();
        let session = structure.add_session(OsStr::new("aaaaaaaa"), OWNER).unwrap();
        assert!(structure.remove_child(Node::ROOT, session));
        assert_eq!(structure.child(Node::ROOT, OsStr::new("aaaaaaaa")), None);
        assert_eq!(structure.attributes(session).unwrap().links, 0);
        structure.forget(session);
        assert_eq!(structure.attributes(session), None);
    }

    #[test]
    fn a_listing_goes_on_where_it_stopped() {
        let structure = structure();
        for name in ["a", "b", "c"] {
            structure.add_session(OsStr::new(name), OWNER).unwrap();
        }
        let all = structure.children(Node::ROOT, 0).unwrap();
        let rest = structure.children(Node::ROOT, all[0].offset).unwrap();
        assert_eq!(rest, all[1..]);
    }
}
