//! Looks after the room of sessions while anything is written, so that they keep to the daemon's
//! total.
//!
//! It must never look more often than once a second but where a generation begins to be written, nor
//! at all where nobody writes and enough is left.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::state::State;

/// How often it is looked.
const PACE: Duration = Duration::from_secs(1);

/// How often it is looked in between at the most.
const MOST: u32 = 16;

/// What tells that somebody writes, and whether anybody still does.
pub(crate) struct Writing {
    begins: Arc<Notify>,
    goes_on: Box<dyn Fn() -> bool>,
}

impl Writing {
    /// `goes_on` says whether anything is open for writing. What is told by `begins` is that a
    /// generation begins to be written.
    pub(crate) fn new(begins: Arc<Notify>, goes_on: impl Fn() -> bool + 'static) -> Self {
        Self { begins, goes_on: Box::new(goes_on) }
    }

    /// Looks, for as long as it is polled.
    pub(super) async fn run(self, state: Rc<State>) -> std::convert::Infallible {
        loop {
            self.begins.notified().await;
            let mut look = state.namespace.look_at_room(false);
            loop {
                let second = tokio::time::sleep(PACE);
                tokio::pin!(second);
                let mut looks = 0;
                while tokio::select! {
                    () = &mut second => false,
                    () = self.begins.notified(), if look.tight && looks < MOST => true,
                } {
                    // Whoever begins meanwhile has a part of what is left from here on.
                    look = state.namespace.look_at_room(false);
                    looks += 1;
                }
                look = state.namespace.look_at_room(true);
                if !look.near && !(self.goes_on)() {
                    break;
                }
            }
        }
    }
}
