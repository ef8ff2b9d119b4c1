//! The mount: whether it may be made at a path, how it is made, and whose it is.
//!
//! Nothing in here waits for a path below a mount.

pub(crate) mod attach;
pub(crate) mod check;
mod detach;
mod helper;
pub(crate) mod identity;
pub(crate) mod probe;
pub(crate) mod watch;

pub(crate) use probe::answer as answer_probe;
