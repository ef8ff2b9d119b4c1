//! One inode that the kernel knows, in the layout that a mapping keeps it in.
//!
//! The layout must never change without a new [`VERSION`]: whoever maps the records of an earlier
//! worker has to understand them.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::sys::{FileHandle, HANDLE_BYTES};

/// The version of the layout.
pub(super) const VERSION: u32 = 1;

/// Words of a handle.
const WORDS: usize = HANDLE_BYTES / 8;

/// Set where the handle names the inode; otherwise a descriptor does.
const HAS_HANDLE: u32 = 1;
/// Set once the last name of the inode is gone.
const UNLINKED: u32 = 2;
/// Set where the inode is a directory.
const DIRECTORY: u32 = 4;
/// Set while the inode is open through the page cache, which excludes passthrough.
const CACHED: u32 = 8;

/// Set while the inode waits among those whose registered file nobody uses.
const QUEUED: u32 = 16;

/// The record of one inode.
#[repr(C, align(64))]
pub(super) struct Record {
    /// The node; zero where the record is free. Published last.
    pub(super) node: AtomicU64,
    /// Look-ups that the kernel has not given back.
    pub(super) lookups: AtomicU64,
    /// The file registered with the kernel for passthrough; zero where there is none.
    pub(super) backing: AtomicU32,
    /// Opens that have not been released.
    pub(super) opens: AtomicU32,
    /// Tells the opens of this record from those of an earlier one of the same node.
    pub(super) incarnation: AtomicU32,
    flags: AtomicU32,
    handle_kind: AtomicI32,
    handle_length: AtomicU32,
    handle: [AtomicU64; WORDS],
    spare: [AtomicU64; 3],
}

const _: () = assert!(size_of::<Record>() == 128);

impl Record {
    fn flag(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    fn set_flag(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::AcqRel);
        } else {
            self.flags.fetch_and(!flag, Ordering::AcqRel);
        }
    }

    /// Fills a free record; it is in use once its node is published.
    pub(super) fn fill(&self, handle: Option<&FileHandle>, directory: bool, incarnation: u32) {
        self.lookups.store(0, Ordering::Relaxed);
        self.backing.store(0, Ordering::Relaxed);
        self.opens.store(0, Ordering::Relaxed);
        self.incarnation.store(incarnation, Ordering::Relaxed);
        let mut flags = if directory { DIRECTORY } else { 0 };
        if let Some(handle) = handle {
            flags |= HAS_HANDLE;
            self.handle_kind.store(handle.kind, Ordering::Relaxed);
            self.handle_length.store(handle.length, Ordering::Relaxed);
            for (word, bytes) in self.handle.iter().zip(handle.bytes.chunks_exact(8)) {
                let mut value = [0; 8];
                value.copy_from_slice(bytes);
                word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
            }
        }
        self.flags.store(flags, Ordering::Release);
    }

    /// The handle, where there is one.
    pub(super) fn handle(&self) -> Option<FileHandle> {
        if !self.flag(HAS_HANDLE) {
            return None;
        }
        let mut bytes = [0; HANDLE_BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.handle) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Some(FileHandle {
            kind: self.handle_kind.load(Ordering::Relaxed),
            length: self.handle_length.load(Ordering::Relaxed),
            bytes,
        })
    }

    pub(super) fn is_directory(&self) -> bool {
        self.flag(DIRECTORY)
    }

    pub(super) fn is_unlinked(&self) -> bool {
        self.flag(UNLINKED)
    }

    pub(super) fn set_unlinked(&self) {
        self.set_flag(UNLINKED, true);
    }

    /// Whether it was set before.
    pub(super) fn set_queued(&self, on: bool) -> bool {
        let before = self.flag(QUEUED);
        self.set_flag(QUEUED, on);
        before
    }

    pub(super) fn is_cached(&self) -> bool {
        self.flag(CACHED)
    }

    pub(super) fn set_cached(&self, on: bool) {
        self.set_flag(CACHED, on);
    }
}
