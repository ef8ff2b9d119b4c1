//! `--bind-tmp`: a mount namespace of the command's own in which its lease is `/tmp`.
//!
//! It must never change what other processes see.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

use crate::config::Host;
use crate::fault::Fault;
use crate::sys;

/// Where the lease then is.
pub(super) const PLACE: &str = "/tmp";

/// Moves this process into namespaces in which the leased directory is at [`PLACE`].
pub(super) fn over_tmp(host: Host, lease: &str) -> Result<(), Fault> {
    let refused = |step: &'static str| {
        move |errno: Errno| Fault::NotSupported { what: format!("--bind-tmp: {step}: {errno}") }
    };
    if host.privileged {
        sys::enter_new_mount_namespace().map_err(refused("make a mount namespace"))?;
    } else {
        sys::enter_new_namespaces().map_err(refused("make a user and a mount namespace"))?;
        keep_ids(host).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            refused("keep the user and the group")(errno)
        })?;
    }
    // What is mounted outside later is still seen; what is mounted in here stays in here.
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(refused("part from the mounts outside"))?;
    mount_bind(lease, PLACE).map_err(refused("bind the lease"))
}

fn keep_ids(host: Host) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{0} {0} 1", host.uid))?;
    fs::write("/proc/self/gid_map", format!("{0} {0} 1", host.gid))
}
