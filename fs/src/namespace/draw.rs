//! The kernel's random numbers.
//!
//! It must never fall back to others.

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::registry::Draw;

/// The kernel's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelDraw;

impl Draw for KernelDraw {
    fn draw(&mut self) -> Option<u64> {
        let mut bytes = [0; size_of::<u64>()];
        let filled = retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty())).ok()?;
        (filled == bytes.len()).then(|| u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_draws_differ() {
        let (first, second) = (KernelDraw.draw(), KernelDraw.draw());
        assert!(first.is_some() && second.is_some());
        assert_ne!(first, second);
    }
}
