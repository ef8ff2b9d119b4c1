//! The daemon's place among daemons: the lock, the control socket, and the directory of both.
//!
//! Two locks are on the one file. The long one (`flock`) is held by a daemon from before it binds
//! its socket until all that it made is gone. The short one (a record lock) is held by whoever
//! takes or leaves the seat, so that a held long lock always means a socket at which an answer can
//! be waited for. The socket must never be taken from somebody who answers.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, chmod, fcntl_lock, flock, fstat, openat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::ask::{Call, Listener, PATIENCE};
use crate::config::{Host, Settings};
use crate::fault::Fault;
use crate::place::{Directory, Place, Problem, Wanted, in_proc};

/// How long it may take daemons that start and stop to get out of each other's way.
const TURMOIL: Duration = Duration::from_secs(30);
/// How many callers may wait to be let in.
const BACKLOG: i32 = 1024;
/// What is written in a lock is no longer.
const LONGEST_NOTE: usize = 8192;

/// The seat, held.
#[derive(Debug)]
pub(super) struct Seat {
    listener: UnixListener,
    socket: Place,
    socket_file: OwnedFd,
    lock: Lock,
    /// The directory of the socket, where it is to be removed in the end.
    directory: Option<(Place, Directory)>,
}

/// Takes the seat at the socket of the settings; `None` where a healthy daemon of ours has it and
/// serves that mountpoint.
pub(super) fn take(
    host: Host,
    settings: &Settings,
    mountpoint: &Path,
) -> Result<Option<Seat>, Fault> {
    let end = Instant::now() + TURMOIL;
    while Instant::now() < end {
        let directory = socket_directory(host, settings)?;
        let socket = match Place::of(&settings.socket) {
            Ok(socket) => socket,
            // It was removed by the daemon that has just left.
            Err(Problem::ParentMissing { errno: Errno::NOENT, .. }) if directory.is_some() => {
                continue;
            }
            Err(problem) => return Err(to_fault(problem)),
        };
        let Some(lock) = Lock::open(&socket, host, end)? else { continue };
        let mine = lock.try_hold()?;
        let failed = |error| refused(socket.path(), error);
        // With the short lock still held, so that there is a socket where there is a daemon.
        let Some(call) = Call::to(&socket).map_err(failed)? else {
            if mine {
                return Seat::bind(host, socket, lock, directory).map(Some);
            }
            let answer = "nobody answers, although a daemon holds the lock beside it".to_owned();
            let tried = vec![(socket.path().to_owned(), answer)];
            return Err(Fault::DaemonUnreachable { tried });
        };
        // Whoever else holds the long lock answers once it serves, or leaves.
        let lock = mine.then_some(lock);
        let listener = call.answer().map_err(failed)?;
        drop(lock);
        match listener {
            Listener::Serves { uid, mountpoint: served } => {
                if uid == host.uid && served == mountpoint {
                    return Ok(None);
                }
                let found = format!("a daemon of uid {uid} that serves {}", served.display());
                return Err(Fault::SocketInUse { socket: settings.socket.clone(), found });
            }
            Listener::Left => {}
            Listener::Silent => {
                let socket = settings.socket.clone();
                return Err(Fault::DaemonUnresponsive { socket, waited: PATIENCE });
            }
            Listener::Other(found) => {
                return Err(Fault::SocketInUse { socket: settings.socket.clone(), found });
            }
        }
    }
    Err(Fault::DaemonUnresponsive { socket: settings.socket.clone(), waited: TURMOIL })
}

