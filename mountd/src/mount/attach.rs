//! Makes the mount and takes it away again, with the privilege or through `fusermount3`.
//!
//! Only a mount that is known by its identity is ever taken away, and none that has something else
//! mounted on it or in it.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::check::Mountpoint;
use super::detach::detach_known;
use super::helper;
use super::identity::{Entry, Identity, SOURCE, Table};
use super::probe::{self, Served};
use crate::channel::receive_descriptor;
use crate::config::Host;
use crate::fault::Fault;
use crate::place::{Place, in_proc};

const DEVICE: &str = "/dev/fuse";
/// Where the helper looks for the number of the socket over which it sends the device.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// Our mount, and the kernel's end of it.
#[derive(Debug)]
pub(crate) struct Mount {
    /// The device number of its filesystem, as `st_dev`.
    pub(crate) device: u64,
    /// Which mounts of it were attached; some may be gone by now. Their identities are never used
    /// again as long as the filesystem is held, and with the numbers of Linux 6.8 not even then.
    attached: Vec<Identity>,
    /// The device, as long as it is kept: the last copy that is closed ends the connection.
    connection: Option<OwnedFd>,
    /// The first mount of it, until it is attached.
    unattached: Option<OwnedFd>,
    /// A mount that is attached nowhere, ever: it keeps the filesystem, whoever detaches others.
    kept: Option<OwnedFd>,
    options: Vec<(&'static str, String)>,
}

impl Mount {
    /// Whether there is a device at all, which is worth knowing before anything is started.
    pub(crate) fn require_device() -> Result<(), Fault> {
        statx(CWD, DEVICE, AtFlags::empty(), StatxFlags::TYPE).map(drop).map_err(device_missing)
    }

    /// Makes a mount for the checked mountpoint. With the privilege it is attached only later, so
    /// that nobody meets it before it is served; the helper can't do that.
    pub(crate) fn make(
        mountpoint: &Mountpoint,
        host: Host,
        context: Option<&str>,
    ) -> Result<Self, Fault> {
        if host.privileged {
            return Self::make_unattached(mountpoint.place.path(), host, context);
        }
        if context.is_some() {
            let what = "a mount context without the privilege to mount".to_owned();
            return Err(Fault::NotSupported { what });
        }
        Self::make_by_helper(mountpoint, host)
    }

    /// Makes a mount that is attached nowhere; `path` is only for what is said of it.
    pub(crate) fn make_unattached(
        path: &Path,
        host: Host,
        context: Option<&str>,
    ) -> Result<Self, Fault> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = openat(CWD, DEVICE, flags, Mode::empty()).map_err(device_missing)?;
        let mut options = vec![
            ("source", SOURCE.to_owned()),
            ("subtype", SOURCE.to_owned()),
            // What the kernel goes by until its first question is answered.
            ("rootmode", "41777".to_owned()),
            ("user_id", host.uid.to_string()),
            ("group_id", host.gid.to_string()),
        ];
        options.extend(context.map(|context| ("context", context.to_owned())));
        let unattached = one_more(path, device.as_fd(), &options)?;
        let identity =
            |mount: &OwnedFd| Identity::of(mount.as_fd()).map_err(refused(path, "find the mount"));
        let number = identity(&unattached)?.device;
        // An older kernel doesn't know that the device is the same one.
        let kept = one_more(path, device.as_fd(), &options).ok();
        let kept = kept.filter(|kept| identity(kept).is_ok_and(|kept| kept.device == number));
        Ok(Self {
            device: number,
            attached: Vec::new(),
            connection: Some(device),
            unattached: Some(unattached),
            kept,
            options,
        })
    }

