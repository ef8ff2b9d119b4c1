//! `holdfast watch`.
//!
//! It ends with status 0 when nobody reads what it tells any more, and as refused when the daemon
//! ends: whoever waits for something must not take that for nothing having happened.

use std::io::stdout;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use rustix::io::fcntl_dupfd_cloexec;
use serde::Serialize;

use super::Outcome;
use super::args::WatchArgs;
use super::output::{Output, ago};
use crate::control::client::{Client, End};
use crate::control::wire::{Event, Watch, Watched};
use crate::fault::Fault;
use crate::sys;

/// The last moment that is written as a date.
const LAST_DATE_MS: u64 = 253_402_300_799_999;

/// How many events can't be told any more.
#[derive(Serialize)]
struct Missed {
    missed: u64,
}

/// Tells what happens.
pub(crate) fn run(socket: Option<&Path>, args: &WatchArgs, output: Output) -> Outcome {
    let mut client = Client::find(socket)?;
    let after = if args.all { Some(0) } else { args.after };
    match client.watch(&Watch { after }, nobody_reads(), |page| tell(&page, output))? {
        End::Reader => Ok(ExitCode::SUCCESS),
        End::Daemon => Err(Fault::Stopping.report_to_client()),
    }
}

/// Tells a page; whether anybody reads further ones.
fn tell(page: &Watched, output: Output) -> bool {
    let missed = Missed { missed: page.missed };
    let reads = missed.missed == 0
        || output.tell(&missed, |Missed { missed }| {
            format!("{missed} events before this line are not kept any more")
        });
    reads && page.events.iter().all(|event| output.tell(event, words))
}

/// Waits until whoever this is told to has left.
async fn nobody_reads() {
    match fcntl_dupfd_cloexec(stdout(), 3) {
        Ok(out) => sys::unread(out).await,
        Err(_) => std::future::pending().await,
    }
}

/// An event on one line.
fn words(event: &Event) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(event.at_ms.min(LAST_DATE_MS));
    let at = humantime::format_rfc3339_millis(at);
    let mut line = format!("{at} {} {}", event.number, event.message);
    if let Some(path) = &event.path {
        line.push_str(&format!(": {path}"));
    }
    let number = |name: &str, number: Option<u64>| number.map(|number| format!("{name} {number}"));
    let details = [
        event.code.clone(),
        number("pid", event.pid.map(u64::from)),
        number("uid", event.uid.map(u64::from)),
        event.count.filter(|count| *count > 1).map(|count| format!("{count} times")),
        // The path has them in it already.
        event.session.as_ref().filter(|_| event.path.is_none()).map(|id| format!("session {id}")),
        event.lease.as_ref().filter(|_| event.path.is_none()).map(|id| format!("lease {id}")),
        number("connection", event.epoch),
        event.took_ms.map(|took| format!("after {}", duration(took))),
    ];
    let details: Vec<String> = details.into_iter().flatten().collect();
    if !details.is_empty() {
        line.push_str(&format!(" ({})", details.join(", ")));
    }
    for (name, text) in [("cause", &event.cause), ("remedy", &event.remedy)] {
        if let Some(text) = text {
            line.push_str(&format!("; {name}: {text}"));
        }
    }
    line
}

/// What was mended at once is told to the millisecond.
fn duration(milliseconds: u64) -> String {
    if milliseconds < 1000 { format!("{milliseconds} ms") } else { ago(milliseconds) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(event: Value) -> String {
        let mut whole = json!({ "number": 7, "at_ms": 1_700_000_000_123_u64 });
        let parts = whole.as_object_mut().expect("an object");
        parts.extend(event.as_object().expect("an object").clone());
        words(&serde_json::from_value(whole).expect("an event"))
    }

    #[test]
    fn an_event_is_one_line_with_all_that_it_knows() {
        assert_eq!(
            said(json!({
                "kind": "removal_refused", "message": "rm was refused to remove a directory",
                "session": "k7q2m9xa", "path": "k7q2m9xa/3", "pid": 4711, "uid": 1000,
                "attempt": "remove", "executable": "rm", "count": 3,
            })),
            "2023-11-14T22:13:20.123Z 7 rm was refused to remove a directory: k7q2m9xa/3 \
             (pid 4711, uid 1000, 3 times)",
        );
        assert_eq!(
            said(json!({
                "kind": "fault_raised", "message": "a symlink is there",
                "code": "mountpoint-symlink", "remedy": "remove it", "cause": "/m is a symlink",
            })),
            "2023-11-14T22:13:20.123Z 7 a symlink is there (mountpoint-symlink); \
             cause: /m is a symlink; remedy: remove it",
        );
        assert_eq!(
            said(json!({
                "kind": "reattached", "message": "it is back", "took_ms": 5,
            })),
            "2023-11-14T22:13:20.123Z 7 it is back (after 5 ms)",
        );
        assert_eq!(
            said(json!({
                "kind": "handles_dead", "message": "handles died",
                "session": "k7q2m9xa", "lease": "c5n8t2aa", "epoch": 1,
            })),
            "2023-11-14T22:13:20.123Z 7 handles died \
             (session k7q2m9xa, lease c5n8t2aa, connection 1)",
        );
    }

    #[test]
    fn a_time_that_is_no_date_is_no_panic() {
        let line = said(json!({ "kind": "detached", "message": "m", "at_ms": u64::MAX }));
        assert!(line.starts_with("9999-12-31T23:59:59.999Z"), "{line}");
    }
}
