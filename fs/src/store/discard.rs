//! Removes whatever is in a directory: deep trees, read-only directories, names that are not text.
//!
//! It must never follow a symlink, and needs a fixed number of descriptors however deep the tree:
//! a directory that isn't empty is moved up and comes next.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, fchmod, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// Empties a directory.
pub(super) fn empty(directory: &OwnedFd) -> Result<(), Errno> {
    let mut moved = 0_u64;
    loop {
        let mut found = false;
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            found = true;
            let is_directory = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => false,
                FileType::RegularFile
                | FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice => {
                    unlinkat(directory, name, AtFlags::empty())?;
                    continue;
                }
            };
            if !is_directory {
                match unlinkat(directory, name, AtFlags::empty()) {
                    Ok(()) => continue,
                    Err(Errno::ISDIR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            match unlinkat(directory, name, AtFlags::REMOVEDIR) {
                Ok(()) => {}
                Err(Errno::NOTEMPTY) => {
                    let child = open(directory, name)?;
                    fchmod(&child, Mode::RWXU)?;
                    flatten(directory, &child, &mut moved)?;
                    unlinkat(directory, name, AtFlags::REMOVEDIR)?;
                }
                Err(errno) => return Err(errno),
            }
        }
        if !found {
            return Ok(());
        }
    }
}

fn open(directory: &OwnedFd, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    // A directory without permissions opens as a path; its mode can be changed through that.
    let path = openat(
        directory,
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path));
    rustix::fs::chmod(link, Mode::RWXU)?;
    openat(path.as_fd(), ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Removes what is in `child`, moving directories that aren't empty into `top`.
fn flatten(top: &OwnedFd, child: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    for entry in Dir::read_from(child)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlinkat(child, name, AtFlags::empty()) {
            Ok(()) => continue,
            Err(Errno::ISDIR) => {}
            Err(errno) => return Err(errno),
        }
        match unlinkat(child, name, AtFlags::REMOVEDIR) {
            Ok(()) => {}
            Err(Errno::NOTEMPTY) => loop {
                // Moving a directory writes its `..`.
                rustix::fs::chmodat(child, name, Mode::RWXU, AtFlags::empty())?;
                *moved += 1;
                let new = format!("moved-up-{moved}");
                match renameat_with(child, name, top, &new, RenameFlags::NOREPLACE) {
                    Ok(()) => break,
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
            },
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
