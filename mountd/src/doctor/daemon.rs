//! What a running daemon says of itself.
//!
//! It must never start one.

use std::time::Duration;

use super::{Case, Finding, Verdict};
use crate::config::ClientSocket;
use crate::control::client::Client;
use crate::control::wire;
use crate::fault::FaultReport;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// A daemon that answers.
pub(super) struct Described {
    pub(super) description: wire::Description,
    pub(super) status: wire::CurrentStatus,
}

/// Asks the daemon that a client would find; `None` where none is there.
pub(super) fn describe(case: &Case<'_>) -> Result<Option<Described>, FaultReport> {
    let place = ClientSocket::find(case.host, case.socket)?;
    let Ok(mut client) = Client::search(&place)? else { return Ok(None) };
    client.set_deadline(Some(PATIENCE));
    let description = client.call(&wire::Describe {})?;
    let status = client.call(&wire::Status {})?;
    Ok(Some(Described { description, status }))
}

pub(super) fn answers(case: &Case<'_>) -> Finding {
    let Described { description, status } = match describe(case) {
        Ok(Some(described)) => described,
        Ok(None) => return Finding::skipped("none answers; `run` and `serve` start one"),
        Err(report) => return Finding::reported(report),
    };
    let wire::Description { version, mountpoint, socket, store, uid, .. } = description;
    let wire::Counts { sessions, leases, .. } = status.counts;
    let found = format!(
        "uid {uid}'s serves {mountpoint} at {socket}, files in {store}, sessions: {sessions}, \
         leases: {leases}"
    );
    if let Some(wire::Fault { code, message, remedy, cause }) = status.fault {
        return Finding::reported(FaultReport { code, message, remedy, cause });
    }
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        let remedy = "start the daemon again when nobody needs it: `holdfast down`";
        return Finding::warning(format!("{found}; version {version}, this is {own}"), remedy);
    }
    if status.draining {
        let found = format!("{found}; it ends after the last session");
        return Finding::warning(found, "start one again when it has ended");
    }
    Finding::ok(found)
}

pub(super) fn promises(case: &Case<'_>) -> Finding {
    let lost = match describe(case) {
        Ok(Some(described)) => described.description.lost_promises,
        Ok(None) => return Finding::skipped("no daemon answers"),
        Err(report) => {
            return Finding { verdict: Verdict::Skipped, ..Finding::reported(report) };
        }
    };
    if lost.is_empty() {
        return Finding::ok("the daemon keeps all of them on this host");
    }
    let found: Vec<_> = lost.iter().map(|lost| format!("{}: {}", lost.name, lost.why)).collect();
    let names: Vec<_> = lost.iter().map(|lost| lost.name.as_str()).collect();
    let mut found = format!("the daemon can't keep {}", found.join("; "));
    if names.contains(&"same-mount-back") {
        found.push_str(
            ". Where its mount is detached, a new connection over the same store takes its place, \
             and the old one serves what is open on it",
        );
    }
    Finding::warning(found, "see the other checks for what is missing").costing(&names)
}
