//! Who runs a program of a test.
//!
//! A name or home directory is never looked up: ids are all that the tests need.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{Gid, Uid};

/// Somebody by ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user id, which is the group id too.
    pub uid: u32,
    changes: bool,
}

impl User {
    /// Whoever runs the tests.
    #[must_use]
    pub fn same() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), changes: false }
    }

    /// Root, where root runs the tests.
    #[must_use]
    pub fn root() -> Option<Self> {
        Some(Self::same()).filter(|user| user.uid == 0)
    }

    /// An ordinary user: the one who runs the tests, or Debian's `daemon` where root does.
    #[must_use]
    pub fn ordinary() -> Self {
        if is_root() { Self { uid: 1, changes: true } } else { Self::same() }
    }

    /// Another ordinary user, Debian's `bin`, where root runs the tests.
    #[must_use]
    pub fn other() -> Option<Self> {
        is_root().then_some(Self { uid: 2, changes: true })
    }

    /// Whether this is root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Does something on this thread with this user's effective ids; it must start nothing.
    ///
    /// # Errors
    ///
    /// Where the ids can't be changed, and what it gives itself.
    pub fn act<T>(&self, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let become_effective = |uid| -> rustix::io::Result<()> {
            let (root, gid) = (Uid::ROOT, Gid::from_raw(uid));
            // Groups first: afterwards the right to change them is gone.
            rustix::thread::set_thread_res_uid(root, root, root)?;
            rustix::thread::set_thread_res_gid(Gid::ROOT, gid, Gid::ROOT)?;
            rustix::thread::set_thread_res_uid(root, Uid::from_raw(uid), root)
        };
        if !self.changes {
            return act();
        }
        become_effective(self.uid)?;
        let result = act();
        become_effective(0)?;
        result
    }

    /// Makes the calling thread this user's for good: also the kernel's filesystems, which look at
    /// every id, take it for that.
    ///
    /// # Errors
    ///
    /// Where the ids can't be changed.
    pub fn becomes_this_thread(&self) -> anyhow::Result<()> {
        if self.changes {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.uid));
            // Groups first: afterwards the right to change them is gone.
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        }
        Ok(())
    }

    /// Makes the program run as this user, without supplementary groups.
    pub fn applied_to(&self, command: &mut Command) {
        if self.changes {
            command.uid(self.uid).gid(self.uid);
        }
    }
}

/// Whether root runs the tests.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
