//! The answers to requests, in the words of the protocol.

use std::time::Duration;

use fuser::{
    FileHandle, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr,
};
use rustix::fs::StatVfs;
use rustix::io::Errno;

use super::sys;
use super::translate::{attributes, errno, kind, nothing, number, raw_errno};
use crate::attributes::Attributes;
use crate::error::Error;
use crate::tempfs::{DirectoryEntry, Found, Listing, OpenFile, Pages};

/// Inode numbers are never used twice while the kernel knows them, so that there is one generation
/// of each.
const ONLY: Generation = Generation(0);

pub(super) fn entry(reply: ReplyEntry, valid: Duration, result: Result<Attributes, Error>) {
    match result {
        Ok(found) => reply.entry(&valid, &attributes(&found), ONLY),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn attr(reply: ReplyAttr, valid: Duration, result: Result<Attributes, Error>) {
    match result {
        Ok(found) => reply.attr(&valid, &attributes(&found)),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn empty(reply: ReplyEmpty, result: Result<(), Error>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// A value, or its length where the caller has no room for any.
pub(super) fn value(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Error>) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(raw_errno(Errno::RANGE)),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

const fn page_flags(pages: Pages) -> FopenFlags {
    match pages {
        Pages::Kept => FopenFlags::FOPEN_KEEP_CACHE,
        Pages::Fresh => FopenFlags::empty(),
        Pages::Bypassed => FopenFlags::FOPEN_DIRECT_IO,
    }
}

pub(super) fn found(reply: ReplyEntry, valid: Duration, result: Result<Found, Error>) {
    match result {
        Ok(Found::Inode(found)) => entry(reply, valid, Ok(found)),
        Ok(Found::Nothing) => reply.entry(&valid, &nothing(), ONLY),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn open(reply: ReplyOpen, result: Result<OpenFile, Error>) {
    match result {
        Ok(OpenFile { handle, backing: Some(backing), .. }) => {
            let backing = sys::backing_of_open(&reply, backing);
            reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &backing);
            let _ = backing.into_raw();
        }
        Ok(OpenFile { handle, backing: None, pages }) => {
            reply.opened(FileHandle(handle), page_flags(pages));
        }
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn create(
    reply: ReplyCreate,
    valid: Duration,
    result: Result<(Attributes, OpenFile), Error>,
) {
    match result {
        Ok((made, OpenFile { handle, backing, pages })) => {
            let (made, handle) = (attributes(&made), FileHandle(handle));
            match backing {
                Some(backing) => {
                    let backing = sys::backing_of_create(&reply, backing);
                    let flags = FopenFlags::empty();
                    reply.created_passthrough(&valid, &made, ONLY, handle, flags, &backing);
                    let _ = backing.into_raw();
                }
                None => reply.created(&valid, &made, ONLY, handle, page_flags(pages)),
            }
        }
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn data(reply: ReplyData, result: Result<Vec<u8>, Error>) {
    match result {
        Ok(data) => reply.data(&data),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn written(reply: ReplyWrite, result: Result<usize, Error>) {
    match result {
        Ok(count) => reply.written(count as u32),
        Err(error) => reply.error(errno(error)),
    }
}

/// The flags of an inode, or nothing where they were set.
pub(super) fn flags(reply: ReplyIoctl, result: Result<Option<u32>, Error>) {
    match result {
        Ok(Some(flags)) => reply.ioctl(0, &flags.to_ne_bytes()),
        Ok(None) => reply.ioctl(0, &[]),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn offset(reply: ReplyLseek, result: Result<u64, Error>) {
    match result.map(i64::try_from) {
        Ok(Ok(offset)) => reply.offset(offset),
        Ok(Err(_)) => reply.error(raw_errno(Errno::OVERFLOW)),
        Err(error) => reply.error(errno(error)),
    }
}

/// Above the generations there is no filesystem of a size.
pub(super) fn statistics(reply: ReplyStatfs, result: Result<Option<StatVfs>, Error>) {
    match result {
        Ok(Some(room)) => reply.statfs(
            room.f_blocks,
            room.f_bfree,
            room.f_bavail,
            room.f_files,
            room.f_ffree,
            room.f_bsize as u32,
            room.f_namemax as u32,
            room.f_frsize as u32,
        ),
        Ok(None) => reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) struct Plain<'a>(pub(super) &'a mut ReplyDirectory);

impl Listing for Plain<'_> {
    fn add(&mut self, line: &DirectoryEntry<'_>) -> bool {
        !self.0.add(number(line.node), line.offset, kind(line.kind), line.name)
    }

    fn add_with(&mut self, line: &DirectoryEntry<'_>, _attributes: &Attributes) -> bool {
        self.add(line)
    }
}

pub(super) struct Plus<'a>(pub(super) &'a mut ReplyDirectoryPlus, pub(super) Duration);

impl Listing for Plus<'_> {
    fn add(&mut self, _line: &DirectoryEntry<'_>) -> bool {
        false
    }

    fn add_with(&mut self, line: &DirectoryEntry<'_>, found: &Attributes) -> bool {
        let attributes = attributes(found);
        let (inode, offset) = (number(line.node), line.offset);
        !self.0.add(inode, offset, line.name, &self.1, &attributes, ONLY)
    }
}
