//! A name in a directory, looked at and made through a descriptor of that directory.
//!
//! What isn't as it should be is reported, and never changed, moved or removed.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, Statx, StatxFlags, chmod, mkdirat, openat,
    readlink, readlinkat, statx, unlinkat,
};
use rustix::io::Errno;

const PERMISSIONS: u16 = 0o7777;
const OTHERS_WRITE: u16 = 0o022;
const STICKY: u16 = 0o1000;

/// Why a place can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    ParentMissing { parent: PathBuf, errno: Errno },
    ParentNotDirectory { parent: PathBuf },
    ParentWritable { parent: PathBuf, owner: u32, mode: u32 },
    Symlink { path: PathBuf, target: PathBuf },
    NotDirectory { path: PathBuf, found: &'static str },
    WrongOwner { path: PathBuf, expected: u32, found: u32 },
    WrongMode { path: PathBuf, expected: u32, found: u32 },
    NotEmpty { path: PathBuf, entry: PathBuf },
    System { path: PathBuf, step: &'static str, errno: Errno },
}

/// How a directory must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Whose it must be.
    pub(crate) owner: u32,
    /// The mode that it must have, bit for bit.
    pub(crate) mode: u32,
    /// Whether it must be empty.
    pub(crate) empty: bool,
}

/// A name beneath a directory that is held.
#[derive(Debug)]
pub(crate) struct Place {
    parent: OwnedFd,
    name: OsString,
    path: PathBuf,
}

/// A directory at a place, held.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) descriptor: OwnedFd,
    /// Whether it was made by this process.
    pub(crate) made: bool,
}

