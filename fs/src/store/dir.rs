//! A directory as a store: one directory for each generation beneath it, named by its key.
//!
//! It must never leave the directory: names are resolved beneath the descriptor, and nothing that
//! isn't a directory of its own making is touched.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2, unlinkat};
use rustix::io::Errno;

use super::{StoreError, discard::empty, refused};
use crate::node::GenerationKey;

fn open(base: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    openat2(
        base,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

pub(super) fn first_free_key(base: &OwnedFd) -> Result<GenerationKey, StoreError> {
    let greatest = numbers(base)?.into_iter().max().unwrap_or(0);
    GenerationKey::new(greatest.saturating_add(1))
        .ok_or(StoreError::Refused { step: "finding a free key in the store", errno: Errno::NOSPC })
}

pub(super) fn keys(base: &OwnedFd) -> Result<Vec<GenerationKey>, StoreError> {
    Ok(numbers(base)?.into_iter().filter_map(GenerationKey::new).collect())
}

fn numbers(base: &OwnedFd) -> Result<Vec<u32>, StoreError> {
    let mut numbers = Vec::new();
    for entry in Dir::read_from(base).map_err(refused("listing the store"))? {
        let entry = entry.map_err(refused("listing the store"))?;
        numbers.extend(number(entry.file_name()));
    }
    Ok(numbers)
}

/// The directory of a generation, if there is one that the owner of the store made.
pub(super) fn find(base: &OwnedFd, key: GenerationKey) -> Result<Option<OwnedFd>, StoreError> {
    let looking = refused("looking at the generation's directory");
    let home = match open(base, &key.get().to_string()) {
        Ok(home) => home,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(refused("opening the generation's directory")(errno)),
    };
    let (store, found) = (fstat(base).map_err(&looking)?, fstat(&home).map_err(&looking)?);
    Ok((found.st_uid == store.st_uid).then_some(home))
}

fn number(name: &CStr) -> Option<u32> {
    name.to_str().ok()?.parse().ok()
}

pub(super) fn make(base: &OwnedFd, key: GenerationKey) -> Result<OwnedFd, StoreError> {
    let name = key.get().to_string();
    mkdirat(base, &name, Mode::RWXU).map_err(refused("making the generation's directory"))?;
    open(base, &name).map_err(refused("opening the generation's directory")).inspect_err(|_| {
        // It is empty, and nobody knows of it.
        let _ = unlinkat(base, &name, AtFlags::REMOVEDIR);
    })
}

pub(super) fn discard(base: &OwnedFd, key: GenerationKey) -> Result<(), StoreError> {
    let name = key.get().to_string();
    let directory = match open(base, &name) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(refused("opening what is to be discarded")(errno)),
    };
    empty(&directory).map_err(refused("discarding files"))?;
    unlinkat(base, &name, AtFlags::REMOVEDIR)
        .map_err(refused("removing the generation's directory"))
}