impl Seat {
    fn bind(
        host: Host,
        socket: Place,
        mut lock: Lock,
        directory: Option<(Place, Directory)>,
    ) -> Result<Self, Fault> {
        if let Some(old) = socket.look().map_err(to_fault)? {
            let old = fstat(&old).map_err(|errno| refused(socket.path(), errno))?;
            // A link is what a daemon that listened elsewhere has left.
            let kind = FileType::from_raw_mode(old.st_mode);
            let known = matches!(kind, FileType::Socket | FileType::Symlink);
            if !known || old.st_uid != host.uid {
                return Err(refused(socket.path(), "something that is not our socket is there"));
            }
            unlinkat(socket.parent(), socket.name(), AtFlags::empty())
                .map_err(|errno| refused(socket.path(), errno))?;
        }
        let failed = |errno| refused(socket.path(), errno);
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(failed)?;
        let address = SocketAddrUnix::new(socket.address()).map_err(failed)?;
        bind(&listener, &address).map_err(failed)?;
        let Some(socket_file) = socket.look().map_err(to_fault)? else {
            return Err(refused(socket.path(), "it was removed as soon as it was made"));
        };
        // Who calls is told by the kernel, so where many users are served anybody may call.
        let mode = Mode::from_raw_mode(if host.privileged { 0o666 } else { 0o600 });
        chmod(in_proc(socket_file.as_fd()), mode).map_err(failed)?;
        // Only now can anybody call.
        listen(&listener, BACKLOG).map_err(failed)?;
        let listener = UnixListener::from(listener);
        lock.made = lock.read_made();
        let made = lock.made.clone();
        lock.write(made.as_deref()).map_err(|error| refused(socket.path(), error))?;
        lock.let_others_in()?;
        Ok(Self { listener, socket, socket_file, lock, directory })
    }

    /// The listener, for the one who answers.
    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The path of the socket.
    pub(super) fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// Keeps in mind, beyond a crash, that a daemon at this socket has made a directory.
    pub(super) fn remember_made(&mut self, directory: &Path) {
        if let Err(error) = self.lock.write(Some(directory)) {
            tracing::warn!(%error, "a directory may be left after a crash");
        }
    }

    /// Whether a daemon at this socket, which has not ended cleanly, had made this directory.
    pub(super) fn was_made(&self, directory: &Path) -> bool {
        self.lock.made.as_deref() == Some(directory)
    }

    /// Removes socket, lock and directory, as far as they are still ours.
    pub(super) fn leave(self) {
        let Self { listener, socket, socket_file, lock, directory } = self;
        lock.keep_others_out();
        if socket.is(socket_file.as_fd()) {
            let _ = unlinkat(socket.parent(), socket.name(), AtFlags::empty());
        }
        lock.remove();
        // Whoever waits for an answer is told that there is none before the lock goes.
        drop(listener);
        drop(lock);
        if let Some((place, directory)) = directory {
            place.remove(&directory);
        }
    }
}

/// The lock beside a socket.
#[derive(Debug)]
struct Lock {
    file: Arc<File>,
    place: Place,
    /// The mountpoint that a daemon had made and left behind.
    made: Option<PathBuf>,
}

