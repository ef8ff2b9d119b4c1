//! Wrong subjects: each forgets one thing that a file system must not forget.
//!
//! They must never be met outside the tests of the differential test itself, which show that it
//! finds each of them.

use std::str::FromStr;

use super::operation::{Moment, Operation};

/// What is done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// `chmod` loses the set-id bits.
    SetIdLost,
    /// `rename` replaces although it was told not to.
    Replaces,
    /// `rename` moves instead of exchanging.
    MovesInsteadOfExchanging,
    /// An append goes to the offset.
    AppendIgnored,
    /// Times lose their nanoseconds.
    SecondsOnly,
    /// An attribute is replaced although it was only to be created.
    XattrCreateIgnored,
    /// `fallocate` makes the file longer although it was told not to.
    KeepSizeIgnored,
    /// A hole isn't made.
    PunchIgnored,
    /// `O_EXCL` is ignored.
    ExclusiveIgnored,
    /// The last byte of a large write is lost.
    ByteLost,
    /// The owner is changed and the group isn't.
    GroupKept,
    /// `unlink` of something is no call at all.
    UnlinkIgnored,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::SetIdLost,
        Self::Replaces,
        Self::MovesInsteadOfExchanging,
        Self::AppendIgnored,
        Self::SecondsOnly,
        Self::XattrCreateIgnored,
        Self::KeepSizeIgnored,
        Self::PunchIgnored,
        Self::ExclusiveIgnored,
        Self::ByteLost,
        Self::GroupKept,
        Self::UnlinkIgnored,
    ];

    /// What the wrong subject carries out instead.
    #[must_use]
    pub fn of(self, operation: &Operation) -> Operation {
        use Operation as O;
        let mut wrong = operation.clone();
        match (self, &mut wrong) {
            (Self::SetIdLost, O::ChangeMode { mode, .. }) => *mode &= !0o6000,
            (Self::Replaces, O::Rename { flags, .. }) => *flags &= !libc::RENAME_NOREPLACE,
            (Self::MovesInsteadOfExchanging, O::Rename { flags, .. }) => {
                *flags &= !libc::RENAME_EXCHANGE;
            }
            (Self::AppendIgnored, O::Open { flags, .. }) => {
                *flags &= !libc::O_APPEND.cast_unsigned();
            }
            (Self::ExclusiveIgnored, O::Open { flags, .. }) => {
                *flags &= !libc::O_EXCL.cast_unsigned();
            }
            (Self::SecondsOnly, O::SetTimes { modified: Moment::At(_, nanoseconds), .. }) => {
                *nanoseconds = 0;
            }
            (Self::XattrCreateIgnored, O::SetXattr { flags, .. }) => {
                *flags &= !libc::XATTR_CREATE.cast_unsigned();
            }
            (Self::KeepSizeIgnored, O::Allocate { mode, .. })
                if *mode == libc::FALLOC_FL_KEEP_SIZE.cast_unsigned() =>
            {
                *mode = 0;
            }
            (Self::PunchIgnored, O::Allocate { mode, .. }) => {
                *mode &= !libc::FALLOC_FL_PUNCH_HOLE.cast_unsigned();
            }
            (Self::ByteLost, O::WriteAt { data, .. }) if data.length > 5000 => data.length -= 1,
            (Self::GroupKept, O::ChangeOwner { gid, .. }) => *gid = None,
            (Self::UnlinkIgnored, O::Unlink { .. }) => {
                wrong = O::SetUmask { mask: 0 };
            }
            _ => {}
        }
        wrong
    }
}

impl FromStr for Mutation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|mutation| format!("{mutation:?}") == text);
        found.ok_or_else(|| anyhow::anyhow!("there is no mutation {text}"))
    }
}
