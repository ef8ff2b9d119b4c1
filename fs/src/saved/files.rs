//! Small files in a directory of their own beneath the store's, written whole or not at all.
//!
//! It must never leave that directory nor follow a link in it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fdatasync, fstat, fsync, mkdirat, openat,
    openat2, renameat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use super::SavedError;

/// Where the files are, in the store.
pub(super) const DIRECTORY: &str = "registry";
/// What the name of a file ends in that is not written yet.
const DRAFT: &str = ".new";
/// More than any record has that a daemon wrote.
const MOST_BYTES: usize = 16 << 20;

/// When a file has to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    /// Before the call returns.
    Now,
    /// Whenever the kernel likes.
    Later,
}

#[derive(Debug)]
pub(super) struct Files(OwnedFd);

fn refused(step: &'static str) -> impl Fn(Errno) -> SavedError {
    move |errno| SavedError::Refused { step, errno }
}

pub(super) fn unreadable(name: &str, reason: &str) -> SavedError {
    SavedError::Unreadable { file: format!("{DIRECTORY}/{name}"), reason: reason.to_owned() }
}

impl Files {
    /// The directory, which is made where it isn't there.
    pub(super) fn beneath(store: BorrowedFd<'_>) -> Result<Self, SavedError> {
        let open = || {
            openat2(
                store,
                DIRECTORY,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
            )
        };
        let directory = match open() {
            Ok(directory) => directory,
            Err(Errno::NOENT) => {
                let step = "making the directory of saved sessions";
                mkdirat(store, DIRECTORY, Mode::RWXU).map_err(refused(step))?;
                fsync(store).map_err(refused(step))?;
                open().map_err(refused("opening the directory of saved sessions"))?
            }
            Err(errno) => return Err(refused("opening the directory of saved sessions")(errno)),
        };
        Ok(Self(directory))
    }

    /// All names, in the order of the alphabet. Those that are not text are not ours.
    pub(super) fn names(&self) -> Result<Vec<String>, SavedError> {
        let listing = refused("listing saved sessions");
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0).map_err(&listing)? {
            let entry = entry.map_err(&listing)?;
            if let Ok(name) = entry.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// What is in a file; `None` where there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SavedError> {
        let reading = refused("reading a saved session");
        // Without waiting, so that a fifo in its place is refused and not waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(unreadable(name, "it is a symbolic link")),
            Err(errno) => return Err(reading(errno)),
        };
        let found = fstat(&file).map_err(&reading)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(unreadable(name, "it is no regular file"));
        }
        let mut bytes = Vec::new();
        let mut part = vec![0; 64 << 10];
        loop {
            match retry_on_intr(|| rustix::io::read(&file, &mut part[..])).map_err(&reading)? {
                0 => return Ok(Some(bytes)),
                read => bytes.extend_from_slice(&part[..read]),
            }
            if bytes.len() > MOST_BYTES {
                return Err(unreadable(name, "it is too long"));
            }
        }
    }

    /// Puts a file in the place of the one of this name. Under its name it is whole at any time,
    /// after a power cut too if both were written to be on the disk.
    pub(super) fn write(&self, name: &str, bytes: &[u8], sync: Sync) -> Result<(), SavedError> {
        let draft = format!("{name}{DRAFT}");
        self.write_draft(&draft, bytes, sync)
            .and_then(|()| renameat(&self.0, &draft, &self.0, name))
            .inspect_err(|_| {
                // What can't be removed either is written anew the next time.
                let _ = unlinkat(&self.0, &draft, AtFlags::empty());
            })
            .and_then(|()| match sync {
                Sync::Now => fsync(&self.0),
                Sync::Later => Ok(()),
            })
            .map_err(refused("saving a session"))
    }

    fn write_draft(&self, draft: &str, bytes: &[u8], sync: Sync) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let open = || openat(&self.0, draft, flags, Mode::RUSR | Mode::WUSR);
        let file = match open() {
            // A daemon was ended while it wrote.
            Err(Errno::EXIST) => {
                unlinkat(&self.0, draft, AtFlags::empty())?;
                open()?
            }
            opened => opened?,
        };
        let mut left = bytes;
        while !left.is_empty() {
            let written = retry_on_intr(|| rustix::io::write(&file, left))?;
            left = left.get(written..).unwrap_or_default();
        }
        match sync {
            Sync::Now => fdatasync(file.as_fd()),
            Sync::Later => Ok(()),
        }
    }

    /// Removes a file; one that isn't there is no error.
    pub(super) fn remove(&self, name: &str) -> Result<(), SavedError> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(refused("removing a saved session")(errno)),
        }
    }
}
