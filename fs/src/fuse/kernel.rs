//! What the filesystem asks of the kernel over the FUSE device.
//!
//! It must never be called by a thread that serves, except for registering and unregistering
//! files: the kernel may need an answer from this filesystem before it has one for it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fuser::BackingId;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::io::{Errno, write};

use super::{Features, sys};
use crate::node::Node;
use crate::tempfs::Kernel;

const INVALIDATE_INODE: i32 = 2;
const INVALIDATE_ENTRY: i32 = 3;
const PRUNE: i32 = 9;

/// Bytes of a notification's header: its length, its code, and zero.
const HEADER: usize = 16;

/// Nodes that one pruning notification names at the most.
const PRUNED_AT_ONCE: usize = 512;

/// The device that requests come from.
pub(super) struct Device {
    device: OwnedFd,
    features: Arc<OnceLock<Features>>,
    registers: AtomicBool,
    told: AtomicBool,
}

impl Device {
    pub(super) fn new(device: OwnedFd) -> Self {
        Self {
            device,
            features: Arc::new(OnceLock::new()),
            registers: AtomicBool::new(false),
            told: AtomicBool::new(false),
        }
    }

    /// Where the handshake leaves what the kernel offers.
    pub(super) fn features(&self) -> Arc<OnceLock<Features>> {
        Arc::clone(&self.features)
    }

    /// Finds out by trying what the kernel lets this process do on the connection. That it knows
    /// how to pass files through isn't enough: it wants `CAP_SYS_ADMIN` for it.
    pub(super) fn probe(&self) -> Features {
        let offered = self.features.get().copied().unwrap_or_default();
        let tried = memfd_create("holdfast-probe", MemfdFlags::CLOEXEC).is_ok_and(|file| {
            let path = path_of(file.as_fd());
            offered.passthrough
                && path
                    .and_then(|path| self.try_register(path.as_fd()))
                    .is_ok_and(|id| sys::close_backing(self.device.as_fd(), id).is_ok())
        });
        self.registers.store(tried, Ordering::Release);
        // The root is always in use.
        let prunes = self.prune(&[Node::ROOT]).is_ok();
        Features { passthrough: tried, prunes, ..offered }
    }

    /// Registers a file by a descriptor that only names it, or by a real one where the kernel wants
    /// that (as before 6.18).
    fn try_register(&self, file: BorrowedFd<'_>) -> Result<u32, Errno> {
        let register = |file: BorrowedFd<'_>| {
            BackingId::create_raw(&self.device, file)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        register(file).or_else(|errno| match errno {
            Errno::BADF => {
                let link = format!("/proc/self/fd/{}", file.as_raw_fd());
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                register(open(link, flags, Mode::empty())?.as_fd())
            }
            errno => Err(errno),
        })
    }

    fn notify(&self, code: i32, body: &[u8]) -> Result<(), Errno> {
        let length = HEADER + body.len();
        let mut message = Vec::with_capacity(length);
        message.extend_from_slice(&u32::try_from(length).map_err(|_| Errno::TOOBIG)?.to_ne_bytes());
        message.extend_from_slice(&code.to_ne_bytes());
        message.extend_from_slice(&0_u64.to_ne_bytes());
        message.extend_from_slice(body);
        write(&self.device, &message).map(drop)
    }
}

impl Kernel for Device {
    fn register(&self, file: BorrowedFd<'_>) -> Result<u32, Errno> {
        if !self.registers() {
            return Err(Errno::OPNOTSUPP);
        }
        self.try_register(file).inspect_err(|errno| {
            // What one program can cause again and again is told once.
            if !self.told.swap(true, Ordering::Relaxed) {
                tracing::warn!(%errno, "the kernel doesn't pass every file through");
            }
        })
    }

    fn registers(&self) -> bool {
        self.registers.load(Ordering::Acquire)
    }

    fn unregister(&self, backing: u32) {
        if let Err(errno) = sys::close_backing(self.device.as_fd(), backing) {
            tracing::warn!(%errno, backing, "a file stays registered with the kernel");
        }
    }

    fn prune(&self, nodes: &[Node]) -> Result<(), Errno> {
        for nodes in nodes.chunks(PRUNED_AT_ONCE) {
            let mut body = Vec::with_capacity(16 + 8 * nodes.len());
            body.extend_from_slice(&(nodes.len() as u32).to_ne_bytes());
            body.extend_from_slice(&[0; 12]);
            for node in nodes {
                body.extend_from_slice(&node.raw().to_ne_bytes());
            }
            self.notify(PRUNE, &body)?;
        }
        Ok(())
    }

    fn invalidate_name(&self, parent: Node, name: &OsStr) -> Result<(), Errno> {
        let mut body = Vec::new();
        body.extend_from_slice(&parent.raw().to_ne_bytes());
        body.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        body.extend_from_slice(&0_u32.to_ne_bytes());
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        self.notify(INVALIDATE_ENTRY, &body)
    }

    fn invalidate(&self, node: Node) -> Result<(), Errno> {
        let mut body = Vec::new();
        body.extend_from_slice(&node.raw().to_ne_bytes());
        body.extend_from_slice(&0_i64.to_ne_bytes());
        body.extend_from_slice(&0_i64.to_ne_bytes());
        self.notify(INVALIDATE_INODE, &body)
    }
}

fn path_of(file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    open(
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
}
