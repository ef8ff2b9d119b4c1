//! The filesystem of Holdfast: operations over a store beneath a descriptor, the records of its
//! inodes, and the registry of sessions, generations and leases.
//!
//! It knows no socket, no mountpoint, no ambient clock and no environment: whoever wires it up
//! hands these in. Only `fuse` names the FUSE library.

pub mod clock;
pub mod namespace;
pub mod node;
pub mod registry;
