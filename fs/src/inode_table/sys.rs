//! The mapping that inode records live in.
//!
//! It must never hand out a record beyond the mapping, nor move one: whoever has a record keeps it
//! for as long as the mapping lives.

use std::fmt;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::record::{Record, VERSION};

/// Tells a mapping of records from any other file.
const MAGIC: u64 = u64::from_le_bytes(*b"holdfast");

/// Room for records. Only what is used takes memory.
const CAPACITY: u32 = 1 << 26;

/// The head of the mapping; as large as a record.
#[repr(C, align(128))]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    record_size: AtomicU32,
}

const LENGTH: usize = size_of::<Record>() * (CAPACITY as usize + 1);

/// Records in a file that outlives the process that maps it.
pub(super) struct Mapping {
    base: NonNull<Record>,
}

// SAFETY: the mapping is shared memory whose every field is atomic, and it lives until the value
// is dropped, by whichever thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; records are only ever reached through shared references.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// An empty file for records, without a name.
    pub(super) fn file() -> Result<rustix::fd::OwnedFd, Errno> {
        memfd_create("holdfast-inodes", MemfdFlags::CLOEXEC)
    }

    /// Maps a file for records that nobody has used yet.
    pub(super) fn new(file: impl AsFd) -> Result<Self, Errno> {
        if fstat(&file)?.st_size != 0 {
            return Err(Errno::EXIST);
        }
        ftruncate(&file, LENGTH as u64)?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing; the file is
        // as long as the mapping.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                LENGTH,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )
        }?;
        let base = NonNull::new(base.cast::<Record>()).ok_or(Errno::NOMEM)?;
        let mapping = Self { base };
        // SAFETY: the first record's place is the header's, it is aligned to a page, and zeroes
        // are a valid header.
        let header = unsafe { base.cast::<Header>().as_ref() };
        header.version.store(VERSION, Ordering::Relaxed);
        header.record_size.store(size_of::<Record>() as u32, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(mapping)
    }

    /// How many records there is room for.
    pub(super) const fn capacity(&self) -> u32 {
        CAPACITY
    }

    /// The record in a place.
    pub(super) fn record(&self, place: u32) -> &Record {
        assert!(place < CAPACITY, "a place beyond the mapping");
        // SAFETY: the place is within the mapping, behind the header; zeroes are a valid record,
        // and every field is atomic.
        unsafe { self.base.add(place as usize + 1).as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and no reference outlives the value.
        if let Err(errno) = unsafe { munmap(self.base.as_ptr().cast(), LENGTH) } {
            tracing::error!(%errno, "the mapping of inode records stays");
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mapping").field("base", &self.base).finish()
    }
}
