//! Who runs a program of a test.
//!
//! A name or home directory is never looked up: ids are all that the tests need.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

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
