//! Numbers of inodes as programs and the kernel see them.
//!
//! A number is the key of a generation and the inode's number within it, so that it is the same
//! after a forget, a remount or a restart, and two generations can't have one in common. It must
//! never depend on the order in which things were looked up.

use serde::{Deserialize, Serialize};

/// Bits of a node that number the inode within its generation.
const INODE_BITS: u32 = 40;

/// What tells one generation from every other one that this namespace has had or will have.
///
/// Zero is not a generation: it numbers the directories above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GenerationKey(u32);

impl GenerationKey {
    /// The key under which structural directories are numbered.
    pub const STRUCTURE: Self = Self(0);
    /// The first key of a generation.
    pub const FIRST: Self = Self(1);
    /// The greatest key that a node has room for.
    pub const MAX: Self = Self((1 << (64 - INODE_BITS)) - 1);

    /// A key by its number; `None` where a node has no room for it.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The number of an inode of the namespace: `st_ino` for programs, the node id for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u64);

impl Node {
    /// The root of the namespace.
    pub const ROOT: Self = Self(1);
    /// The greatest number an inode of a generation can have.
    pub const LAST_INODE: u64 = (1 << INODE_BITS) - 1;

    /// The node of inode `inode` in a generation; `None` where the number is too large.
    #[must_use]
    pub const fn new(generation: GenerationKey, inode: u64) -> Option<Self> {
        if inode >> INODE_BITS == 0 && inode != 0 {
            Some(Self(((generation.0 as u64) << INODE_BITS) | inode))
        } else {
            None
        }
    }

    /// A node as the kernel names it.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The node as the kernel names it.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The generation it is in.
    #[must_use]
    pub const fn generation(self) -> GenerationKey {
        GenerationKey((self.0 >> INODE_BITS) as u32)
    }

    /// Its number within the generation.
    #[must_use]
    pub const fn inode(self) -> u64 {
        self.0 & ((1 << INODE_BITS) - 1)
    }

    /// Whether it is one of the directories above the generations.
    #[must_use]
    pub const fn is_above_generations(self) -> bool {
        self.0 >> INODE_BITS == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_its_generation_and_inode() {
        let key = GenerationKey::new(7).unwrap();
        let node = Node::new(key, 42).unwrap();
        assert_eq!((node.generation(), node.inode()), (key, 42));
        assert_eq!(Node::from_raw(node.raw()), node);
        assert!(!node.is_above_generations());
        assert!(Node::ROOT.is_above_generations());
    }

    #[test]
    fn numbers_without_room_are_refused() {
        assert_eq!(Node::new(GenerationKey::MAX, 1 << INODE_BITS), None);
        assert_eq!(Node::new(GenerationKey::MAX, 0), None);
        assert_eq!(GenerationKey::new(GenerationKey::MAX.get() + 1), None);
    }
}
