//! What is said of each fault: to the operator, to the client, and about the way out.
//!
//! A message must never carry a path.

use super::{Fault, Seen};

/// The three texts of a fault.
pub(super) struct Text {
    pub(super) cause: String,
    pub(super) message: String,
    pub(super) remedy: String,
}

fn text(cause: String, message: impl Into<String>, remedy: impl Into<String>) -> Text {
    Text { cause, message: message.into(), remedy: remedy.into() }
}

/// A message that says all that is known is its own cause.
fn plain(message: impl Into<String>, remedy: impl Into<String>) -> Text {
    let message = message.into();
    text(message.clone(), message, remedy)
}

const OTHER_MOUNTPOINT: &str = "or choose another place with --mountpoint";
const OTHER_STORE: &str = "or choose another directory with --store";

impl Fault {
    /// One arm for each fault, so that all that is said of it stands in one place.
    pub(super) fn text(&self) -> Text {
        match self {
            Self::FuseDeviceMissing { device, errno } => text(
                format!("{} can't be opened: {errno}", device.display()),
                "the host has no usable FUSE device",
                "load the kernel's module with `modprobe fuse`, and let users open the device \
                 (`chmod 666 /dev/fuse`); in a container, start it with `--device /dev/fuse`",
            ),
            Self::FusermountMissing { errno } => text(
                format!("fusermount3 can't be started: {errno}"),
                "the helper that mounts for ordinary users is not installed",
                "install it: `apt-get install fuse3`",
            ),
            Self::FusermountRefused { path, status, stderr } => text(
                format!("fusermount3 on {} ended with {status}: {stderr}", path.display()),
                "the helper that mounts for ordinary users refused to mount",
                "its own words stand in the cause; it must be set-uid root and the mountpoint \
                 must belong to you",
            ),
            Self::MountRefused { path, step, errno } => text(
                format!("{step} for {}: {errno}", path.display()),
                "the kernel refused the mount",
                "a security module or a container's profile forbids it: allow mounting there, or \
                 start the daemon without CAP_SYS_ADMIN so that it uses fusermount3",
            ),
            Self::UsernsRefused { step, errno } => text(
                format!("{step}: {errno}"),
                "the host refuses user namespaces, so an ordinary user gets no tmpfs",
                "allow them (`sysctl kernel.unprivileged_userns_clone=1`, `sysctl \
                 user.max_user_namespaces=10000`, on Ubuntu `sysctl \
                 kernel.apparmor_restrict_unprivileged_userns=0`), or keep the files in a \
                 directory: `--store dir:PATH`",
            ),
            Self::KernelTooOld { missing, errno } => text(
                format!("the kernel has no {missing}: {errno}"),
                "the kernel is too old to serve the namespace",
                "Linux 5.15 is the oldest that may serve",
            ),

            Self::MountpointParentMissing { parent, errno } => text(
                format!("{} can't be opened: {errno}", parent.display()),
                "the directory that should contain the mountpoint is not there",
                format!("make {}, {OTHER_MOUNTPOINT}", parent.display()),
            ),
            Self::MountpointParentNotDirectory { parent } => text(
                format!("{}: expected a directory, found something else", parent.display()),
                "what should contain the mountpoint is not a directory",
                format!("make {} a directory, {OTHER_MOUNTPOINT}", parent.display()),
            ),
            Self::MountpointParentWritable { parent, owner, mode } => text(
                format!(
                    "{} belongs to uid {owner} and has mode {mode:04o}: expected that it is \
                     root's or the daemon's user's, and that others can't write there, or the \
                     sticky bit",
                    parent.display()
                ),
                "others could replace the mountpoint at any time",
                format!("`chmod +t {0}` or `chmod go-w {0}`, {OTHER_MOUNTPOINT}", parent.display()),
            ),
            Self::MountpointSymlink { path, target } => text(
                format!(
                    "{}: expected a directory, found a symbolic link to {}",
                    path.display(),
                    target.display()
                ),
                "a symbolic link is where the namespace should be",
                format!("remove the link {}, {OTHER_MOUNTPOINT}", path.display()),
            ),
            Self::MountpointNotDirectory { path, found } => text(
                format!("{}: expected a directory, found a {found}", path.display()),
                "something that is not a directory is where the namespace should be",
                format!("move {} away, {OTHER_MOUNTPOINT}", path.display()),
            ),
            Self::MountpointWrongOwner { path, expected, found } => text(
                format!("{}: expected owner {expected}, found {found}", path.display()),
                format!("the mountpoint belongs to uid {found}"),
                format!("have {} removed by uid {found}, {OTHER_MOUNTPOINT}", path.display()),
            ),
            Self::MountpointWrongMode { path, expected, found } => text(
                format!("{}: expected mode {expected:04o}, found {found:04o}", path.display()),
                "the mountpoint has another mode than the daemon gives it",
                format!("`chmod {expected:o} {}`, {OTHER_MOUNTPOINT}", path.display()),
            ),
            Self::MountpointNotEmpty { path, entry } => text(
                format!(
                    "{}: expected an empty directory, found {}",
                    path.display(),
                    entry.display()
                ),
                "the mount would hide files that are in the mountpoint",
                format!("move what is in {} away, {OTHER_MOUNTPOINT}", path.display()),
            ),
            Self::MountpointForeignMount { path, fstype, source, owner: Some(uid) } => text(
                format!(
                    "{}: expected no mount, found {source} of type {fstype}, of uid {uid}",
                    path.display()
                ),
                format!("a daemon of uid {uid} serves this mountpoint"),
                format!(
                    "leave out --mountpoint to have one of your own, or ask uid {uid} to stop the \
                     daemon at {}",
                    path.display()
                ),
            ),
            Self::MountpointForeignMount { path, fstype, source, owner: None } => text(
                format!("{}: expected no mount, found {source} of type {fstype}", path.display()),
                "something else is mounted where the namespace should be",
                format!("unmount {}, {OTHER_MOUNTPOINT}", path.display()),
            ),
            Self::MountpointInUse { path } => text(
                format!(
                    "{}: expected no mount, found a live one of another daemon of yours",
                    path.display()
                ),
                "another daemon of the same user serves this mountpoint",
                format!(
                    "name its socket with --socket or HOLDFAST_SOCKET (the daemon's `status` and log \
                     say it) and use it, or stop it with `down`, {OTHER_MOUNTPOINT}"
                ),
            ),
            Self::MountpointUnusable { path, step, errno } => text(
                format!("{step} {}: {errno}", path.display()),
                "the mountpoint can't be used",
                format!("see the cause, {OTHER_MOUNTPOINT}"),
            ),
            Self::MountpointNotVisible { path, expected, found } => text(
                format!(
                    "{}: expected device {} inode {}, found {}",
                    path.display(),
                    expected.0,
                    expected.1,
                    seen(found)
                ),
                "the caller does not see the namespace, as in a mount namespace of its own",
                "run it where the mount is visible (no PrivateTmp, no container without it), or \
                 start a daemon in there",
            ),
            Self::MountStale { path, cause } => text(
                format!("a stale mount of an earlier daemon stays on {}: {cause}", path.display()),
                "a stale mount of an earlier daemon is in the way",
                format!("`umount -l {0}` or `fusermount3 -u -z {0}`", path.display()),
            ),
            Self::MountDetached { mountpoint } => text(
                format!("somebody has detached the mount at {}", mountpoint.display()),
                "the namespace was detached from its path",
                "ask again: it is put back as soon as its path is free",
            ),
            Self::ConnectionAborted { mountpoint } => text(
                format!("the connection that served {} was ended", mountpoint.display()),
                "the connection to the kernel was ended from outside",
                "ask again: a new one over the same store begins as soon as its path is free; \
                 directories that were open have to be opened again",
            ),

            Self::StoreParentMissing { parent, errno } => text(
                format!("{} can't be opened: {errno}", parent.display()),
                "the directory that should contain the store is not there",
                format!("make {}, {OTHER_STORE}", parent.display()),
            ),
            Self::StoreLocked { path } => text(
                format!("{} is locked by another process", path.display()),
                "another daemon uses the store",
                format!("stop that daemon, {OTHER_STORE}"),
            ),
            Self::StoreSymlink { path, target } => text(
                format!(
                    "{}: expected a directory, found a symbolic link to {}",
                    path.display(),
                    target.display()
                ),
                "the store is a symbolic link",
                "name the directory itself with --store",
            ),
            Self::StoreNotDirectory { path, found } => text(
                format!("{}: expected a directory, found a {found}", path.display()),
                "the store is not a directory",
                format!("move it away, {OTHER_STORE}"),
            ),
            Self::StoreWrongOwner { path, expected, found } => text(
                format!("{}: expected owner {expected}, found {found}", path.display()),
                "the store belongs to someone else",
                format!("`chown {expected} {}`, {OTHER_STORE}", path.display()),
            ),
            Self::StoreWrongMode { path, expected, found } => text(
                format!("{}: expected mode {expected:04o}, found {found:04o}", path.display()),
                "the store is open to others",
                format!("`chmod {expected:o} {}`, {OTHER_STORE}", path.display()),
            ),
            Self::StoreUnusable { step, errno } => text(
                format!("{step}: {errno}"),
                "the store can't be used",
                format!("see the cause, {OTHER_STORE}"),
            ),
            Self::SavedVersionUnknown { file, found } => text(
                format!("{file} in the store is of version {found}"),
                "the sessions that are saved in the store are of a version that this daemon \
                 doesn't know",
                format!("start the Holdfast that saved them, {OTHER_STORE}"),
            ),
            Self::SavedUnreadable { file, reason } => text(
                format!("{file} in the store can't be read: {reason}"),
                "the sessions that are saved in the store can't be read",
                format!(
                    "nothing was changed; look at the file that the cause names. If it can't be \
                     mended, move the directory that it is in away: the sessions are forgotten \
                     then, and their files stay in the store; {OTHER_STORE}"
                ),
            ),
            Self::StoreFull => plain(
                "the store has no space left",
                "remove what is not needed, or give the session more with `session resize`, or the \
                 daemon with `serve --total`",
            ),
            Self::StoreOutOfInodes => plain(
                "the store has no inodes left",
                "remove what is not needed, or give the session more with `session resize`",
            ),
            Self::GenerationsExhausted { limit: 0 } => plain(
                "there are no descriptors, or no numbers, for another generation",
                "end what still uses retired generations, close sessions, or start the daemon \
                 with a higher limit of open files",
            ),
            Self::GenerationsExhausted { limit } => plain(
                format!("all {limit} generations that there may be are in use"),
                "end what still uses retired generations, or close sessions",
            ),

            Self::SessionUnknown { session } => plain(
                format!("there is no session {session:?}"),
                "`session list` shows the sessions that there are",
            ),
            Self::SessionSealed { session } => plain(
                format!("the session {session:?} has ended and takes no new lease"),
                "open a new session",
            ),
            Self::SessionNotYours { session } => plain(
                format!("the session {session:?} belongs to another user"),
                "open a session of your own",
            ),
            Self::PolicyDiffers { session, difference } => plain(
                format!("the session {session:?} is open under another policy: {difference}"),
                "ask for the same policy or for none, or use another name",
            ),
            Self::LeaseUnknown { lease } => plain(
                format!("there is no lease {lease:?}"),
                "`lease list` shows the leases that there are",
            ),
            Self::TokenUnknown => plain(
                "there is no such owner token",
                "use the token that opening or retaining the session answered with",
            ),
            Self::NotFromInside { session } => plain(
                format!("a process inside a lease may not end its own session {session:?}"),
                "ask from outside, or from a process that owns the session",
            ),
            Self::NameInvalid { reason } => plain(
                format!("the name breaks a rule: {reason}"),
                "a name has 1 to 128 bytes of UTF-8 without control characters",
            ),
            Self::LimitReached { limit, value } => plain(
                format!("the limit is reached: {limit} ({value})"),
                "release what is not needed any more",
            ),
            Self::SessionsAlive { sessions } => plain(
                format!("sessions live: {}", sessions.join(", ")),
                "close them first, or use `down --drain` to wait or `down --force` not to",
            ),
            Self::DaemonNotYours { owner } => {
                plain(format!("the daemon belongs to uid {owner}"), "ask that user, or root")
            }
            Self::ProcessUnknown { pid } => plain(
                format!("there is no process {pid}, or it is not yours"),
                "name a process of yours that lives",
            ),
            Self::RequestInvalid { reason } => {
                plain(format!("the request is not valid: {reason}"), "mend the request")
            }
            Self::RequestTooLarge { limit } => {
                plain(format!("the request has more than {limit} bytes"), "send a smaller one")
            }
            Self::NotSupported { what } => plain(
                format!("not supported: {what}"),
                "leave out what asks for it, or use a store, a version or a host that supports it",
            ),
            Self::Stopping => plain("the daemon is about to end", "ask again once it has"),

            Self::DaemonUnreachable { tried } => text(
                tried
                    .iter()
                    .map(|(path, answer)| format!("{}: {answer}", path.display()))
                    .collect::<Vec<_>>()
                    .join("; "),
                "no daemon answers",
                "start one with `holdfast serve`, or name its socket with --socket",
            ),
            Self::DaemonUnresponsive { socket, waited } => text(
                format!("{}: no answer within {waited:?}", socket.display()),
                "the daemon does not answer",
                "see the daemon's log; end it and start it again if it stays so",
            ),
            Self::WorkerFailed { status } => text(
                format!("the worker ended: {status}"),
                "the daemon's worker ended",
                "see the log above, and start the daemon again",
            ),
            Self::SettingsInvalid { place, reason } => text(
                format!("{place}: {reason}"),
                "a setting is not valid",
                "mend it at the place that the cause names",
            ),
            Self::SocketInUse { socket, found } => text(
                format!("{}: expected no answer, found {found}", socket.display()),
                "another service answers at the control socket",
                "choose another socket with --socket",
            ),
            Self::SocketRefused { path, reason } => text(
                format!("{}: {reason}", path.display()),
                "the control socket can't be made",
                "mend what the cause names, or choose another socket with --socket",
            ),
            Self::System { step, errno } => text(
                format!("{step}: {errno}"),
                "the system refused something that the daemon needs",
                "see the cause",
            ),
        }
    }
}

fn seen(found: &Seen) -> String {
    match found {
        Seen::Other(device, inode) => format!("device {device} inode {inode}"),
        Seen::Nothing(errno) => format!("nothing ({errno})"),
    }
}