impl Lock {
    /// The lock file, with the short lock; `None` where it was removed meanwhile.
    fn open(socket: &Place, host: Host, end: Instant) -> Result<Option<Self>, Fault> {
        let mut name = OsString::from(socket.name());
        name.push(".lock");
        let place = match Place::of(&socket.path().with_file_name(&name)) {
            Ok(place) => place,
            // The directory was removed by the daemon that has just left.
            Err(Problem::ParentMissing { errno: Errno::NOENT, .. }) => return Ok(None),
            Err(problem) => return Err(to_fault(problem)),
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(place.parent(), &name, flags, Mode::RUSR | Mode::WUSR) {
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
    fn try_hold(&self) -> Result<bool, Fault> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(refused(self.place.path(), errno)),
        }
    }

    /// Writes who holds it, for a person who looks, and what this daemon has made, for the next
    /// one: a line each.
    fn write(&self, made: Option<&Path>) -> io::Result<()> {
        let mut text = format!("{}\n", std::process::id()).into_bytes();
        if let Some(made) = made {
            text.extend_from_slice(made.as_os_str().as_bytes());
            text.push(b'\n');
        }
        self.file.set_len(0)?;
        self.file.write_all_at(&text, 0)
    }

    fn read_made(&self) -> Option<PathBuf> {
        let mut text = vec![0; LONGEST_NOTE];
        let length = self.file.read_at(&mut text, 0).ok()?;
        let made = text[..length].strip_suffix(b"\n")?.splitn(2, |byte| *byte == b'\n').nth(1)?;
        Some(PathBuf::from(OsStr::from_bytes(made)))
    }

    /// Gives the short lock back.
    fn let_others_in(&self) -> Result<(), Fault> {
        fcntl_lock(&self.file, FlockOperation::Unlock)
            .map_err(|errno| refused(self.place.path(), errno))
    }

    /// Takes the short lock again. Without it somebody may find the seat half left, and says so.
    fn keep_others_out(&self) {
        match lock_until(&self.file, Instant::now() + TURMOIL) {
            Some(Ok(())) => {}
            Some(Err(errno)) => tracing::warn!(%errno, "the lock was not to be had for leaving"),
            None => tracing::warn!("the lock was not to be had for leaving in time"),
        }
    }

    fn remove(&self) {
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

/// Makes and checks the directory of the socket; answers with it where it is ours to remove.
fn socket_directory(host: Host, settings: &Settings) -> Result<Option<(Place, Directory)>, Fault> {
    let Some(path) = settings.socket.parent() else {
        return Err(refused(&settings.socket, "it has no directory"));
    };
    // In `/` there is nothing to be made.
    if path.file_name().is_none() {
        return Ok(None);
    }
    let place = Place::of(path).map_err(to_fault)?;
    let mode = if host.privileged { 0o755 } else { 0o700 };
    let wanted = Wanted { owner: host.uid, mode, empty: false };
    if settings.own_socket_directory {
        place.refuse_writable_parent(host.uid).map_err(to_fault)?;
        let found = place.find_or_make(wanted).map_err(to_fault)?;
        // Nobody else has a reason to make it, so one that was left behind goes too.
        return Ok(Some((place, Directory { made: true, ..found })));
    }
    // A place that the operator has named may be anybody's, if only nobody can take the socket away.
    if place.look().map_err(to_fault)?.is_none()
        && let Some(made) = place.make(mode).map_err(to_fault)?
    {
        return Ok(Some((place, made)));
    }
    let socket = Place::of(&settings.socket).map_err(to_fault)?;
    socket.refuse_writable_parent(host.uid).map_err(to_fault)?;
    Ok(None)
}

/// What would be said of the place of the socket, without making anything there.
pub(crate) fn look(host: Host, settings: &Settings) -> Result<(), Fault> {
    let Some(path) = settings.socket.parent().filter(|path| path.file_name().is_some()) else {
        return Ok(());
    };
    let place = Place::of(path).map_err(to_fault)?;
    if settings.own_socket_directory {
        place.refuse_writable_parent(host.uid).map_err(to_fault)?;
    }
    let Some(found) = place.look().map_err(to_fault)? else { return Ok(()) };
    if settings.own_socket_directory {
        let mode = if host.privileged { 0o755 } else { 0o700 };
        let wanted = Wanted { owner: host.uid, mode, empty: false };
        return place.judge(found.as_fd(), wanted).map_err(to_fault);
    }
    let socket = Place::of(&settings.socket).map_err(to_fault)?;
    socket.refuse_writable_parent(host.uid).map_err(to_fault)
}

fn refused(path: &Path, reason: impl ToString) -> Fault {
    Fault::SocketRefused { path: path.to_owned(), reason: reason.to_string() }
}

fn to_fault(problem: Problem) -> Fault {
    match problem {
        Problem::ParentMissing { parent, errno } => refused(&parent, errno),
        Problem::ParentNotDirectory { parent } => refused(&parent, "it is not a directory"),
        Problem::ParentWritable { parent, owner, mode } => {
            let why = format!("others may write there: it is uid {owner}'s, with mode {mode:04o}");
            refused(&parent, why)
        }
        Problem::Symlink { path, target } => {
            refused(&path, format!("it is a symbolic link to {}", target.display()))
        }
        Problem::NotDirectory { path, found } => refused(&path, format!("it is a {found}")),
        Problem::WrongOwner { path, expected, found } => {
            refused(&path, format!("its owner should be {expected} and is {found}"))
        }
        Problem::WrongMode { path, expected, found } => {
            refused(&path, format!("its mode should be {expected:04o} and is {found:04o}"))
        }
        Problem::NotEmpty { path, entry } => {
            refused(&path, format!("it contains {}", entry.display()))
        }
        Problem::System { path, step, errno } => refused(&path, format!("{step}: {errno}")),
    }
}

#[cfg(test)]
mod tests;
