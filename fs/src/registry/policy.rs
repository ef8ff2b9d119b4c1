//! What the owner of a session decides about it.
//!
//! It must never decide anything about a request: that is done where requests are.

use serde::{Deserialize, Serialize};

/// Who gets through the directories of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The owner uid alone.
    #[default]
    Private,
    /// Everyone who knows the way, so that a child that dropped its privileges still has its
    /// temporary directory.
    Shared,
}

/// Who may remove, rename or replace what members made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guard {
    /// Modes decide, as on any filesystem.
    Open,
    /// Others may add and write, but remove only what they made themselves.
    #[default]
    Sticky,
    /// Only members change anything.
    Members,
}

/// What a session was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Bytes that all its generations may hold together; `None` is no limit of its own.
    pub size: Option<u64>,
    /// Inodes that all its generations may hold together; `None` is no limit of its own.
    pub inodes: Option<u64>,
    /// Who gets through its directories.
    pub mode: Mode,
    /// Who may remove what members made.
    pub guard: Guard,
}

/// What a client says about the policy of the session that it opens. What it leaves unsaid is the
/// default for a new session, and whatever there is for one that it attaches to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRequest {
    /// Bytes.
    pub size: Option<u64>,
    /// Inodes.
    pub inodes: Option<u64>,
    /// Who gets through its directories.
    pub mode: Option<Mode>,
    /// Who may remove what members made.
    pub guard: Option<Guard>,
}

/// A part of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyPart {
    /// The limit on bytes.
    Size,
    /// The limit on inodes.
    Inodes,
    /// The mode.
    Mode,
    /// The guard.
    Guard,
}

impl PolicyPart {
    /// What clients and operators call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Inodes => "inodes",
            Self::Mode => "mode",
            Self::Guard => "guard",
        }
    }
}

impl PolicyRequest {
    /// The policy of a new session.
    #[must_use]
    pub fn granted(&self) -> Policy {
        Policy {
            size: self.size,
            inodes: self.inodes,
            mode: self.mode.unwrap_or_default(),
            guard: self.guard.unwrap_or_default(),
        }
    }

    /// The first thing that is asked for otherwise than a session has it.
    ///
    /// A limit that was the session's own when it was opened is not another one, though it was
    /// resized since: a client that is built anew says what it always said.
    pub(crate) fn differs_from(&self, opened: &Policy, present: &Policy) -> Option<PolicyPart> {
        let limit = |wanted: Option<u64>, opened: Option<u64>, present: Option<u64>| {
            wanted.is_some() && wanted != opened && wanted != present
        };
        if limit(self.size, opened.size, present.size) {
            Some(PolicyPart::Size)
        } else if limit(self.inodes, opened.inodes, present.inodes) {
            Some(PolicyPart::Inodes)
        } else if self.mode.is_some_and(|mode| mode != present.mode) {
            Some(PolicyPart::Mode)
        } else if self.guard.is_some_and(|guard| guard != present.guard) {
            Some(PolicyPart::Guard)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Policy =
        Policy { size: Some(10), inodes: None, mode: Mode::Private, guard: Guard::Sticky };
    const NOTHING: PolicyRequest =
        PolicyRequest { size: None, inodes: None, mode: None, guard: None };

    #[test]
    fn what_is_left_unsaid_never_differs() {
        assert_eq!(NOTHING.differs_from(&SMALL, &SMALL), None);
        assert_eq!(NOTHING.granted(), Policy::default());
    }

    #[test]
    fn what_is_said_has_to_be_so() {
        let differs = |request: PolicyRequest| request.differs_from(&SMALL, &SMALL);
        assert_eq!(differs(PolicyRequest { size: Some(10), ..NOTHING }), None);
        assert_eq!(differs(PolicyRequest { size: Some(11), ..NOTHING }), Some(PolicyPart::Size));
        assert_eq!(differs(PolicyRequest { inodes: Some(1), ..NOTHING }), Some(PolicyPart::Inodes));
        let shared = PolicyRequest { mode: Some(Mode::Shared), ..NOTHING };
        assert_eq!(differs(shared), Some(PolicyPart::Mode));
        let open = PolicyRequest { guard: Some(Guard::Open), ..NOTHING };
        assert_eq!(differs(open), Some(PolicyPart::Guard));
    }

    #[test]
    fn a_resized_session_is_still_the_one_that_was_opened() {
        let resized = Policy { size: Some(20), ..SMALL };
        for (said, part) in [(10, None), (20, None), (30, Some(PolicyPart::Size))] {
            let request = PolicyRequest { size: Some(said), ..NOTHING };
            assert_eq!(request.differs_from(&SMALL, &resized), part, "{said}");
        }
    }
}