impl Place {
    /// The place that `path` names. Only the last name isn't resolved: it may not be a link.
    pub(crate) fn of(path: &Path) -> Result<Self, Problem> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            let (path, errno) = (path.to_owned(), Errno::INVAL);
            return Err(Problem::System { path, step: "find the last name of", errno });
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(CWD, above, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOTDIR => Problem::ParentNotDirectory { parent: above.to_owned() },
            _ => Problem::ParentMissing { parent: above.to_owned(), errno },
        })?;
        // Without links, as the kernel's table of mounts names it.
        let canonical = readlink(in_proc(parent.as_fd()), Vec::new()).map_err(|errno| {
            Problem::System { path: above.to_owned(), step: "find the path of", errno }
        })?;
        let path = PathBuf::from(OsStr::from_bytes(canonical.as_bytes())).join(name);
        Ok(Self { parent, name: name.to_owned(), path })
    }

    /// The path, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path as a socket's address, which has room for 107 bytes.
    pub(crate) fn address(&self) -> PathBuf {
        if self.path.as_os_str().len() < size_of::<libc::sockaddr_un>() - 2 {
            self.path.clone()
        } else {
            Path::new(&in_proc(self.parent())).join(&self.name)
        }
    }

    /// The directory that contains it.
    pub(crate) fn parent(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }

    /// The last name.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Refuses a parent in which others than root and this user may replace what isn't theirs: its
    /// owner may, whatever its mode.
    pub(crate) fn refuse_writable_parent(&self, uid: u32) -> Result<(), Problem> {
        let found = self.facts(self.parent())?;
        let owner = found.stx_uid;
        let writable = found.stx_mode & OTHERS_WRITE != 0 && found.stx_mode & STICKY == 0;
        if writable || (owner != 0 && owner != uid) {
            let parent = self.path.parent().unwrap_or(&self.path).to_owned();
            return Err(Problem::ParentWritable { parent, owner, mode: permissions(&found) });
        }
        Ok(())
    }

    /// What is at the place, held but not opened, so that nothing is waited for: neither a fifo's
    /// other end nor a filesystem that is mounted there.
    pub(crate) fn look(&self) -> Result<Option<OwnedFd>, Problem> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.parent, &self.name, flags, Mode::empty()) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.system("open", errno)),
        }
    }

    /// Whether what was found here is being removed. A directory takes the mounts on it along before
    /// its name goes, and whoever hears of that can be quick enough to find it still. To make
    /// something here waits for the end of that.
    pub(crate) fn is_going(&self, found: BorrowedFd<'_>) -> Result<bool, Problem> {
        Ok(self.facts(found)?.stx_nlink == 0)
    }

    /// Makes a directory with exactly this mode, whatever the umask and default ACLs are; `None`
    /// where somebody else has made something there, or removed it at once.
    pub(crate) fn make(&self, mode: u32) -> Result<Option<Directory>, Problem> {
        let mode = Mode::from_raw_mode(mode);
        match mkdirat(&self.parent, &self.name, mode) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(errno) => return Err(self.system("make the directory", errno)),
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = match openat(&self.parent, &self.name, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.system("open", errno)),
        };
        chmod(in_proc(descriptor.as_fd()), mode)
            .map_err(|errno| self.system("set the mode of", errno))?;
        Ok(Some(Directory { descriptor, made: true }))
    }

    /// Says what is wrong with what is at the place.
    pub(crate) fn judge(&self, found: BorrowedFd<'_>, wanted: Wanted) -> Result<(), Problem> {
        let facts = self.facts(found)?;
        let path = || self.path.clone();
        match FileType::from_raw_mode(facts.stx_mode.into()) {
            FileType::Directory => {}
            FileType::Symlink => {
                let target = readlinkat(found, "", Vec::new()).unwrap_or_default();
                let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
                return Err(Problem::Symlink { path: path(), target });
            }
            kind => {
                return Err(Problem::NotDirectory { path: path(), found: kind_name(kind) });
            }
        }
        if facts.stx_uid != wanted.owner {
            let (expected, found) = (wanted.owner, facts.stx_uid);
            return Err(Problem::WrongOwner { path: path(), expected, found });
        }
        if permissions(&facts) != wanted.mode {
            let (expected, found) = (wanted.mode, permissions(&facts));
            return Err(Problem::WrongMode { path: path(), expected, found });
        }
        if wanted.empty
            && let Some(name) = first_entry(found).map_err(|errno| self.system("list", errno))?
        {
            return Err(Problem::NotEmpty { path: path(), entry: self.path.join(name) });
        }
        Ok(())
    }

    /// The directory that should be there, made where nothing is.
    pub(crate) fn find_or_make(&self, wanted: Wanted) -> Result<Directory, Problem> {
        let found = match self.look()? {
            Some(descriptor) => Directory { descriptor, made: false },
            None => match self.make(wanted.mode)? {
                Some(made) => made,
                // Somebody was quicker: what they made is looked at like anything else.
                None => match self.look()? {
                    Some(descriptor) => Directory { descriptor, made: false },
                    None => return Err(self.system("find", Errno::NOENT)),
                },
            },
        };
        self.judge(found.descriptor.as_fd(), wanted)?;
        Ok(found)
    }

    /// Removes the directory if this process made it, it is still the one, and it is empty. Says
    /// whether it is gone.
    pub(crate) fn remove(&self, directory: &Directory) -> bool {
        directory.made
            && self.is(directory.descriptor.as_fd())
            && unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR).is_ok()
    }

    /// Whether a directory that was found here is here still, also where something is mounted on it.
    pub(crate) fn keeps(&self, held: BorrowedFd<'_>) -> bool {
        let found = readlink(in_proc(held), Vec::new());
        found.is_ok_and(|found| found.as_bytes() == self.path.as_os_str().as_bytes())
    }

    /// Whether this very inode is at the place. The held descriptor keeps its number from being
    /// given to another one; a remembered device and inode pair would not.
    pub(crate) fn is(&self, held: BorrowedFd<'_>) -> bool {
        let Ok(Some(present)) = self.look() else { return false };
        match (self.facts(held), self.facts(present.as_fd())) {
            (Ok(held), Ok(present)) => {
                held.stx_ino == present.stx_ino
                    && held.stx_dev_major == present.stx_dev_major
                    && held.stx_dev_minor == present.stx_dev_minor
            }
            _ => false,
        }
    }

    fn facts(&self, descriptor: BorrowedFd<'_>) -> Result<Statx, Problem> {
        // Without a wait: what is held may have become the root of a mount that nobody serves.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        statx(descriptor, "", flags, StatxFlags::BASIC_STATS)
            .map_err(|errno| self.system("look at", errno))
    }

    fn system(&self, step: &'static str, errno: Errno) -> Problem {
        Problem::System { path: self.path.clone(), step, errno }
    }
}

/// The name of an open descriptor, for calls that take none.
pub(crate) fn in_proc(descriptor: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

fn permissions(facts: &Statx) -> u32 {
    u32::from(facts.stx_mode & PERMISSIONS)
}

fn first_entry(directory: BorrowedFd<'_>) -> Result<Option<OsString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = openat(directory, ".", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 1024];
    let mut entries = RawDir::new(listed, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            // It is just being removed, and for that it must be empty.
            Err(Errno::NOENT) => return Ok(None),
            entry => entry?,
        };
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name => return Ok(Some(OsStr::from_bytes(name).to_owned())),
        }
    }
    Ok(None)
}

const fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "thing of unknown type",
    }
}

#[cfg(test)]
mod tests;
