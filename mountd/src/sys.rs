//! What rustix has no safe call for: namespaces, signals as a descriptor, inherited descriptors,
//! processes that are only forked.
//!
//! The only place of this package with `unsafe`; it decides nothing.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, setsid, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Puts the process into a user namespace and a mount namespace of its own.
///
/// The kernel refuses it to a process that has threads.
pub(crate) fn enter_new_namespaces() -> rustix::io::Result<()> {
    // SAFETY: the flags neither give up the file descriptors nor anything else that Rust's
    // guarantees rest on; they change how the process is seen and what mounts it sees.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
}

/// Puts the calling thread into a mount namespace of its own.
pub(crate) fn enter_new_mount_namespace() -> rustix::io::Result<()> {
    // SAFETY: the flag changes what mounts are seen, and gives nothing up.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}

/// Gives the calling thread an umask of its own.
#[cfg(test)]
pub(crate) fn separate_umask() -> rustix::io::Result<()> {
    // SAFETY: the thread gets a copy of umask, root and current directory; nothing is given up.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}

/// Takes over a descriptor that whoever started this process has left for it.
///
/// It isn't handed on to further programs.
pub(crate) fn inherited(descriptor: RawFd) -> rustix::io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the borrow lasts for one call, which answers EBADF where nothing is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and its number came from outside: nothing in here has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A descriptor for the same open file as one that whoever started this process has left for it.
///
/// The copy isn't handed on to further programs; the original stays as it is.
pub(crate) fn copy_of_inherited(descriptor: RawFd) -> rustix::io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the borrow lasts for one call, which answers EBADF where nothing is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fcntl_dupfd_cloexec(borrowed, 3)
}

/// Has a write past the limit of file sizes fail as such, and not end this process.
pub(crate) fn survive_large_files() -> rustix::io::Result<()> {
    // SAFETY: ignoring a signal runs no code of ours.
    match unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(last_error()),
        _ => Ok(()),
    }
}

/// The signals that ask the daemon to stop.
const STOP_SIGNALS: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Requests to stop, as a descriptor that can be waited for.
#[derive(Debug)]
pub(crate) struct StopSignals {
    signals: File,
}

impl StopSignals {
    /// From here on the signals end nothing by themselves; threads that start later inherit that.
    pub(crate) fn block() -> rustix::io::Result<Self> {
        let set = stop_set();
        let mask = &raw const set;
        // SAFETY: the set is initialised, and where the old mask goes may be null.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, mask, ptr::null_mut()) };
        if error != 0 {
            return Err(Errno::from_raw_os_error(error));
        }
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let descriptor = unsafe { libc::signalfd(-1, mask, flags) };
        if descriptor < 0 {
            return Err(last_error());
        }
        // SAFETY: the call has just made it, for us alone.
        let signals = unsafe { File::from_raw_fd(descriptor) };
        Ok(Self { signals })
    }

    /// The signal that has come, if one has.
    pub(crate) fn take(&self) -> Option<i32> {
        let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
        // The number is the first field, and the kernel never writes half a record.
        match (&self.signals).read(&mut record) {
            Ok(length) if length == record.len() => {
                let [a, b, c, d, ..] = record;
                i32::try_from(u32::from_ne_bytes([a, b, c, d])).ok()
            }
            _ => None,
        }
    }
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

/// Those that ask to stop. Whoever has a program ignore that its terminal goes, wants it to go on;
/// a signal that is blocked would come even so.
fn stop_signals(ignored: impl Fn(libc::c_int) -> bool) -> impl Iterator<Item = libc::c_int> {
    STOP_SIGNALS.into_iter().filter(move |signal| *signal != libc::SIGHUP || !ignored(*signal))
}

/// Whether a signal is ignored by this process.
fn ignored(signal: libc::c_int) -> bool {
    let mut present = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is changed, and what is there is written to a place that has room for it.
    let known = unsafe { libc::sigaction(signal, ptr::null(), present.as_mut_ptr()) } == 0;
    // SAFETY: read only where the call has succeeded, so that the value is there.
    known && unsafe { present.assume_init() }.sa_sigaction == libc::SIG_IGN
}

fn stop_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set that it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in stop_signals(ignored) {
        // SAFETY: the set is initialised, and the signals exist.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: initialised above.
    unsafe { set.assume_init() }
}

/// Has the command started away from this process: in a session of its own, as the child of
/// nobody who would wait for it, and with none of this process's descriptors but `keep` and those
/// of standard input and output. What is spawned is a process in between that ends at once.
pub(crate) fn detach(command: &mut Command, keep: RawFd) {
    let leave = move || {
        setsid()?;
        close_on_exec(3, u32::MAX)?;
        // SAFETY: the borrow lasts for one call, which answers EBADF where nothing is open.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(keep) }, FdFlags::empty())?;
        // SAFETY: this is a forked child already, which does nothing but go on to `exec`, and its
        // own child does the same.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(()),
            // SAFETY: ends the process without running anything of what was copied into it.
            _ => unsafe { libc::_exit(0) },
        }
    };
    // SAFETY: the closure makes system calls and nothing else; it allocates no memory.
    unsafe { command.pre_exec(leave) };
}

