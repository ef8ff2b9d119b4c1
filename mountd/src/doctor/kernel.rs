//! What the kernel can do, by trying it: never by its version.
//!
//! The mount that it takes is attached nowhere, and ends with this process.

use std::sync::Arc;

use holdfast_fs::clock::System;
use holdfast_fs::fuse::{Connection, Features};
use holdfast_fs::tempfs::{Commons, Options, TempFs};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::{Case, Finding, daemon};
use crate::config::Store;
use crate::fault::Fault;
use crate::mount::attach::Mount;
use crate::mount::identity::Identity;
use crate::worker;

/// The promises that hang on what the kernel can do over a connection.
const OF_KERNEL: [&str; 3] = ["data-passthrough", "prompt-discard", "restart-unnoticed"];
const OLD: &str = "they come with a newer kernel (6.18 has all of them)";

pub(super) fn mount_numbers(_: &Case<'_>) -> Finding {
    let root = openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    match root.and_then(|root| Identity::of(std::os::fd::AsFd::as_fd(&root))) {
        Ok(identity) if identity.is_unique() => {
            Finding::ok("statx tells numbers of mounts that are never used again")
        }
        Ok(_) => Finding::ok("statx tells numbers of mounts, which may be used again"),
        Err(errno) => {
            let missing = "numbers of mounts in statx";
            Finding::problem(&Fault::KernelTooOld { missing, errno })
        }
    }
}

pub(super) fn fuse_features(case: &Case<'_>) -> Finding {
    let lost: Vec<(String, String)> = if case.host.privileged {
        match try_features(case) {
            Ok(features) => worker::lost_promises(features, true, true, &Store::Tmpfs),
            Err(fault @ Fault::FuseDeviceMissing { .. }) => {
                return Finding::skipped(format!("can't be tried: {}", fault.cause()));
            }
            Err(fault) => return Finding::problem(&fault),
        }
    } else {
        match daemon::describe(case) {
            Ok(Some(described)) => {
                let lost = described.description.lost_promises.into_iter();
                // For want of a privilege, whatever the kernel can do.
                let lost = lost.filter(|lost| lost.name != "data-passthrough");
                lost.map(|lost| (lost.name, lost.why)).collect()
            }
            Ok(None) | Err(_) => {
                return Finding::skipped("only a running daemon of this user's could tell");
            }
        }
    };
    let lost: Vec<_> = lost.iter().filter(|(name, _)| OF_KERNEL.contains(&name.as_str())).collect();
    if lost.is_empty() {
        let passes = if case.host.privileged { "files are passed through, " } else { "" };
        return Finding::ok(format!("{passes}caches are pruned, and requests are sent again"));
    }
    let found: Vec<_> = lost.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let names: Vec<_> = lost.iter().map(|(name, _)| name.as_str()).collect();
    Finding::warning(found.join("; "), OLD).costing(&names)
}

/// Makes a mount that nobody can reach, and shakes hands with the kernel over it.
fn try_features(case: &Case<'_>) -> Result<Features, Fault> {
    let host = case.host;
    let mount = Mount::make_unattached("/".as_ref(), host, None)?;
    let failed = |step| move |errno| Fault::System { step, errno };
    let connection = mount.connection().map(|device| device.try_clone_to_owned());
    let device = match connection {
        Some(Ok(device)) => device,
        Some(Err(error)) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(failed("copy the device")(errno));
        }
        None => return Err(failed("find the device")(Errno::NODEV)),
    };
    let options = Options { uid: host.uid, gid: host.gid, many_users: true, descriptors: 16 };
    let records = TempFs::records().map_err(failed("make the file of inode records"))?;
    let fs = TempFs::new(records, Commons::new(options, Arc::new(System)))
        .map_err(failed("map the inode records"))?;
    let connection = Connection::open(device, Arc::new(fs), 1).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        failed("shake hands with the kernel")(errno)
    })?;
    Ok(connection.features())
}
