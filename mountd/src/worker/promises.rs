//! Promises that this host, or this way of serving, can't keep, each by its name.
//!
//! They are found by what was tried, never by the kernel's version.

use holdfast_fs::fuse::Features;

use crate::config::Store;

/// The promises that are lost, each with the reason.
pub(crate) fn lost(
    features: Features,
    privileged: bool,
    reads_all: bool,
    store: &Store,
) -> Vec<(String, String)> {
    let no_privilege = "the daemon may not mount by itself";
    let all = [
        (privileged, "other-users", no_privilege),
        (privileged, "same-mount-back", no_privilege),
        (
            features.passthrough,
            "data-passthrough",
            if privileged { "the kernel doesn't grant it" } else { no_privilege },
        ),
        (
            features.prunes,
            "prompt-discard",
            "the kernel can't be asked to forget, so that what was used is discarded when it does",
        ),
        (features.resend, "restart-unnoticed", "the kernel doesn't ask again what went unanswered"),
        (reads_all, "unreadable-files", "the host refuses user namespaces"),
        (
            matches!(store, Store::Tmpfs),
            "session-limits",
            "a directory as store has no limit for each session",
        ),
    ];
    all.into_iter()
        .filter(|(kept, ..)| !kept)
        .map(|(_, name, why)| (name.to_owned(), why.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(privileged: bool, reads_all: bool, store: &Store) -> Vec<String> {
        let features = Features { passthrough: privileged, prunes: true, resend: true, minor: 45 };
        lost(features, privileged, reads_all, store).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn what_is_lost_is_named() {
        assert!(names(true, true, &Store::Tmpfs).is_empty());
        assert_eq!(
            names(false, true, &Store::Tmpfs),
            ["other-users", "same-mount-back", "data-passthrough"],
        );
        let dir = Store::Dir("/s".into());
        assert_eq!(names(true, true, &dir), ["session-limits"]);
        assert!(names(false, false, &dir).contains(&"unreadable-files".to_owned()));
    }
}
