//! The control socket: what clients ask of the daemon, and how they ask it.
//!
//! Transport (`listen`, `framing`), meaning (`wire`) and effect (`dispatch`) stand apart. It must
//! never believe what a request says about its sender, and no client may hold up another.

pub mod client;
mod dispatch;
mod framing;
mod listen;
mod news;
mod page;
mod peer;
mod processes;
mod records;
mod refuse;
mod show;
mod standing;
mod state;
#[cfg(test)]
mod testing;
pub mod wire;

pub(crate) use self::listen::serve;
pub(crate) use self::processes::{Lines, Watching, watching};
pub(crate) use self::standing::Standing;
pub(crate) use self::state::{Facts, State, Stop};
