//! A piece of a long list.
//!
//! A long answer must never be made at once: others wait while it is written.

/// How many entries one answer has at the most.
pub(super) const LENGTH: usize = 128;

/// The entries behind an id in the order of their ids, and whether there are more.
pub(super) fn page<T>(
    mut all: Vec<T>,
    id: impl Fn(&T) -> &str,
    after: Option<&str>,
) -> (Vec<T>, bool) {
    all.retain(|entry| after.is_none_or(|after| id(entry) > after));
    all.sort_unstable_by(|one, other| id(one).cmp(id(other)));
    let more = all.len() > LENGTH;
    all.truncate(LENGTH);
    (all, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_the_whole_list() {
        let all: Vec<String> = (0..3 * LENGTH).rev().map(|number| format!("{number:04}")).collect();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let (shown, more) = page(all.clone(), String::as_str, after.as_deref());
            assert!(!shown.is_empty() && shown.len() <= LENGTH);
            after = shown.last().cloned();
            seen.extend(shown);
            if !more {
                break;
            }
        }
        let mut sorted = all;
        sorted.sort();
        assert_eq!(seen, sorted);
        assert_eq!(page(Vec::new(), String::as_str, None), (Vec::new(), false));
    }
}
