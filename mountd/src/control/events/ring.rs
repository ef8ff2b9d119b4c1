//! The last events by their numbers, and for whom each is.
//!
//! A reader has no place in it: it asks by number, and is told how many it has missed.

use std::collections::VecDeque;

use super::Viewer;
use crate::control::page::LENGTH;
use crate::control::show::count;
use crate::control::wire::{Event, Watched};

/// For whom an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Whoever may call the daemon.
    Everybody,
    /// The user whose session it concerns, and root.
    Owner(u32),
}

/// The last events.
#[derive(Debug)]
pub(super) struct Ring {
    most: usize,
    /// The number of the last one that there was.
    last: u64,
    kept: VecDeque<(Event, Audience)>,
}

impl Ring {
    /// Keeps this many.
    pub(super) const fn new(most: usize) -> Self {
        Self { most, last: 0, kept: VecDeque::new() }
    }

    /// The number of the last event; 0 before the first.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Takes one more in; its number.
    pub(super) fn push(&mut self, event: Event, audience: Audience) -> u64 {
        if self.kept.len() == self.most {
            self.kept.pop_front();
        }
        self.last += 1;
        self.kept.push_back((Event { number: self.last, ..event }, audience));
        self.last
    }

    /// The events behind a number that are a viewer's to see, as many as one answer has.
    pub(super) fn behind(&self, after: u64, viewer: &Viewer) -> Watched {
        // A number that isn't reached yet is an earlier daemon's.
        let after = if after > self.last { 0 } else { after };
        let gone = self.last - count(self.kept.len());
        let missed = gone.saturating_sub(after);
        let mut last = after.max(gone);
        let mut events = Vec::new();
        let skipped = usize::try_from(last - gone).unwrap_or(usize::MAX);
        for (event, audience) in self.kept.iter().skip(skipped) {
            if events.len() == LENGTH {
                break;
            }
            last = event.number;
            if viewer.may_see(*audience) {
                let cause = event.cause.clone().filter(|_| viewer.operates());
                events.push(Event { cause, ..event.clone() });
            }
        }
        Watched { events, missed, last, more: last < self.last }
    }
}
