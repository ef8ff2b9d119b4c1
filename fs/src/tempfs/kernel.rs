//! What the filesystem asks of the kernel on its own account, and who does what serving threads
//! must not.
//!
//! Nothing here may be needed to answer a request, except that files are registered.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::node::Node;

/// What the filesystem asks of the kernel on its own account.
pub trait Kernel: Send + Sync {
    /// Registers a file for passthrough.
    ///
    /// # Errors
    /// Where the kernel refuses; data then goes through the page cache.
    fn register(&self, file: BorrowedFd<'_>) -> Result<u32, Errno>;

    /// Whether files can be registered at all on this connection.
    fn registers(&self) -> bool;

    /// Ends a registration.
    fn unregister(&self, backing: u32);

    /// Has the kernel drop what it keeps of these inodes without using it. Never from a thread
    /// that serves.
    ///
    /// # Errors
    /// Where the kernel doesn't know how.
    fn prune(&self, nodes: &[Node]) -> Result<(), Errno>;

    /// Has the kernel forget a name. It takes the directory's lock: never from a thread that
    /// serves, nor with a lock of ours held, nor for a name that something may be mounted on.
    ///
    /// # Errors
    /// Where the kernel doesn't know the directory or the name.
    fn invalidate_name(&self, parent: Node, name: &OsStr) -> Result<(), Errno>;

    /// Has the kernel read an inode's attributes and contents anew; of a directory, its listing.
    ///
    /// # Errors
    /// Where the kernel doesn't know the inode.
    fn invalidate(&self, node: Node) -> Result<(), Errno>;
}

/// Whoever sees to what the serving threads must not do themselves.
pub(crate) trait Attendant: Send + Sync {
    /// More descriptors are held for inodes than should be; the kernel may be able to forget some.
    fn descriptors_short(&self);

    /// The kernel has forgotten an inode of a generation that is to go.
    fn forgotten(&self);

    /// There is one more connection, so that what the others remember may not be so any more.
    fn joined(&self);

    /// The contents of a file have changed while there are several connections.
    fn changed(&self, node: Node);
}

/// The kernel answers `ENOENT` for what it doesn't know, which is as good.
pub(crate) fn expect_unknown(result: Result<(), Errno>) {
    match result {
        Ok(()) | Err(Errno::NOENT | Errno::NOTCONN | Errno::NODEV) => {}
        Err(errno) => tracing::warn!(%errno, "the kernel keeps a directory as it was"),
    }
}
