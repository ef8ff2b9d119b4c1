//! How room is shared: a session's among its generations, and the daemon's among all of them.
//!
//! It must never give out more of a session's limit than there is: what its generations may hold,
//! retired ones too, adds up to no more than that at any time.

/// What one generation holds of one kind of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Whether it is in the past.
    pub(super) retired: bool,
    /// What it holds.
    pub(super) used: u64,
}

/// What each generation of a session may hold, in their order; `None` where there isn't enough for
/// all of them. Each keeps what it holds. Of what nobody holds the current one gets half, at least,
/// and the retired ones the other half in equal parts, for the commands that still run in them.
///
/// No size is less than a `grain`, since the store takes nothing for everything.
pub(super) fn share(limit: u64, parts: &[Part], grain: u64) -> Option<Vec<u64>> {
    let grain = grain.max(1);
    let limit = limit.checked_next_multiple_of(grain).unwrap_or(limit);
    // In the store's own grains even a retired one that holds nothing needs one.
    let least = |part: &Part| if part.retired && grain > 1 { grain } else { 0 };
    let kept = |part: &Part| {
        part.used.max(least(part)).checked_next_multiple_of(grain).unwrap_or(u64::MAX)
    };
    let held = parts.iter().map(kept).fold(0, u64::saturating_add);
    let free = limit.checked_sub(held)?;
    let retired = parts.iter().filter(|part| part.retired).count() as u64;
    let for_retired = if retired < parts.len() as u64 { free / 2 } else { free };
    let each = for_retired.checked_div(retired).map_or(0, |each| each / grain * grain);
    let rest = free - each * retired;
    let room = |part: &Part| kept(part) + if part.retired { each } else { rest };
    let rooms: Vec<u64> = parts.iter().map(room).collect();
    let is_none = |(part, room): (&Part, &u64)| !part.retired && *room == 0;
    (!parts.iter().zip(&rooms).any(is_none)).then_some(rooms)
}

/// More than this no machine writes until it is looked again.
const HASTE: u64 = 4 << 30;

/// How much more any generation may hold at this moment so that all of them together keep to the
/// daemon's total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spare {
    total: u64,
    left: u64,
    /// For each generation beyond what it holds; `None` where any may have all of it.
    each: Option<u64>,
}

impl Spare {
    /// `writers` is how many generations are written. They share what is left, so that they can't
    /// all fill it before it is looked again, where it isn't more than could be written until then.
    pub(super) fn of(total: u64, used: u64, writers: usize, grain: u64) -> Self {
        let left = total.saturating_sub(used);
        let tight = left < HASTE;
        let writers = if tight { writers.max(1) as u64 } else { 1 };
        let each = (tight || left < total / 2).then_some(left / writers);
        let grain = grain.max(1);
        Self { total, left, each: each.map(|each| each / grain * grain) }
    }

    /// What all generations together may still come to hold.
    pub(super) const fn left(self) -> u64 {
        self.left
    }

    /// Whether it is time to look often.
    pub(super) const fn is_near(self) -> bool {
        self.left < self.total / 2
    }

    /// Whether what is left could be written until it is looked again.
    pub(super) const fn is_tight(self) -> bool {
        self.left < HASTE
    }

    /// What a generation may hold at the most that holds this much now.
    pub(super) fn most(self, used: u64, grain: u64) -> u64 {
        let most = match self.each {
            None => self.total.max(used),
            Some(each) => used.saturating_add(each),
        };
        // The store takes nothing for everything.
        most.max(grain)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const fn retired(used: u64) -> Part {
        Part { retired: true, used }
    }

    const fn current(used: u64) -> Part {
        Part { retired: false, used }
    }

    #[test]
    fn what_nobody_holds_is_halved_between_past_and_present() {
        assert_eq!(share(100, &[current(0)], 1), Some(vec![100]));
        assert_eq!(share(100, &[retired(60), current(0)], 1), Some(vec![80, 20]));
        assert_eq!(share(100, &[retired(20), retired(10), current(10)], 1), Some(vec![35, 25, 40]));
        assert_eq!(share(100, &[retired(60)], 1), Some(vec![100]));
        assert_eq!(share(100, &[retired(99), current(0)], 1), Some(vec![99, 1]));
    }

    #[test]
    fn where_there_is_nothing_left_there_is_no_other_generation() {
        assert_eq!(share(100, &[retired(100), current(0)], 1), None);
        assert_eq!(share(100, &[retired(60), current(41)], 1), None);
        assert_eq!(share(100, &[retired(60), current(40)], 1), Some(vec![60, 40]));
        // Nothing would be taken for everything.
        assert_eq!(share(4096, &[retired(0), current(0)], 4096), None);
        assert_eq!(share(4097, &[retired(0), current(0)], 4096), Some(vec![4096, 4096]));
    }

    #[test]
    fn writers_share_what_they_could_fill_in_a_second() {
        let most = |total, used, writers, own| Spare::of(total, used, writers, 1).most(own, 1);
        assert_eq!(most(1000, 100, 1, 100), 1000);
        assert_eq!(most(1000, 100, 2, 60), 510);
        assert_eq!(most(1000, 700, 1, 100), 400);
        assert_eq!(most(1000, 1000, 2, 0), 1, "nothing would be taken for everything");
        assert_eq!(most(16 << 30, 1 << 30, 100, 0), 16 << 30, "nobody is that fast");
    }

    proptest! {
        #[test]
        fn no_more_is_given_out_than_there_is(
            limit in 1..1_000_000_u64,
            past in vec(0..300_000_u64, 0..5),
            present in proptest::option::of(0..300_000_u64),
            grain in prop_oneof![Just(1_u64), Just(4096)],
        ) {
            let parts: Vec<Part> = past.iter().map(|used| retired(*used))
                .chain(present.map(current)).collect();
            if let Some(rooms) = share(limit, &parts, grain) {
                let given: u64 = rooms.iter().sum();
                prop_assert!(given <= limit.next_multiple_of(grain));
                for (part, room) in parts.iter().zip(&rooms) {
                    prop_assert!(*room >= part.used && room % grain == 0);
                    prop_assert!(*room > 0 || grain == 1);
                }
            }
        }

        #[test]
        fn one_writer_alone_never_passes_the_total(
            total in 4096..1_u64 << 34, used in 0..1_u64 << 34, own in 0..1_000_000_u64,
        ) {
            let used = used.min(total);
            let own = own.min(used);
            let spare = Spare::of(total, used, 1, 4096);
            let most = (used - own) + spare.most(own, 4096);
            prop_assert!(!spare.is_tight() || most <= total.max(used + 4096));
        }
    }
}
