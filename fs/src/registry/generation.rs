//! Generations: one directory tree of a session.
//!
//! It must never know what lies in the tree.

use serde::{Deserialize, Serialize};

use crate::node::GenerationKey;

/// A generation, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Generation {
    pub(crate) key: GenerationKey,
    /// Its number within the session.
    pub(crate) number: u32,
    /// Its directory.
    pub(crate) inode: u64,
    /// Never taken back. Together with having no lease, it means that the ground was told to
    /// drain it.
    pub(crate) retired: bool,
}
