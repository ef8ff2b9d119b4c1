//! A piece of a long list.
//!
//! A long answer must never be made at once: others wait while it is written.

/// How many entries one answer has at the most.
pub(super) const LENGTH: usize = 128;

/// How many entries are asked for: one more than is told, to know whether there are more.
pub(super) const ASKED: usize = LENGTH + 1;

/// What is told of those that were asked for, and whether there are more.
pub(super) fn page<T>(mut asked: Vec<T>) -> (Vec<T>, bool) {
    let more = asked.len() > LENGTH;
    asked.truncate(LENGTH);
    (asked, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_the_whole_list() {
        for length in [0, 1, LENGTH - 1, LENGTH, LENGTH + 1, 3 * LENGTH] {
            let all: Vec<usize> = (0..length).collect();
            let (mut seen, mut more) = (Vec::new(), true);
            while more {
                let asked = all[seen.len()..].iter().take(ASKED).copied().collect();
                let (shown, left) = page(asked);
                assert!(shown.len() <= LENGTH && (!shown.is_empty() || length == 0));
                seen.extend(shown);
                more = left;
            }
            assert_eq!(seen, all);
        }
    }
}
