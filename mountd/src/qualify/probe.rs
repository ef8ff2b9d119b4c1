//! A file that is made, written, renamed, read back and deleted: nothing else tells whether a
//! directory can be used.
//!
//! It must never touch a name that is not its own, and leaves none behind where that can be helped.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::control::wire::Probe;

/// A page and a bit, so that it isn't kept in an inode.
const LENGTH: usize = 4608;

/// The step that failed, and the kernel's answer, where that was one.
type Failed = (&'static str, Option<Errno>);

/// Tries it.
pub(super) fn probe(directory: BorrowedFd<'_>) -> Probe {
    let mut random = [0; 8];
    let drawn = getrandom(&mut random, GetRandomFlags::empty());
    let stem = format!(".holdfast-probe-{:016x}", u64::from_ne_bytes(random));
    let [before, after] = [format!("{stem}-a"), format!("{stem}-b")];
    let failed = match drawn {
        Ok(_) => attempt(directory, &before, &after).err(),
        Err(errno) => Some(("create", Some(errno))),
    };
    // Whichever of the two is there by now is ours.
    let made = failed.is_none_or(|(step, _)| step != "create");
    let left = [before, after].into_iter().find(|name| {
        made && !matches!(unlinkat(directory, name, AtFlags::empty()), Ok(()) | Err(Errno::NOENT))
    });
    Probe {
        failed: failed.map(|(step, _)| step.to_owned()),
        error: failed.and_then(|(_, errno)| errno).map(Into::into),
        left,
    }
}

fn attempt(directory: BorrowedFd<'_>, before: &str, after: &str) -> Result<(), Failed> {
    let failed = |step| move |errno| (step, Some(errno));
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let new = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = openat(directory, before, new, Mode::RUSR | Mode::WUSR).map_err(failed("create"))?;
    let text: Vec<u8> = before.bytes().cycle().take(LENGTH).collect();
    let mut written = 0;
    while written < text.len() {
        match retry_on_intr(|| write(&file, &text[written..])).map_err(failed("write"))? {
            0 => return Err(("write", None)),
            length => written += length,
        }
    }
    drop(file);
    renameat(directory, before, directory, after).map_err(failed("rename"))?;
    let file =
        openat(directory, after, flags | OFlags::RDONLY, Mode::empty()).map_err(failed("read"))?;
    let mut found = Vec::with_capacity(LENGTH);
    let mut part = [0; LENGTH];
    loop {
        match retry_on_intr(|| read(&file, &mut part)).map_err(failed("read"))? {
            0 => break,
            length => found.extend_from_slice(&part[..length]),
        }
        if found.len() > text.len() {
            break;
        }
    }
    if found != text {
        return Err(("read", None));
    }
    unlinkat(directory, after, AtFlags::empty()).map_err(failed("delete"))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_good_directory_is_left_as_it_was() {
        let room = tempfile::tempdir().expect("a directory");
        let held = File::open(room.path()).expect("opened");
        assert_eq!(probe(held.as_fd()), Probe { failed: None, error: None, left: None });
        assert_eq!(fs::read_dir(room.path()).expect("listed").count(), 0);
    }

    #[test]
    fn a_directory_that_is_gone_takes_no_file() {
        let room = tempfile::tempdir().expect("a directory");
        let held = File::open(room.path()).expect("opened");
        drop(room);
        let found = probe(held.as_fd());
        assert_eq!(found.failed.as_deref(), Some("create"));
        assert_eq!(found.error.map(|error| error.number), Some(libc::ENOENT));
        assert_eq!(found.left, None);
    }
}
