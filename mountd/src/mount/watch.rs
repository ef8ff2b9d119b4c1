//! Tells when the kernel's table of mounts has changed.
//!
//! It must never say what has changed: whoever wants to know looks.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The table, open. A `poll` for urgent data comes back once for each time that it changes.
#[derive(Debug)]
pub(crate) struct Watch(File);

impl Watch {
    /// Watches the table of the mount namespace that this process is in.
    pub(crate) fn new() -> io::Result<Self> {
        File::open("/proc/self/mountinfo").map(Self)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