fn close_on_exec(first: u32, last: u32) -> io::Result<()> {
    close_range(first, last, libc::CLOSE_RANGE_CLOEXEC)
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: descriptors of others are closed only in a forked child, whose they are alone.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether whoever started this process has it ignore a pipe that nobody reads any more.
static IGNORES_PIPE: AtomicBool = AtomicBool::new(false);

/// Run before the runtime of the language, which has every program ignore that signal and forgets
/// what was there before.
#[used]
// SAFETY: functions in this section take what `main` takes or nothing, and may use the C library.
#[unsafe(link_section = ".init_array")]
static NOTE_PIPE: extern "C" fn() = note_pipe;

extern "C" fn note_pipe() {
    IGNORES_PIPE.store(ignored(libc::SIGPIPE), Ordering::Relaxed);
}

/// Hands on to a command what was to become of that signal, which else has its usual effect.
pub(crate) fn hand_on_ignored_pipe(command: &mut Command) {
    if IGNORES_PIPE.load(Ordering::Relaxed) {
        let ignore = || {
            // SAFETY: ignoring a signal runs no code of ours.
            match unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) } {
                libc::SIG_ERR => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: the closure makes one system call and nothing else.
        unsafe { command.pre_exec(ignore) };
    }
}

/// Device, inode, or the kernel's answer.
pub(crate) type Looked = Result<(u64, u64), Errno>;

/// What a child process sees at a path; `None` where it sees nothing in time. A file system that
/// doesn't answer holds up the child and not this process.
pub(crate) fn look_in_child(path: &CStr, patience: Duration) -> io::Result<Option<Looked>> {
    let (reader, writer) = io::pipe()?;
    // SAFETY: the child makes system calls and nothing else, so it doesn't matter what other
    // threads of this process were doing.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let kept = writer.as_raw_fd().unsigned_abs();
            // Whoever waits for the end of this process's output must not wait for the child.
            let _ = close_range(0, kept.saturating_sub(1), 0);
            let _ = close_range(kept.saturating_add(1), u32::MAX, 0);
            let _ = rustix::io::write(&writer, look(path).as_flattened());
            // SAFETY: ends the process without running anything of what was copied into it.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(writer);
            let child = Pid::from_raw(child).ok_or(Errno::CHILD)?;
            let answer = hear(&reader, patience)?;
            if answer.is_none() {
                // It can't be waited for: the file system may keep it even so.
                let _ = kill_process(child, Signal::KILL);
                return Ok(None);
            }
            // Where children are not waited for, none is there any more.
            let _ = waitpid(Some(child), WaitOptions::empty());
            Ok(answer)
        }
    }
}

/// An errno or nothing, a device, an inode.
type Sight = [[u8; 8]; 3];

fn look(path: &CStr) -> Sight {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let seen = match statx(CWD, path, flags, StatxFlags::BASIC_STATS) {
        Ok(found) => [0, makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino],
        Err(errno) => [u64::from(errno.raw_os_error().unsigned_abs()), 0, 0],
    };
    seen.map(u64::to_ne_bytes)
}

fn hear(reader: &PipeReader, patience: Duration) -> rustix::io::Result<Option<Looked>> {
    let end = Instant::now() + patience;
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        let rest = Timespec::try_from(rest).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(reader, PollFlags::IN)], Some(&rest)) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut sight = Sight::default();
    // A pipe gives so few bytes all at once.
    if rustix::io::read(reader, sight.as_flattened_mut())? != sight.as_flattened().len() {
        return Err(Errno::CHILD);
    }
    let [errno, device, inode] = sight.map(u64::from_ne_bytes);
    Ok(Some(match i32::try_from(errno) {
        Ok(0) => Ok((device, inode)),
        Ok(errno) => Err(Errno::from_raw_os_error(errno)),
        Err(_) => Err(Errno::IO),
    }))
}

/// The other end of a socket, as the kernel saw it when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// Its process; 0 where that can't be seen from this pid namespace.
    pub(crate) pid: u32,
    /// Its user.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
}

/// Who is at the other end of a socket. rustix has a call for it, but no value for a process that
/// can't be seen from here.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> rustix::io::Result<Credentials> {
    let found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let libc::ucred { pid, uid, gid } = socket_option(socket, libc::SO_PEERCRED, found)?;
    Ok(Credentials { pid: u32::try_from(pid).unwrap_or(0), uid, gid })
}

/// The process at the other end of a socket, held so that its pid can't become another one's;
/// `None` where the kernel doesn't offer that.
pub(crate) fn peer_process(socket: BorrowedFd<'_>) -> rustix::io::Result<Option<OwnedFd>> {
    match socket_option(socket, libc::SO_PEERPIDFD, -1) {
        // SAFETY: the call has just made it, for us alone.
        Ok(process) => Ok(Some(unsafe { OwnedFd::from_raw_fd(process) })),
        Err(Errno::NOPROTOOPT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Reads an option of a socket over `value`, which the kernel must know by its size.
fn socket_option<T: Copy>(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    mut value: T,
) -> rustix::io::Result<T> {
    let mut size = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
    let descriptor = socket.as_raw_fd();
    let place = (&raw mut value).cast();
    // SAFETY: the place is as large as is said, and any bytes make one of the plain numbers, or
    // structures of them, that this file asks for.
    match unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, option, place, &mut size) } {
        0 => Ok(value),
        _ => Err(last_error()),
    }
}

/// Waits until nobody is left to read what is written to a pipe. Of anything else that can't be
/// told, and it waits for ever.
pub(crate) async fn unread(pipe: OwnedFd) {
    if let Ok(pipe) = registered(pipe, Interest::ERROR)
        && pipe.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// A descriptor that a task can wait for until it can be read.
pub(crate) fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    registered(descriptor, Interest::READABLE)
}

fn registered(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: what is registered owns the descriptor and always gives the same one, open until the
    // registration is dropped with it.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_ignored_from_a_terminal_that_goes_stays_ignored() {
        let all: Vec<_> = stop_signals(|_| false).collect();
        assert_eq!(all, STOP_SIGNALS);
        let rest: Vec<_> = stop_signals(|_| true).collect();
        assert_eq!(rest, [libc::SIGTERM, libc::SIGINT]);
    }
}
