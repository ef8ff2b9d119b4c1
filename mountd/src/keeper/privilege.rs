//! Whether the daemon has all that it takes to serve many users.
//!
//! It must never give up or take a capability.

use rustix::thread::{CapabilitySet, capabilities};

use crate::config::Host;
use crate::fault::Fault;

/// What it takes to act as each user and to keep what belongs to any.
const NEEDED: [(CapabilitySet, &str); 8] = [
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    // To keep the others while a thread acts as another user.
    (CapabilitySet::SETPCAP, "CAP_SETPCAP"),
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::FOWNER, "CAP_FOWNER"),
    (CapabilitySet::FSETID, "CAP_FSETID"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
];

/// Refuses to serve many users with a part of what that takes.
pub(crate) fn require_all(host: Host) -> Result<(), Fault> {
    if !host.privileged {
        return Ok(());
    }
    let sets = capabilities(None)
        .map_err(|errno| Fault::System { step: "ask for the capabilities", errno })?;
    require(sets.effective)
}

fn require(effective: CapabilitySet) -> Result<(), Fault> {
    let lacking = NEEDED.iter().filter(|(capability, _)| !effective.contains(*capability));
    let names: Vec<_> = lacking.map(|(_, name)| *name).collect();
    if names.is_empty() {
        return Ok(());
    }
    let what = format!("many users without {} (grant it, or no CAP_SYS_ADMIN)", names.join(", "));
    Err(Fault::NotSupported { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_to_serve_many_users_is_named() {
        assert_eq!(require(CapabilitySet::all()), Ok(()));
        let part = CapabilitySet::all() - CapabilitySet::SETUID - CapabilitySet::CHOWN;
        let refused = require(part).expect_err("a part");
        assert_eq!(refused.code(), "not-supported");
        assert!(refused.message().contains("CAP_SETUID, CAP_CHOWN"), "{}", refused.message());
    }
}
