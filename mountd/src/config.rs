//! Settings: flags over `HOLDFAST_*` over a file over what suits the host.
//!
//! Nothing is guessed: an unknown key or a bad value is a fault that names its place. It must never
//! change anything at the paths that it names.

mod file;
mod value;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsopen};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Deserialize;

use crate::fault::Fault;
pub(crate) use value::{Store, parse_duration, parse_size, parse_span};

/// Where a daemon that serves the whole host listens.
pub(crate) const SYSTEM_SOCKET: &str = "/run/holdfast/control";
const SYSTEM_FILE: &str = "/etc/holdfast/config.toml";

/// What the kernel says of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Whether it may mount.
    pub(crate) privileged: bool,
    /// Its user.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
}

impl Host {
    /// Asks the kernel. A capability of a user namespace whose mounts are somebody else's is none,
    /// so the kernel is asked to begin a mount too.
    pub(crate) fn ask() -> Result<Self, Fault> {
        let sets = capabilities(None)
            .map_err(|errno| Fault::System { step: "ask for the capabilities", errno })?;
        let privileged = sets.effective.contains(CapabilitySet::SYS_ADMIN)
            && !matches!(fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC), Err(Errno::PERM));
        Ok(Self { privileged, uid: geteuid().as_raw(), gid: getegid().as_raw() })
    }

    /// The mode of a mountpoint that this process makes.
    pub(crate) const fn mountpoint_mode(self) -> u32 {
        if self.privileged { 0o755 } else { 0o700 }
    }
}

/// How `serve` serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Where the namespace appears.
    pub(crate) mountpoint: PathBuf,
    /// Where the daemon listens.
    pub(crate) socket: PathBuf,
    /// Whether the socket's directory is the daemon's own by default, so that it is made and
    /// checked as strictly as a mountpoint.
    pub(crate) own_socket_directory: bool,
    /// Where files are kept.
    pub(crate) store: Store,
    /// After how long without use the daemon leaves.
    pub(crate) idle_exit: Option<Duration>,
    /// Bytes that all sessions together may hold.
    pub(crate) total: Option<u64>,
    /// The SELinux context of the mount.
    pub(crate) context: Option<String>,
}

/// Which daemon a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientSocket {
    /// This one and no other.
    Named(PathBuf),
    /// The first of these that answers.
    Search(Vec<PathBuf>),
}

/// Settings that stand on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) mountpoint: Option<PathBuf>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) store: Option<Store>,
    pub(crate) idle_exit: Option<Duration>,
    pub(crate) total: Option<u64>,
    pub(crate) context: Option<String>,
}

/// Settings that stand in a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, deserialize_with = "value::absolute")]
    mountpoint: Option<PathBuf>,
    #[serde(default, deserialize_with = "value::absolute")]
    socket: Option<PathBuf>,
    #[serde(default, deserialize_with = "value::store")]
    store: Option<Store>,
    #[serde(default, deserialize_with = "value::duration")]
    idle_exit: Option<Duration>,
    #[serde(default, deserialize_with = "value::size")]
    total: Option<u64>,
    context: Option<String>,
}

/// The surroundings of the process, so that tests can have others.
struct Surroundings<'a> {
    host: Host,
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Whether a directory is there and is the user's own.
    own: &'a dyn Fn(&Path) -> bool,
    /// The file with settings, where there is one, and its text.
    file: Option<(PathBuf, String)>,
}

impl Settings {
    /// The settings of this process.
    pub(crate) fn read(host: Host, flags: Flags) -> Result<Self, Fault> {
        let variable = |name: &str| env::var_os(name);
        let file = read_file(host, &variable)?;
        let own = |path: &Path| is_own(host, path);
        resolve(&Surroundings { host, variable: &variable, own: &own, file }, flags)
    }
}

impl ClientSocket {
    /// Which daemon this process asks; `flag` is the one on the command line.
    pub(crate) fn find(host: Host, flag: Option<&Path>) -> Result<Self, Fault> {
        let variable = |name: &str| env::var_os(name);
        if let Some(named) = named_socket(flag.map(Path::to_owned), &variable)? {
            return Ok(Self::Named(named));
        }
        let file = read_file(host, &variable)?;
        let own = |path: &Path| is_own(host, path);
        let around = Surroundings { host, variable: &variable, own: &own, file };
        let own = resolve(&around, Flags::default())?;
        let mut places = vec![PathBuf::from(SYSTEM_SOCKET)];
        if own.socket != places[0] {
            places.push(own.socket);
        }
        // A daemon that was started without a runtime directory, or with another one.
        let other = socket_without_runtime_directory(host);
        if own.own_socket_directory
            && !host.privileged
            && !places.contains(&other)
            && other.parent().is_some_and(|directory| is_private(host, directory))
        {
            places.push(other);
        }
        Ok(Self::Search(places))
    }
}

