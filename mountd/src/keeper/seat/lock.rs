//! The lock beside the socket, and what is written in it.
//!
//! Closing any descriptor of the file gives up the short lock; so there must never be a second one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, fcntl_lock, flock, fstat, openat, unlinkat,
};
use rustix::io::Errno;

use super::{TURMOIL, refused, to_fault};
use crate::config::Host;
use crate::fault::Fault;
use crate::place::{Place, Problem};

/// What is written in a lock is no longer.
const LONGEST_NOTE: usize = 8192;

/// The lock beside a socket.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) file: Arc<File>,
    pub(super) place: Place,
    /// The mountpoint that a daemon had made and left behind.
    pub(super) made: Option<PathBuf>,
}

impl Lock {
    fn path(socket: &Place) -> PathBuf {
        let mut name = OsString::from(socket.name());
        name.push(".lock");
        socket.path().with_file_name(name)
    }

    /// Where it is to be.
    pub(super) fn place(socket: &Place) -> Result<Place, Fault> {
        Place::of(&Self::path(socket)).map_err(to_fault)
    }

    /// The lock file, with the short lock; `None` where it was removed meanwhile.
    pub(super) fn open(socket: &Place, host: Host, end: Instant) -> Result<Option<Self>, Fault> {
        let place = match Place::of(&Self::path(socket)) {
            Ok(place) => place,
            // The directory was removed by the daemon that has just left.
            Err(Problem::ParentMissing { errno: Errno::NOENT, .. }) => return Ok(None),
            Err(problem) => return Err(to_fault(problem)),
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = match openat(place.parent(), place.name(), flags, mode) {
            Ok(file) => Arc::new(File::from(file)),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(refused(place.path(), errno)),
        };
        let facts = fstat(&file).map_err(|errno| refused(place.path(), errno))?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile
            || facts.st_uid != host.uid
        {
            return Err(refused(place.path(), "the lock is not a file of ours"));
        }
        match lock_until(&file, end) {
            Some(Ok(())) => {}
            Some(Err(errno)) => return Err(refused(place.path(), errno)),
            None => {
                let socket = socket.path().to_owned();
                return Err(Fault::DaemonUnresponsive { socket, waited: TURMOIL });
            }
        }
        let lock = Self { file, place, made: None };
        Ok(lock.place.is(lock.file.as_fd()).then_some(lock))
    }

    /// Takes the long lock, if nobody has it.
    pub(super) fn try_hold(&self) -> Result<bool, Fault> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(refused(self.place.path(), errno)),
        }
    }

    /// Writes who holds it, for a person who looks, and what this daemon has made, for the next
    /// one: a line each.
    pub(super) fn write(&self, made: Option<&Path>) -> io::Result<()> {
        let mut text = format!("{}\n", std::process::id()).into_bytes();
        if let Some(made) = made {
            text.extend_from_slice(made.as_os_str().as_bytes());
            text.push(b'\n');
        }
        self.file.set_len(0)?;
        self.file.write_all_at(&text, 0)
    }

    pub(super) fn read_made(&self) -> Option<PathBuf> {
        let mut text = vec![0; LONGEST_NOTE];
        let length = self.file.read_at(&mut text, 0).ok()?;
        let made = text[..length].strip_suffix(b"\n")?.splitn(2, |byte| *byte == b'\n').nth(1)?;
        Some(PathBuf::from(OsStr::from_bytes(made)))
    }

    /// Gives the short lock back.
    pub(super) fn let_others_in(&self) -> Result<(), Fault> {
        fcntl_lock(&self.file, FlockOperation::Unlock)
            .map_err(|errno| refused(self.place.path(), errno))
    }

    /// Takes the short lock again, where nobody has it.
    pub(super) fn keeps_others_out(&self) -> bool {
        fcntl_lock(&*self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Takes the short lock again. Without it somebody may find the seat half left, and says so.
    pub(super) fn keep_others_out(&self) {
        match lock_until(&self.file, Instant::now() + TURMOIL) {
            Some(Ok(())) => {}
            Some(Err(errno)) => tracing::warn!(%errno, "the lock was not to be had for leaving"),
            None => tracing::warn!("the lock was not to be had for leaving in time"),
        }
    }

    pub(super) fn remove(&self) {
        if self.place.is(self.file.as_fd()) {
            let _ = unlinkat(self.place.parent(), self.place.name(), AtFlags::empty());
        }
    }
}

/// Waits for the short lock; `None` where it isn't to be had in time. The thread that then still
/// waits has the file open, as closing it anywhere would give the lock up, and ends with us.
fn lock_until(file: &Arc<File>, end: Instant) -> Option<Result<(), Errno>> {
    match fcntl_lock(&**file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN | Errno::ACCESS) => {}
        done => return Some(done),
    }
    let (tell, told) = channel();
    let waits = Arc::clone(file);
    let waiting = thread::Builder::new().name("lock".to_owned()).spawn(move || {
        let _ = tell.send(fcntl_lock(&*waits, FlockOperation::LockExclusive));
    });
    if let Err(error) = waiting {
        return Some(Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)));
    }
    told.recv_timeout(end.saturating_duration_since(Instant::now())).ok()
}
