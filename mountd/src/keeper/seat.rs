//! The daemon's place among daemons: the lock, the control socket, and the directory of both.
//!
//! Two locks are on the one file. The long one (`flock`) is held by a daemon from before it binds
//! its socket until all that it made is gone. The short one (a record lock) is held by whoever
//! takes or leaves the seat, so that a held long lock always means a socket at which an answer can
//! be waited for. The socket must never be taken from somebody who answers.

mod lock;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, chmod, fstat, unlinkat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use self::lock::Lock;
use super::ask::{Call, Listener, PATIENCE};
use crate::config::{Host, Settings};
use crate::fault::Fault;
use crate::place::{Directory, Place, Problem, Wanted, in_proc};

/// How long it may take daemons that start and stop to get out of each other's way.
const TURMOIL: Duration = Duration::from_secs(30);
/// How long somebody who takes or leaves the seat is waited for by the daemon that has it.
const HASTE: Duration = Duration::from_secs(1);
/// How many callers may wait to be let in.
const BACKLOG: i32 = 1024;

/// The seat, held.
#[derive(Debug)]
pub(super) struct Seat {
    listener: UnixListener,
    socket: Place,
    socket_file: OwnedFd,
    lock: Lock,
    /// Tells when something in the socket's directory is removed or moved.
    watch: OwnedFd,
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
        let watch = watch(&socket)?;
        let (listener, socket_file) = bind_at(host, &socket)?;
        lock.made = lock.read_made();
        let made = lock.made.clone();
        lock.write(made.as_deref()).map_err(|error| refused(socket.path(), error))?;
        lock.let_others_in()?;
        Ok(Self { listener, socket, socket_file, lock, watch, directory })
    }

    /// Whether clients find the socket, and the next daemon the lock beside it.
    pub(super) fn is_found(&self) -> bool {
        let is = |place: &Place, file: BorrowedFd<'_>| {
            Place::of(place.path()).is_ok_and(|place| place.is(file))
        };
        is(&self.socket, self.socket_file.as_fd()) && is(&self.lock.place, self.lock.file.as_fd())
    }

    /// Takes the seat again where its socket, its lock or the directory of both was removed; from
    /// nobody who has taken it meanwhile.
    pub(super) fn take_again(&mut self, host: Host, settings: &Settings) -> Result<(), Fault> {
        let directory = socket_directory(host, settings)?;
        let socket = Place::of(&settings.socket).map_err(to_fault)?;
        let lock = match Lock::place(&socket)? {
            place if place.is(self.lock.file.as_fd()) => {
                // Whoever takes or leaves the seat now is done soon.
                if !self.lock.keeps_others_out() {
                    return Err(refused(socket.path(), "somebody else is about to take the seat"));
                }
                None
            }
            _ => {
                let lock = Lock::open(&socket, host, Instant::now() + HASTE)?;
                let lock = lock.ok_or_else(|| refused(socket.path(), "it is removed again"))?;
                if !lock.try_hold()? {
                    let found = "another daemon holds the lock beside it".to_owned();
                    return Err(Fault::SocketInUse { socket: settings.socket.clone(), found });
                }
                lock.write(self.lock.made.as_deref())
                    .map_err(|error| refused(socket.path(), error))?;
                Some(lock)
            }
        };
        let held = lock.as_ref().unwrap_or(&self.lock);
        let watch = watch(&socket)?;
        // Where only the lock was removed, it is this daemon that answers.
        if !socket.is(self.socket_file.as_fd()) {
            let bound = bind_anew(host, &socket);
            held.let_others_in()?;
            (self.listener, self.socket_file) = bound?;
        } else {
            held.let_others_in()?;
        }
        self.watch = watch;
        if let Some(lock) = lock {
            self.lock = Lock { made: self.lock.made.take(), ..lock };
        } else {
            self.lock.place = Lock::place(&socket)?;
        }
        self.socket = socket;
        self.directory = match (directory, self.directory.take()) {
            // It is the one that this daemon made before.
            (None, Some((place, made))) if place.is(made.descriptor.as_fd()) => Some((place, made)),
            (directory, _) => directory,
        };
        Ok(())
    }

    /// What tells when something may have happened to the socket.
    pub(super) fn watch(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Takes note of all that was told so far.
    pub(super) fn seen(&self) {
        let mut told = [MaybeUninit::uninit(); 4096];
        while rustix::io::read(&self.watch, &mut told[..]).is_ok_and(|(told, _)| !told.is_empty()) {
        }
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
    pub(super) fn remember_made(&mut self, directory: Option<&Path>) {
        if self.lock.made.as_deref() == directory {
            return;
        }
        self.lock.made = directory.map(Path::to_owned);
        if let Err(error) = self.lock.write(directory) {
            tracing::warn!(%error, "a directory may be left after a crash");
        }
    }

    /// Whether a daemon at this socket, which has not ended cleanly, had made this directory.
    pub(super) fn was_made(&self, directory: &Path) -> bool {
        self.lock.made.as_deref() == Some(directory)
    }

    /// Removes socket, lock and directory, as far as they are still ours.
    pub(super) fn leave(self) {
        let Self { listener, socket, socket_file, lock, watch: _, directory } = self;
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

/// Binds a socket that can be called as soon as it has its mode.
fn bind_at(host: Host, socket: &Place) -> Result<(UnixListener, OwnedFd), Fault> {
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
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(failed)?;
    let address = SocketAddrUnix::new(socket.address()).map_err(failed)?;
    bind(&listener, &address).map_err(failed)?;
    let Some(file) = socket.look().map_err(to_fault)? else {
        return Err(refused(socket.path(), "it was removed as soon as it was made"));
    };
    // Who calls is told by the kernel, so where many users are served anybody may call.
    let mode = Mode::from_raw_mode(if host.privileged { 0o666 } else { 0o600 });
    chmod(in_proc(file.as_fd()), mode).map_err(failed)?;
    // Only now can anybody call.
    listen(&listener, BACKLOG).map_err(failed)?;
    Ok((UnixListener::from(listener), file))
}

/// Binds a socket where nobody answers.
fn bind_anew(host: Host, socket: &Place) -> Result<(UnixListener, OwnedFd), Fault> {
    if Call::to(socket).map_err(|error| refused(socket.path(), error))?.is_some() {
        let found = "somebody else answers there".to_owned();
        return Err(Fault::SocketInUse { socket: socket.path().to_owned(), found });
    }
    bind_at(host, socket)
}

/// Tells when something in the directory of a socket is removed or moved.
fn watch(socket: &Place) -> Result<OwnedFd, Fault> {
    let failed = |errno| refused(socket.path(), errno);
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
        .map_err(failed)?;
    let told = WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF;
    inotify::add_watch(&watch, in_proc(socket.parent()), told).map_err(failed)?;
    Ok(watch)
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
