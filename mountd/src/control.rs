//! The control socket: what clients ask of the daemon, and how they ask it.
//!
//! Transport (`listen`, `framing`), meaning (`wire`) and effect (`dispatch`) stand apart. It must
//! never believe what a request says about its sender, and no client may hold up another.

pub mod client;
mod dispatch;
mod events;
mod framing;
mod listen;
mod news;
mod page;
mod peer;
mod processes;
mod records;
mod refusals;
mod refuse;
mod room;
mod show;
mod standing;
mod state;
#[cfg(test)]
mod testing;
mod watcher;
pub mod wire;

pub(crate) use self::events::Happening;
pub(crate) use self::listen::serve;
pub(crate) use self::peer::lives;
pub(crate) use self::processes::{Lines, Watching, watching};
pub(crate) use self::refusals::{Refusals, refusals};
pub(crate) use self::room::Writing;
pub(crate) use self::standing::Standing;
pub(crate) use self::state::{Facts, State, Stop};
