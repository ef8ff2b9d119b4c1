//! The hold on the path: what it leads to, and what the supervisor has done about it.
//!
//! It must never decide what to do, and never touch what has failed the check. Nothing here waits
//! for a path below the mount.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::config::Host;
use crate::fault::{Fault, FaultReport};
use crate::mount::attach::Mount;
use crate::mount::check::{Found, Mountpoint, look};
use crate::mount::identity::Identity;
use crate::mount::probe::{Asking, Served, ask};

/// What the path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Our own mount.
    Ours,
    /// Nothing, or a directory onto which the mount may go.
    Free,
    /// Something else.
    Unfit(FaultReport),
}

/// The mount and its place.
#[derive(Debug)]
pub(crate) struct Hold {
    host: Host,
    path: PathBuf,
    context: Option<String>,
    /// The directory that the mount is on, or was on last.
    mountpoint: Option<Mountpoint>,
    mount: Option<Mount>,
    /// Mounts of ours of connections that have ended, which may be somewhere still.
    left: Vec<Mount>,
    /// A mount of another daemon of this user that was asked whether anybody serves it, and hasn't
    /// answered: it isn't asked a second time.
    silent: Option<(Identity, Asking)>,
}

impl Hold {
    /// No mount yet.
    pub(crate) const fn new(host: Host, path: PathBuf, context: Option<String>) -> Self {
        Self { host, path, context, mountpoint: None, mount: None, left: Vec::new(), silent: None }
    }

    /// Where the namespace is to appear, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the path leads to at this moment.
    pub(crate) fn see(&self) -> Sight {
        let ours = |identity| self.mount.as_ref().is_some_and(|mount| mount.is(identity));
        match look(&self.path, self.host, ours) {
            Ok(Found::Known) => Sight::Ours,
            Ok(Found::Absent | Found::Free) => Sight::Free,
            // Whether it may be replaced is found out when that is tried.
            Ok(Found::OfThisUser(_, identity)) => match &self.silent {
                Some((silent, asking)) if *silent == identity && asking.waits() => {
                    Sight::Unfit(Fault::MountpointInUse { path: self.path.clone() }.report())
                }
                _ => Sight::Free,
            },
            Err(fault) => Sight::Unfit(fault.report()),
        }
    }

    /// Whether the connection to the kernel is one, as the kernel says. Where it goes with its mount,
    /// it is asked about only as long as the path leads to that.
    pub(crate) fn is_connected(&self, path: &Sight) -> bool {
        self.mount.as_ref().is_some_and(|mount| {
            let apart = !mount.comes_back() && *path != Sight::Ours;
            apart || mount.is_connected()
        })
    }

    /// Whether the kernel has ended the connection.
    pub(crate) fn has_ended(&self) -> bool {
        self.mount.as_ref().is_some_and(|mount| !mount.is_connected())
    }

    /// Checks the path, and makes the directory where there is none. `made` says whether the
    /// directory that is there was made by an earlier daemon.
    pub(crate) fn check(&mut self, made: impl FnOnce(&Path) -> bool) -> Result<&Mountpoint, Fault> {
        if let Ok(Found::OfThisUser(mount, identity)) = look(&self.path, self.host, |_| false)
            && let Ok(Served::Silent(asking)) = ask(mount.as_fd())
        {
            self.silent = Some((identity, asking));
            return Err(Fault::MountpointInUse { path: self.path.clone() });
        }
        let mut found = Mountpoint::check(&self.path, self.host)?;
        let before = self.mountpoint.as_ref();
        let same = before.is_some_and(|before| {
            before.directory.made && found.place.is(before.directory.descriptor.as_fd())
        });
        found.directory.made |= same || made(found.place.path());
        self.path = found.place.path().to_owned();
        Ok(self.mountpoint.insert(found))
    }

    /// The directory that the mount is on, where it is to go with it.
    pub(crate) fn made(&self) -> Option<&Path> {
        let mountpoint = self.mountpoint.as_ref()?;
        mountpoint.directory.made.then(|| mountpoint.place.path())
    }

    /// Begins a new connection for the place that was checked; the device and its number.
    pub(crate) fn begin(&mut self) -> Result<(BorrowedFd<'_>, u64), Fault> {
        let Some(mountpoint) = &self.mountpoint else { return Err(self.unchecked()) };
        let mount = Mount::make(mountpoint, self.host, self.context.as_deref())?;
        if let Some(mut before) = self.mount.take() {
            before.let_go();
            self.left.push(before);
            self.left.retain_mut(Mount::is_somewhere);
        }
        let mount = self.mount.insert(mount);
        let device = mount.device;
        // It has just been made.
        let connection = mount.connection().ok_or(Fault::Stopping)?;
        Ok((connection, device))
    }

    /// Whether the mount can be attached, to begin with or again.
    pub(crate) fn is_attachable(&self) -> bool {
        self.mount.as_ref().is_some_and(Mount::is_attachable)
    }

    /// Puts the mount onto the directory that was checked.
    pub(crate) fn attach(&mut self) -> Result<(), Fault> {
        match (&mut self.mount, &self.mountpoint) {
            (Some(mount), Some(mountpoint)) => mount.attach(mountpoint),
            _ => Err(self.unchecked()),
        }
    }

    /// Nothing goes to a place that was not checked.
    fn unchecked(&self) -> Fault {
        let (path, step) = (self.path.clone(), "use without a check");
        Fault::MountpointUnusable { path, step, errno: Errno::INVAL }
    }

    /// Takes our own mount from the path.
    pub(crate) fn clear_away(&mut self) -> Result<(), Fault> {
        match &mut self.mount {
            Some(mount) => mount.detach(self.host),
            None => Ok(()),
        }
    }

    /// Gives up the device. Where nobody else has it, what still waits for an answer gets an error.
    pub(crate) fn close_connection(&mut self) {
        if let Some(mount) = &mut self.mount {
            mount.close_connection();
        }
    }

    /// Takes away every mount of ours, as far as nothing of others is in the way.
    pub(crate) fn take_down(&mut self) -> Result<(), Fault> {
        let mounts = self.mount.iter_mut().chain(&mut self.left);
        // The first reason is told; the others are tried all the same.
        mounts.map(|mount| mount.detach(self.host)).fold(Ok(()), Result::and)
    }

    /// Lets the filesystem go, and removes the directory if it was made for it.
    pub(crate) fn leave(&mut self) {
        self.mount = None;
        self.left.clear();
        if let Some(Mountpoint { place, directory }) = self.mountpoint.take() {
            place.remove(&directory);
        }
    }
}
