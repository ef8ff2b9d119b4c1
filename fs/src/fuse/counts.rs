//! How many requests the kernel has sent, by operation.
//!
//! It must never cost more than an addition: it is on the way of every request.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! operations {
    ($($name:ident => $label:literal),+ $(,)?) => {
        /// A kind of request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is the request of its name")]
        pub enum Operation { $($name),+ }

        impl Operation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name in the protocol, in lower case.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label),+ }
            }
        }
    };
}

operations! {
    Lookup => "lookup", Forget => "forget", GetAttr => "getattr", SetAttr => "setattr",
    ReadLink => "readlink", Symlink => "symlink", MkNod => "mknod", MkDir => "mkdir",
    Unlink => "unlink", RmDir => "rmdir", Rename => "rename", Link => "link", Open => "open",
    Read => "read", Write => "write", StatFs => "statfs", Release => "release", Fsync => "fsync",
    SetXattr => "setxattr", GetXattr => "getxattr", ListXattr => "listxattr",
    RemoveXattr => "removexattr", Flush => "flush", OpenDir => "opendir", ReadDir => "readdir",
    ReadDirPlus => "readdirplus", FsyncDir => "fsyncdir", Create => "create", Ioctl => "ioctl",
    Fallocate => "fallocate", Lseek => "lseek", CopyFileRange => "copy_file_range",
}

/// Counters of requests.
#[derive(Debug)]
pub struct Counts([AtomicU64; Operation::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Operation::ALL.len()])
    }
}

impl Counts {
    /// Counts one request.
    pub(super) fn add(&self, operation: Operation) {
        self.0[operation as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The requests of a kind so far.
    #[must_use]
    pub fn get(&self, operation: Operation) -> u64 {
        self.0[operation as usize].load(Ordering::Relaxed)
    }
}
