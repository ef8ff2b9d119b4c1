//! When a daemon that was asked to leave unused has been unused for long enough.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often use is looked for, as a part of the time without it.
const LOOKS: u32 = 8;
const SELDOMEST: Duration = Duration::from_secs(15);
const OFTENEST: Duration = Duration::from_millis(50);

/// Comes back once nothing has been in use for as long as `limit`, as far as it was looked at.
///
/// Use that begins and ends between two looks is overlooked: then the daemon leaves that much
/// earlier, and whoever comes next starts another one.
pub(super) async fn unused_for(limit: Duration, in_use: impl Fn() -> bool) {
    let pause = (limit / LOOKS).clamp(OFTENEST, SELDOMEST);
    let mut since = Instant::now();
    while since.elapsed() < limit {
        sleep(pause.min(limit)).await;
        if in_use() {
            since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn use_puts_the_end_off() {
        let looks = Cell::new(0);
        let limit = Duration::from_millis(200);
        let start = Instant::now();
        unused_for(limit, || {
            looks.set(looks.get() + 1);
            looks.get() <= 4
        })
        .await;
        assert!(start.elapsed() >= limit + 4 * (limit / LOOKS).max(OFTENEST));
    }
}
