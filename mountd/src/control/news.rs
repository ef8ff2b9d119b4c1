//! What is worth a line in the log although a client's doing can cause it at any time.
//!
//! It must never grow with what one user does.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_fs::clock::Timestamp;

/// For how long something that was told of a user is no news.
const STALE_AFTER: Duration = Duration::from_secs(3600);

/// What was told, of whom, and when.
#[derive(Debug, Default)]
pub(super) struct News(HashMap<(u32, &'static str), Timestamp>);

impl News {
    /// Whether it is news; if so, it is none from here on.
    pub(super) fn is_news(&mut self, uid: u32, cause: &'static str, now: Timestamp) -> bool {
        let told = self.0.get(&(uid, cause));
        let news = told.is_none_or(|told| now.since(*told) >= STALE_AFTER);
        if news {
            self.0.insert((uid, cause), now);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use holdfast_fs::clock::{Clock as _, Monotonic};

    use super::*;

    #[test]
    fn the_same_of_the_same_user_is_told_once() {
        let (mut news, now) = (News::default(), Monotonic.now());
        assert!(news.is_news(1, "store-full", now));
        assert!(!news.is_news(1, "store-full", now));
        assert!(news.is_news(2, "store-full", now));
        assert!(news.is_news(1, "limit-reached", now));
    }
}
