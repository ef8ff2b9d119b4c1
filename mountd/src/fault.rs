//! Every named reason why the namespace, or a request, can't be served.
//!
//! One stable code each, used by the socket, the command line, the log and events alike. A message
//! for clients must never carry a path; what an operator needs to know must never be dropped.

mod code;
mod report;
mod text;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

pub use self::report::FaultReport;

/// A named reason why something can't be served, with all that is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    // The host.
    /// The device through which filesystems in user space are served can't be had.
    FuseDeviceMissing {
        /// What was asked for.
        device: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The helper that mounts for ordinary users can't be started.
    FusermountMissing {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The helper that mounts for ordinary users refused.
    FusermountRefused {
        /// Where it should have mounted.
        path: PathBuf,
        /// How it ended.
        status: String,
        /// What it wrote to its standard error.
        stderr: String,
    },
    /// The kernel refused a mount to a daemon that has the privilege.
    MountRefused {
        /// Where it should have mounted.
        path: PathBuf,
        /// The step that failed.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The host refuses user namespaces, without which an ordinary user has no tmpfs store.
    UsernsRefused {
        /// The step that failed.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The kernel lacks something without which nothing can be served.
    KernelTooOld {
        /// What it lacks.
        missing: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },

    // The mountpoint and the mount.
    /// The directory that should contain the mountpoint isn't there.
    MountpointParentMissing {
        /// The directory.
        parent: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// What should contain the mountpoint is no directory.
    MountpointParentNotDirectory {
        /// What should be a directory.
        parent: PathBuf,
    },
    /// Others could replace the mountpoint at any time.
    MountpointParentWritable {
        /// The directory.
        parent: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Its mode.
        mode: u32,
    },
    /// The mountpoint is a symbolic link.
    MountpointSymlink {
        /// The mountpoint.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// The mountpoint is something else than a directory.
    MountpointNotDirectory {
        /// The mountpoint.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The mountpoint belongs to someone else.
    MountpointWrongOwner {
        /// The mountpoint.
        path: PathBuf,
        /// Whose it should be.
        expected: u32,
        /// Whose it is.
        found: u32,
    },
    /// The mountpoint hasn't the mode with which the daemon makes it.
    MountpointWrongMode {
        /// The mountpoint.
        path: PathBuf,
        /// The mode that it should have.
        expected: u32,
        /// The mode that it has.
        found: u32,
    },
    /// There is something in the directory that the mount would hide.
    MountpointNotEmpty {
        /// The mountpoint.
        path: PathBuf,
        /// One of its entries.
        entry: PathBuf,
    },
    /// Something is mounted there that isn't the daemon's own.
    MountpointForeignMount {
        /// The mountpoint.
        path: PathBuf,
        /// The type of what is mounted.
        fstype: String,
        /// Its source.
        source: String,
        /// Whose daemon serves it, where it is one of this kind.
        owner: Option<u32>,
    },
    /// Another daemon of the same user, at another socket, serves this mountpoint.
    MountpointInUse {
        /// The mountpoint.
        path: PathBuf,
    },
    /// A system call on the mountpoint failed for a reason that has no name of its own.
    MountpointUnusable {
        /// The path concerned.
        path: PathBuf,
        /// The step that failed.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The caller doesn't see the mount, as in a mount namespace of its own.
    MountpointNotVisible {
        /// Where the lease should be.
        path: PathBuf,
        /// The device and inode that the daemon names.
        expected: (u64, u64),
        /// What the caller sees there.
        found: Seen,
    },
    /// A mount of an earlier daemon of ours is in the way and can't be detached.
    MountStale {
        /// The mountpoint.
        path: PathBuf,
        /// Why it is still there.
        cause: String,
    },
    /// Somebody has detached the mount, and it isn't back yet.
    MountDetached {
        /// Where the namespace was served.
        mountpoint: PathBuf,
    },
    /// The connection to the kernel was ended from outside, and there is no new one yet.
    ConnectionAborted {
        /// Where the namespace was served.
        mountpoint: PathBuf,
    },

    // The store.
    /// The directory that should contain the store isn't there.
    StoreParentMissing {
        /// The directory.
        parent: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Another daemon uses the store.
    StoreLocked {
        /// The store.
        path: PathBuf,
    },
    /// The store is a symbolic link.
    StoreSymlink {
        /// The store.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// The store is something else than a directory.
    StoreNotDirectory {
        /// The store.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The store belongs to someone else.
    StoreWrongOwner {
        /// The store.
        path: PathBuf,
        /// Whose it should be.
        expected: u32,
        /// Whose it is.
        found: u32,
    },
    /// The store is open to others.
    StoreWrongMode {
        /// The store.
        path: PathBuf,
        /// The mode that it should have.
        expected: u32,
        /// The mode that it has.
        found: u32,
    },
    /// The store can't be used for a reason that has no name of its own.
    StoreUnusable {
        /// The step that failed.
        step: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// What an earlier daemon saved is in a form that this one doesn't know.
    SavedVersionUnknown {
        /// The file, by its name in the store.
        file: String,
        /// Its version.
        found: u64,
    },
    /// What an earlier daemon saved can't be read.
    SavedUnreadable {
        /// The file, by its name in the store.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No bytes are left.
    StoreFull,
    /// No inodes are left.
    StoreOutOfInodes,
    /// No further generation can be had.
    GenerationsExhausted {
        /// How many there may be.
        limit: u64,
    },

    // Sessions, leases and requests.
    /// There is no such session, or none that the caller may see.
    SessionUnknown {
        /// The name or id that was asked for.
        session: String,
    },
    /// The session has ended and takes no lease.
    SessionSealed {
        /// The session.
        session: String,
    },
    /// The session belongs to another user.
    SessionNotYours {
        /// The session.
        session: String,
    },
    /// The session is open already, under another policy.
    PolicyDiffers {
        /// The session.
        session: String,
        /// In what the two differ.
        difference: String,
    },
    /// There is no such lease, or none that the caller may see.
    LeaseUnknown {
        /// The lease.
        lease: String,
    },
    /// There is no such owner token.
    TokenUnknown,
    /// A process inside a lease may not end what it lives in.
    NotFromInside {
        /// The session that it lives in.
        session: String,
    },
    /// A name breaks the rules for names.
    NameInvalid {
        /// The rule.
        reason: String,
    },
    /// A limit is reached.
    LimitReached {
        /// What is limited.
        limit: String,
        /// How many there may be.
        value: u64,
    },
    /// The daemon won't stop while these sessions live.
    SessionsAlive {
        /// Their names.
        sessions: Vec<String>,
    },
    /// Only root and the user whose daemon it is may end it.
    DaemonNotYours {
        /// Whose it is.
        owner: u32,
    },
    /// The process that was named doesn't live, or isn't the caller's to name.
    ProcessUnknown {
        /// Its id.
        pid: u32,
    },
    /// A request that can't be understood.
    RequestInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// A request that is too long.
    RequestTooLarge {
        /// How many bytes it may have.
        limit: u64,
    },
    /// This daemon, or this host, can't do that.
    NotSupported {
        /// What it can't do.
        what: String,
    },
    /// The daemon is about to end.
    Stopping,

    // The daemon as a program.
    /// No daemon answers.
    DaemonUnreachable {
        /// Where it was sought, and the answer there.
        tried: Vec<(PathBuf, String)>,
    },
    /// The daemon is there and doesn't answer in time.
    DaemonUnresponsive {
        /// Where it was asked.
        socket: PathBuf,
        /// How long an answer was waited for.
        waited: Duration,
    },
    /// The worker ended although nobody asked it to.
    WorkerFailed {
        /// How it ended.
        status: String,
    },
    /// A setting is unknown or has a bad value.
    SettingsInvalid {
        /// The file and line, the variable or the flag.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A daemon answers at the socket that serves something else, or is someone else's.
    SocketInUse {
        /// The socket.
        socket: PathBuf,
        /// Who answers there.
        found: String,
    },
    /// The socket can't be made.
    SocketRefused {
        /// The path concerned.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The system refused something for which there is no name.
    System {
        /// The step that failed.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

/// What a caller finds where its lease should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Something else, by device and inode.
    Other(u64, u64),
    /// Nothing: the kernel's answer.
    Nothing(Errno),
}

impl Fault {
    /// What an operator needs to know: paths, errno, what was expected and what was found.
    #[must_use]
    pub fn cause(&self) -> String {
        self.text().cause
    }

    /// What a client is told. It has no path.
    #[must_use]
    pub fn message(&self) -> String {
        self.text().message
    }

    /// What can be done about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.text().remedy
    }

    /// All of it, for an operator.
    #[must_use]
    pub fn report(&self) -> FaultReport {
        let text = self.text();
        FaultReport {
            code: self.code().to_owned(),
            message: text.message,
            remedy: text.remedy,
            cause: Some(text.cause),
        }
    }

    /// What a client may see of it.
    #[must_use]
    pub fn report_to_client(&self) -> FaultReport {
        FaultReport { cause: None, ..self.report() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests;
