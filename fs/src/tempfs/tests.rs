//! Operations without a mount, on a temporary store.
