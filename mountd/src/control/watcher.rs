//! What a client that watches is sent: what it may see of what happens, for as long as it reads.
//!
//! It holds nothing for the client but a number, so that one that doesn't read makes nothing grow:
//! it is told afterwards how much it has missed.

use std::rc::Rc;

use futures_util::StreamExt as _;
use futures_util::stream::{LocalBoxStream, unfold};
use tokio::net::UnixStream;
use zlink::service::{Infallible, ReplyStreamItem};

use super::dispatch::{Reply, left};
use super::events::Viewer;
use super::state::State;
use super::wire::{Answer, Watched};

/// Replies that go on.
pub(super) type Watcher = LocalBoxStream<'static, ReplyStreamItem<Reply, Infallible>>;

/// Where a watching client is.
struct Place {
    state: Rc<State>,
    viewer: Viewer,
    socket: Rc<UnixStream>,
    /// The number of the last event that was looked at for it.
    after: u64,
}

/// What a client is sent that watches from here on: the first page, whatever is in it, and then
/// whatever happens, until the daemon is to stop or the client has left.
pub(super) fn watcher(
    state: Rc<State>,
    viewer: Viewer,
    socket: Rc<UnixStream>,
    first: Watched,
) -> Watcher {
    let place = Place { state, viewer, socket, after: first.last };
    unfold((Some(place), Some(first)), |(place, first)| async {
        let mut place = place?;
        let page = match first {
            Some(first) => Some(first),
            None => place.next().await?,
        };
        Some(match page {
            Some(page) => (reply(page, true), (Some(place), None)),
            None => (reply(place.end(), false), (None, None)),
        })
    })
    .boxed_local()
}

impl Place {
    /// The next page with something in it; `Some(None)` where the daemon is to stop, and `None`
    /// where the client has left.
    async fn next(&mut self) -> Option<Option<Watched>> {
        let mut happened = self.state.events.subscribe();
        loop {
            happened.borrow_and_update();
            let page = self.state.events.behind(Some(self.after), &self.viewer);
            self.after = page.last;
            if !page.events.is_empty() || page.missed > 0 {
                return Some(Some(page));
            }
            if page.more {
                continue;
            }
            tokio::select! {
                biased;
                _ = self.state.stop.asked() => return Some(None),
                () = left(&self.socket) => return None,
                _ = happened.changed() => {}
            }
        }
    }

    /// What a client is told last.
    fn end(&self) -> Watched {
        Watched { events: Vec::new(), missed: 0, last: self.after, more: false }
    }
}

fn reply(page: Watched, continues: bool) -> ReplyStreamItem<Reply, Infallible> {
    let reply = Reply::Own(Box::new(Answer::Watch(page)));
    (Ok(zlink::Reply::new(Some(reply)).set_continues(Some(continues))), Vec::new())
}

#[cfg(test)]
mod tests;