    fn make_by_helper(mountpoint: &Mountpoint, host: Host) -> Result<Self, Fault> {
        let place = &mountpoint.place;
        let system = |errno| Fault::System { step: "make a socket for the helper", errno };
        let kind = SocketType::STREAM;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map_err(system)?;
        let options =
            format!("rw,nosuid,nodev,default_permissions,fsname={SOURCE},subtype={SOURCE}");
        let mut helper = helper::command();
        helper.args(["-o", &options, "--"]).arg(place.path());
        helper.env(HELPER_SOCKET, "0").stdin(Stdio::from(theirs));
        let output = helper::run(place.path(), &mut helper);
        // Else our own copy of its end would keep us waiting for what it hasn't sent.
        drop(helper);
        let output = output.map_err(|fault| {
            // The helper opens the device with our rights; so we can tell that reason from others.
            match openat(CWD, DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                Ok(_) => fault,
                Err(errno) => device_missing(errno),
            }
        })?;
        let device = match receive_descriptor(ours.as_fd()) {
            Ok(Some(device)) => device,
            Ok(None) => return Err(helper::refused(place.path(), &output)),
            Err(errno) => return Err(system(errno)),
        };
        // By path, as the helper did it; that it is ours the kernel's table confirms.
        let unusable = |errno| {
            let path = place.path().to_owned();
            Fault::MountpointUnusable { path, step: "find the new mount at", errno }
        };
        let (identity, table) = at(place).map_err(unusable)?;
        if !table.by_id(identity.id).is_some_and(|entry| entry.is_holdfast_of(host.uid)) {
            return Err(unusable(Errno::STALE));
        }
        let mut mount = Self {
            device: identity.device,
            attached: vec![identity],
            connection: Some(device),
            unattached: None,
            kept: None,
            options: Vec::new(),
        };
        // The helper goes by the path too: where somebody was quicker, the mount is on something that
        // was never checked.
        if !place.keeps(mountpoint.directory.descriptor.as_fd()) {
            mount.detach(host)?;
            return Err(unusable(Errno::STALE));
        }
        Ok(mount)
    }

    /// The device, for the one who serves it.
    pub(crate) fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    /// Whether the kernel still answers to the device: that it doesn't is seen here before whoever
    /// serves it has noticed.
    pub(crate) fn is_connected(&self) -> bool {
        let Some(device) = &self.connection else { return false };
        let mut asked = [PollFd::new(device, PollFlags::empty())];
        // What can't be asked is told by whoever serves it.
        let answered = poll(&mut asked, Some(&Timespec::default()));
        answered.is_err() || !asked[0].revents().contains(PollFlags::ERR)
    }

    /// Gives the device up. Where nobody else has it, what still waits for an answer gets an error.
    pub(crate) fn close_connection(&mut self) {
        self.connection = None;
    }

    /// Whether this is one of the mounts that were attached.
    pub(crate) fn is(&self, identity: Identity) -> bool {
        // A number that can be used again may be another mount's by now.
        let is_ours = |table: Table| table.by_id(identity.id).is_some_and(Entry::is_holdfast);
        self.attached.contains(&identity)
            && (identity.is_unique() || Table::read().is_ok_and(is_ours))
    }

    /// Whether it can be attached, to begin with or again.
    pub(crate) const fn is_attachable(&self) -> bool {
        self.unattached.is_some() || self.kept.is_some()
    }

    /// Whether any mount of it may be somewhere still; those that are gone are given up.
    pub(crate) fn is_somewhere(&mut self) -> bool {
        if let Ok(table) = Table::read() {
            self.attached.retain(|mount| {
                table.by_id(mount.id).is_some_and(|entry| entry.device == mount.device)
            });
        }
        !self.attached.is_empty()
    }

    /// Whether the filesystem can be attached again after somebody has detached it.
    pub(crate) const fn comes_back(&self) -> bool {
        self.kept.is_some()
    }

    /// Lets go of the connection and of the filesystem: what still uses it goes on with whoever
    /// serves it.
    pub(crate) fn let_go(&mut self) {
        (self.connection, self.unattached, self.kept) = (None, None, None);
    }

