//! From an attempt that the filesystem refused to an event: whose it was, and no flood of them.
//!
//! Who tried is looked at by the thread that serves, while it keeps them waiting. It must never
//! wait for anything there, nor look at a command line or an environment.

mod flood;

use std::convert::Infallible;
use std::fs;
use std::rc::Rc;
use std::sync::Arc;

use holdfast_fs::tempfs::{Refusal, Witness};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use self::flood::Flood;
use super::events::{Happening, Removal};
use super::peer::process_of;
use super::state::State;

/// The code under which a refused removal is news for the log.
const NEWS: &str = "removal-refused";
/// What the kernel adds to the name of a program whose file is gone.
const GONE: &str = " (deleted)";

/// The filesystem's end.
#[derive(Debug)]
struct Teller(UnboundedSender<Removal>);

impl Witness for Teller {
    fn refused(&self, refusal: Refusal) {
        let pid = process_of(refusal.caller.thread);
        let executable = pid.and_then(executable);
        // Where nobody listens any more, the daemon is about to end.
        let _ = self.0.send(Removal { refusal, pid, executable, count: 1 });
    }
}

/// Attempts that were refused.
pub(crate) struct Refusals {
    told: UnboundedReceiver<Removal>,
}

/// Who the filesystem is given to tell, and what then listens.
pub(crate) fn refusals() -> (Arc<dyn Witness>, Refusals) {
    let (teller, told) = unbounded_channel();
    (Arc::new(Teller(teller)), Refusals { told })
}

impl Refusals {
    /// Makes events of what is refused, for as long as it is polled.
    pub(super) async fn run(mut self, state: Rc<State>) -> Infallible {
        let mut flood = Flood::default();
        loop {
            let due = async {
                match flood.due() {
                    Some(due) => tokio::time::sleep(due.since(state.now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(removal) = self.told.recv() => {
                    log(&state, &removal);
                    if let Some(removal) = flood.take(removal, state.now()) {
                        state.events.note(Happening::RemovalRefused(removal));
                    }
                }
                () = due => {}
            }
            for removal in flood.settle(state.now()) {
                state.events.note(Happening::RemovalRefused(removal));
            }
        }
    }
}

fn log(state: &State, removal: &Removal) {
    let Removal { refusal, pid, executable, count: _ } = removal;
    let uid = refusal.caller.uid;
    if state.is_news(uid, NEWS) {
        let (path, attempt) = (&refusal.path, refusal.attempt);
        tracing::warn!(uid, pid, executable, path, ?attempt, "a removal was refused");
    }
}

/// The name of a process's program: of its file where that may be looked at, else the one that the
/// process goes by.
fn executable(pid: u32) -> Option<String> {
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let file = file.as_deref().map(|path| path.as_os_str().as_encoded_bytes().to_owned());
    let name = file.or_else(|| fs::read(format!("/proc/{pid}/comm")).ok())?;
    Some(plain(&String::from_utf8_lossy(&name)))
}

/// A name as it can be shown: without directories, and without anything that a terminal would obey.
fn plain(name: &str) -> String {
    let name = name.trim_end_matches('\n');
    let name = name.strip_suffix(GONE).unwrap_or(name);
    let name = name.rsplit('/').next().unwrap_or(name);
    name.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests;
