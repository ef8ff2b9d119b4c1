//! The filesystem of Holdfast: operations over a store beneath a descriptor, the records of its
//! inodes, and the registry of sessions, generations and leases.
//!
//! It knows no socket, no mountpoint, no ambient clock and no environment: whoever wires it up
//! hands these in. Only `fuse` names the FUSE library.

pub mod attributes;
pub mod clock;
pub mod error;
pub mod fuse;
pub mod ground;
mod inode_table;
pub mod namespace;
pub mod node;
mod reaper;
pub mod registry;
pub mod saved;
pub mod store;
mod structure;
mod sys;
pub mod tempfs;