    /// Puts a mount of the filesystem onto the very directory that was checked, and makes sure
    /// that the path leads to it. The helper has done so already. Where somebody is so quick that the
    /// directory or the mount is gone again, that is for whoever looks next.
    pub(crate) fn attach(&mut self, mountpoint: &Mountpoint) -> Result<(), Fault> {
        let place = &mountpoint.place;
        let refused = |step| refused(place.path(), step);
        let mount = match (self.unattached.take(), &self.connection) {
            (Some(mount), _) => mount,
            (None, Some(device)) if self.comes_back() => {
                one_more(place.path(), device.as_fd(), &self.options)?
            }
            (None, _) => {
                self.greet(place);
                return Ok(());
            }
        };
        let new = Identity::of(mount.as_fd()).map_err(refused("find the new mount"))?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        match move_mount(&mount, "", &mountpoint.directory.descriptor, "", flags) {
            Ok(()) => {}
            // The directory was removed since it was checked.
            Err(Errno::NOENT) => {
                self.unattached = Some(mount);
                return Ok(());
            }
            Err(errno) => return Err(refused("attach the mount")(errno)),
        }
        self.is_somewhere();
        self.attached.push(new);
        let parent = Identity::of(place.parent()).map_err(refused("find the mount beneath"))?;
        let seen = at(place);
        if let Ok((identity, table)) = &seen {
            let beneath = table.by_id(new.id).map(|entry| entry.parent);
            if *identity == new && beneath == Some(parent.id) {
                return Ok(());
            }
        }
        // Somebody mounted or moved something there between the check and now, or has taken it away
        // again already.
        match unmount(in_proc(mount.as_fd()), UnmountFlags::DETACH) {
            Ok(()) => {
                let errno = seen.err().unwrap_or(Errno::STALE);
                Err(refused("find the attached mount")(errno))
            }
            Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(refused("detach")(errno)),
        }
    }

    /// Has the kernel hear what the root is before any client is there. A mount of the helper's
    /// begins with a root that lets nobody in, and the kernel drops what it is told of it where
    /// something is invalidated meanwhile: clients that come all at once would be refused.
    fn greet(&self, place: &Place) {
        let ours = |root: &OwnedFd| Identity::of(root.as_fd()).is_ok_and(|root| self.is(root));
        let root = place.look().ok().flatten().filter(ours);
        let asked = root.map(|root| probe::ask(root.as_fd()));
        if !matches!(asked, Some(Ok(Served::Yes))) {
            tracing::debug!(device = self.device, ?asked, "the mount isn't served yet");
        }
    }

    /// Takes each mount of it away that is still somewhere, where nothing else is mounted on it or
    /// in it. It is gone at once from the path; what is open in it stays open.
    pub(crate) fn detach(&mut self, host: Host) -> Result<(), Fault> {
        let mut result = Ok(());
        for identity in std::mem::take(&mut self.attached) {
            if let Err(fault) = detach_known(identity, host) {
                self.attached.push(identity);
                result = result.and(Err(fault));
            }
        }
        result
    }
}

/// A mount of the filesystem of a device that is attached nowhere yet. Of a device that is mounted
/// already it is one more mount of the very same filesystem.
fn one_more(
    path: &Path,
    device: BorrowedFd<'_>,
    options: &[(&'static str, String)],
) -> Result<OwnedFd, Fault> {
    let refused = |step| refused(path, step);
    let setup = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| match errno {
        Errno::NOSYS => Fault::KernelTooOld { missing: "fsopen", errno },
        Errno::NODEV => device_missing(errno),
        errno => refused("begin a mount")(errno),
    })?;
    let number = device.as_raw_fd().to_string();
    fsconfig_set_string(setup.as_fd(), "fd", &number).map_err(refused("set an option"))?;
    for (name, value) in options {
        fsconfig_set_string(setup.as_fd(), *name, value).map_err(refused("set an option"))?;
    }
    for name in ["allow_other", "default_permissions"] {
        fsconfig_set_flag(setup.as_fd(), name).map_err(refused("set an option"))?;
    }
    fsconfig_create(setup.as_fd()).map_err(refused("make the filesystem"))?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(setup.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(refused("make the mount"))
}

fn refused(path: &Path, step: &'static str) -> impl Fn(Errno) -> Fault {
    move |errno| Fault::MountRefused { path: path.to_owned(), step, errno }
}

/// Which mount is at a place, and the table that lists it.
fn at(place: &Place) -> Result<(Identity, Table), Errno> {
    let found = place.look().ok().flatten().ok_or(Errno::NOENT)?;
    let identity = Identity::of(found.as_fd())?;
    let table = Table::read().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok((identity, table))
}

fn device_missing(errno: Errno) -> Fault {
    Fault::FuseDeviceMissing { device: DEVICE.into(), errno }
}
