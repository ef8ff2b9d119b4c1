//! Single arguments of the calls: sizes, modes, times, and which descriptor or object is meant.
//!
//! Most must make sense together; what never does is tried too, now and then.

use super::{Generator, Kind, MAPS, SLOTS};
use crate::differential::operation::{Data, Moment, Target};
use crate::differential::values;

impl Generator {
    pub(super) fn slot(&mut self) -> usize {
        let open: Vec<usize> = (0..SLOTS).filter(|&slot| self.slots[slot].is_some()).collect();
        if open.is_empty() { self.rng.usize(..SLOTS) } else { self.pick(&open) }
    }

    pub(super) fn file_slot(&mut self) -> usize {
        let is_file = |slot: &usize| self.slots[*slot] == Some(Kind::File);
        let files: Vec<usize> = (0..SLOTS).filter(is_file).collect();
        if files.is_empty() || self.chance(10) { self.slot() } else { self.pick(&files) }
    }

    pub(super) fn any_map(&mut self) -> usize {
        self.rng.usize(..MAPS)
    }

    pub(super) fn map(&mut self) -> usize {
        let made = self.maps.iter().position(|made| *made).unwrap_or(0);
        if self.chance(60) { made } else { self.any_map() }
    }

    pub(super) fn in_map(&mut self) -> usize {
        self.rng.usize(..3 * 4096)
    }

    pub(super) fn length(&mut self) -> usize {
        if self.chance(5) { 0 } else { self.rng.usize(1..12_000) }
    }

    pub(super) fn offset(&mut self) -> u64 {
        match self.rng.u8(..50) {
            0 => 1 << 33,
            1 => i64::MAX.cast_unsigned() - 5,
            2..20 => 0,
            _ => self.rng.u64(..60_000),
        }
    }

    pub(super) fn size(&mut self) -> u64 {
        match self.rng.u8(..50) {
            0 => 1 << 40,
            1 => u64::MAX,
            2..10 => 0,
            _ => self.rng.u64(..60_000),
        }
    }

    pub(super) fn data(&mut self) -> Data {
        Data { length: self.length(), first: self.rng.u8(1..) }
    }

    pub(super) fn small_data(&mut self) -> Data {
        Data { length: self.rng.usize(1..600), first: self.rng.u8(1..) }
    }

    /// The usual mode in half of the cases, so that most things can be used.
    pub(super) fn mode(&mut self, usual: u32) -> u32 {
        let unusual = [
            0o4755, 0o2755, 0o6777, 0o4711, 0o2770, 0o2777, 0o1777, 0o700, 0o600, 0o444, 0o555,
            0o111, 0o222, 0o000, 0o2745, 0o644,
        ];
        if self.rng.bool() { usual } else { self.pick(&unusual) }
    }

    pub(super) fn moment(&mut self) -> Moment {
        match self.rng.u8(..6) {
            0 => Moment::Now,
            1 => Moment::Omit,
            2 => Moment::At(1, 0),
            3 => Moment::At(4_102_444_800, 999_999_999),
            _ => Moment::At(self.rng.i64(1_000_000..900_000_000), self.rng.u32(..1_000_000_000)),
        }
    }

    pub(super) fn target(&mut self) -> Target {
        match self.rng.u8(..8) {
            0..4 => Target::Followed(self.some_path()),
            4 | 5 => Target::Itself(self.some_path()),
            _ => Target::Open(self.slot()),
        }
    }

    pub(super) fn known_xattr(&mut self) -> (Target, &'static str) {
        if self.xattrs.is_empty() || self.chance(30) {
            return (self.target(), values::name(&mut self.rng));
        }
        self.xattrs[self.rng.usize(..self.xattrs.len())].clone()
    }
}
