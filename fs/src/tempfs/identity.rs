//! Whom a thread makes files for.
//!
//! A file must belong to its caller before anyone can see it, so it is made by a thread that has
//! the caller's identity; the thread keeps its capabilities, because the kernel has checked the
//! caller's permissions with more knowledge (supplementary groups) than is sent along. What a
//! thread remembers here must never be more than a cache of what the kernel knows of it.

use std::cell::Cell;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::umask;
use rustix::thread::{
    CapabilitiesSecureBits, capabilities_secure_bits, set_capabilities_secure_bits,
};

use super::{Caller, TempFs};
use crate::sys::{set_file_system_owner, unshare_file_system_attributes};

/// The identity of a thread; `None` before the first file it makes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    owner: Option<(u32, u32)>,
    umask: u32,
}

thread_local! {
    static IDENTITY: Cell<Option<Identity>> = const { Cell::new(None) };
}

impl Caller {
    /// Whether a group is among the caller's. Who can't be seen any more is in none.
    pub(super) fn is_in_group(&self, gid: u32) -> bool {
        if self.gid == gid {
            return true;
        }
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.thread)) else {
            return false;
        };
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        groups.is_some_and(|groups| groups.split_whitespace().any(|group| group.parse() == Ok(gid)))
    }
}

impl TempFs {
    /// Gives this thread the caller's identity until another one is asked for. Costs no system
    /// call while the caller stays the same.
    pub(super) fn act_for(&self, caller: &Caller, mask: u32) -> Result<(), Errno> {
        let wanted = Identity {
            owner: self.commons.options().many_users.then_some((caller.uid, caller.gid)),
            umask: mask & 0o777,
        };
        let present = IDENTITY.get();
        if present == Some(wanted) {
            return Ok(());
        }
        if present.is_none() {
            unshare_file_system_attributes()?;
            if self.commons.options().many_users {
                // Otherwise another owner would cost the thread its capabilities over files.
                let bits = capabilities_secure_bits()? | CapabilitiesSecureBits::NO_SETUID_FIXUP;
                set_capabilities_secure_bits(bits)?;
            }
        }
        if let Some((uid, gid)) = wanted.owner
            && present.is_none_or(|present| present.owner != wanted.owner)
        {
            set_file_system_owner(uid, gid);
        }
        if present.is_none_or(|present| present.umask != wanted.umask) {
            umask(Mode::from_raw_mode(wanted.umask));
        }
        IDENTITY.set(Some(wanted));
        Ok(())
    }
}
