//! Stores without a filesystem on top.
