//! How often what happened to tenants, so that a storm in which nothing did isn't taken for a calm.
//!
//! It must never be filled by anybody but who it happened to.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::ensure;

macro_rules! tally {
    ($($(#[doc = $doc:literal])* $name:ident: $word:literal,)*) => {
        /// How often what happened.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(super) struct Tally {
            $($(#[doc = $doc])* pub(super) $name: u64,)*
            /// Refused leases, by the fault's code.
            pub(super) refused: BTreeMap<String, u64>,
        }

        impl Tally {
            pub(super) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                for (code, number) in &other.refused {
                    *self.refused.entry(code.clone()).or_default() += number;
                }
            }

            /// Whether everything happened that must, whatever the schedule is.
            pub(super) fn each_happened(&self) -> anyhow::Result<()> {
                $(ensure!(self.$name > 0, "never happened: {}", $word);)*
                ensure!(!self.refused.is_empty(), "no lease was ever refused");
                Ok(())
            }
        }

        impl fmt::Display for Tally {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut counts = vec![$(format!("{} {}", self.$name, $word),)*];
                let refused = self.refused.iter();
                counts.extend(refused.map(|(code, number)| format!("{number} refused: {code}")));
                formatter.write_str(&counts.join(", "))
            }
        }
    };
}

tally! {
    granted: "leases granted",
    /// The mount was taken away between the grant and the look.
    too_late: "of them not reached before the next attack",
    released: "given back",
    written: "files written",
    read: "read by path",
    removed: "removed",
    /// Reads and writes through descriptors.
    through: "uses of open files",
    outlived: "of them after the connection was ended",
    lists: "listings",
    rotated: "rotations",
    swept: "sweeps",
    stale: "stale leases seen",
    sandboxes: "sandboxes used",
    interrupted: "steps that an attack interrupted",
}