fn resolve(around: &Surroundings<'_>, flags: Flags) -> Result<Settings, Fault> {
    let Surroundings { host, variable, own, file } = around;
    let file = match file {
        Some((path, text)) => parse_file(path, text)?,
        None => File::default(),
    };
    let mountpoint = match flag_path("--mountpoint", flags.mountpoint)? {
        Some(path) => Some(path),
        None => variable_path("HOLDFAST_MOUNTPOINT", variable)?,
    };
    let socket = named_socket(flags.socket, variable)?.or(file.socket);
    let store = match flags.store {
        Some(store) => Some(store.absolute().map_err(bad("--store"))?),
        None => variable_value("HOLDFAST_STORE", variable, Store::parse_absolute)?,
    };
    let idle_exit = match flags.idle_exit {
        Some(duration) => Some(duration),
        None => variable_value("HOLDFAST_IDLE_EXIT", variable, parse_duration)?,
    };
    let total = match flags.total {
        Some(total) => Some(total),
        None => variable_value("HOLDFAST_TOTAL", variable, parse_size)?,
    };
    let context = match flags.context {
        Some(context) => Some(context),
        None => variable_value("HOLDFAST_CONTEXT", variable, |text| Ok(text.to_owned()))?,
    };
    let own_socket_directory = socket.is_none();
    let (store, total) = (store.or(file.store).unwrap_or(Store::Tmpfs), total.or(file.total));
    if let (Store::Dir(_), Some(_)) = (&store, total) {
        let reason = "a directory as store can't be held to a total".to_owned();
        return Err(bad("total")(reason));
    }
    Ok(Settings {
        mountpoint: mountpoint.or(file.mountpoint).unwrap_or_else(|| default_mountpoint(*host)),
        socket: match socket {
            Some(socket) => socket,
            None => default_socket(*host, variable, own)?,
        },
        own_socket_directory,
        store,
        idle_exit: idle_exit.or(file.idle_exit),
        total,
        context: context.or(file.context),
    })
}

fn default_mountpoint(host: Host) -> PathBuf {
    if host.privileged {
        PathBuf::from("/tmp/mecatl")
    } else {
        PathBuf::from(format!("/tmp/mecatl-{}", host.uid))
    }
}

fn default_socket(
    host: Host,
    variable: &dyn Fn(&str) -> Option<OsString>,
    own: &dyn Fn(&Path) -> bool,
) -> Result<PathBuf, Fault> {
    if host.privileged {
        return Ok(PathBuf::from(SYSTEM_SOCKET));
    }
    Ok(match variable_path("XDG_RUNTIME_DIR", variable)? {
        // One that was left behind by another user, as by `su`, or by a login that is over, is none.
        Some(runtime) if own(&runtime) => runtime.join("holdfast/control"),
        Some(_) | None => socket_without_runtime_directory(host),
    })
}

/// Where the daemon of an ordinary user listens by default who has no runtime directory.
pub(crate) fn socket_without_runtime_directory(host: Host) -> PathBuf {
    PathBuf::from(format!("/tmp/holdfast-{}/control", host.uid))
}

fn is_own(host: Host, directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|facts| facts.is_dir() && facts.uid() == host.uid)
}

fn is_private(host: Host, directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|facts| {
        facts.is_dir() && facts.uid() == host.uid && facts.mode() & 0o7777 == 0o700
    })
}

fn named_socket(
    flag: Option<PathBuf>,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<PathBuf>, Fault> {
    match flag_path("--socket", flag)? {
        Some(path) => Ok(Some(path)),
        None => variable_path("HOLDFAST_SOCKET", variable),
    }
}

/// The file of the one who serves: the host's where it may mount, else the user's own.
fn file_path(host: Host, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if host.privileged {
        return Some(PathBuf::from(SYSTEM_FILE));
    }
    named("XDG_CONFIG_HOME")
        .or_else(|| named("HOME").map(|home| home.join(".config")))
        .map(|directory| directory.join("holdfast/config.toml"))
}

fn read_file(
    host: Host,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<(PathBuf, String)>, Fault> {
    let Some(path) = file_path(host, variable) else { return Ok(None) };
    match file::read(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) => match error.kind() {
            // A home that others may not enter, as of a service's user, has no settings for us.
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => {
                Ok(None)
            }
            _ => Err(Fault::SettingsInvalid {
                place: path.display().to_string(),
                reason: error.to_string(),
            }),
        },
    }
}

fn parse_file(path: &Path, text: &str) -> Result<File, Fault> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
        Fault::SettingsInvalid {
            place: match line {
                Some(line) => format!("{}:{line}", path.display()),
                None => path.display().to_string(),
            },
            reason: error.message().to_owned(),
        }
    })
}

fn bad(place: &str) -> impl FnOnce(String) -> Fault + '_ {
    move |reason| Fault::SettingsInvalid { place: place.to_owned(), reason }
}

fn flag_path(name: &str, value: Option<PathBuf>) -> Result<Option<PathBuf>, Fault> {
    let Some(path) = value else { return Ok(None) };
    // On the command line a path is relative to where the caller stands.
    let path = std::path::absolute(&path).map_err(|error| bad(name)(error.to_string()))?;
    value::with_name(&path).map_err(bad(name))?;
    Ok(Some(path))
}

fn variable_path(
    name: &str,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<PathBuf>, Fault> {
    let Some(value) = variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let path = PathBuf::from(value);
    value::absolute_with_name(&path).map_err(bad(name))?;
    Ok(Some(path))
}

fn variable_value<T>(
    name: &str,
    variable: &dyn Fn(&str) -> Option<OsString>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Fault> {
    let Some(value) = variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = value.to_str().ok_or_else(|| bad(name)("not UTF-8".to_owned()))?;
    parse(text).map(Some).map_err(bad(name))
}

#[cfg(test)]
mod tests;
