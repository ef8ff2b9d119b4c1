//! The adapter to the kernel's FUSE protocol: request, call, reply.
//!
//! It must never decide anything about files: what a request means is `tempfs`'s to know. Nothing
//! else names the FUSE library.

mod adapter;
mod counts;
mod handshake;
mod ioctl;
mod kernel;
mod lane;
mod reply;
mod sys;
mod translate;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fuser::{Config, Session, SessionACL};

use self::adapter::Adapter;
pub use self::counts::{Counts, Operation};
use self::kernel::Device;
use crate::tempfs::TempFs;

/// A connection to the kernel that has shaken hands.
pub struct Connection {
    session: Session<Adapter>,
    features: Features,
    counts: Arc<Counts>,
}

/// What the kernel offers on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The kernel reads and writes files by itself.
    pub passthrough: bool,
    /// The kernel forgets at once what it keeps of inodes without using it.
    pub prunes: bool,
    /// Requests that a worker left unanswered come again.
    pub resend: bool,
    /// The protocol's minor version.
    pub minor: u32,
}

impl Connection {
    /// Shakes hands on a device that is mounted, or about to be.
    ///
    /// # Errors
    /// Where the kernel hangs up or speaks a protocol that is too old.
    pub fn open(device: OwnedFd, fs: Arc<TempFs>, threads: usize) -> io::Result<Self> {
        let kernel = Arc::new(Device::new(device.try_clone()?));
        let counts = Arc::new(Counts::default());
        let adapter = Adapter::new(Arc::clone(&fs), Arc::clone(&counts), kernel.features())?;
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.n_threads = Some(threads.max(1));
        let session = Session::from_fd(adapter, device, SessionACL::All, config)?;
        let features = kernel.probe();
        fs.connect(kernel);
        Ok(Self { session, features, counts })
    }

    /// What the kernel offers.
    #[must_use]
    pub const fn features(&self) -> Features {
        self.features
    }

    /// How many requests there were, by operation.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// The device, for whoever waits for the connection's end.
    #[must_use]
    pub fn device(&self) -> std::os::fd::BorrowedFd<'_> {
        self.session.as_fd()
    }

    /// Serves until the connection ends.
    ///
    /// # Errors
    /// Where reading requests fails in another way than by the connection's end.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}
