//! What a daemon of this user has left behind that ended without clearing away, at the places where
//! one would serve.
//!
//! It must never touch what somebody serves, nor anything at another place, nor what isn't ours.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::config::{Host, Settings};
use crate::fault::Fault;
use crate::keeper;
use crate::mount::check::{self, Found, is_abandoned};

/// A kind of remnant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A mount that nobody serves.
    StaleMount,
    /// A socket at which nobody listens.
    StaleSocket,
}

/// Something that was left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Remnant {
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    /// Whether it was swept away.
    pub(crate) swept: bool,
}

/// Looks, and changes nothing. What can't be looked at is nothing that may be swept.
pub(crate) fn look(host: Host, settings: &Settings) -> Vec<Remnant> {
    let mut found = Vec::new();
    let mut add =
        |kind, path: &Path| found.push(Remnant { kind, path: path.to_owned(), swept: false });
    if let Ok(Found::OfThisUser(mount, _)) = check::look(&settings.mountpoint, host, |_| false)
        && is_abandoned(mount.as_fd())
    {
        add(Kind::StaleMount, &settings.mountpoint);
    }
    if keeper::is_left(host, &settings.socket) {
        add(Kind::StaleSocket, &settings.socket);
    }
    found
}

/// Takes what was found away, as a daemon would that starts there and stops at once: with the same
/// checks, and from nobody who has come meanwhile. Says what is still there.
pub(crate) fn sweep(host: Host, settings: &Settings, found: &mut [Remnant]) -> Result<(), Fault> {
    if found.is_empty() {
        return Ok(());
    }
    let cleared = keeper::clear_remnants(host, settings);
    let left = look(host, settings);
    for remnant in found.iter_mut() {
        remnant.swept = !left.iter().any(|left| left.kind == remnant.kind);
    }
    cleared
}
