//! Sessions, generations, leases and owner tokens: who may have what, and for how long.
//!
//! It is a state machine and nothing else. It must never do anything: no system call, no thread,
//! no lock, no clock; the time is handed in, and what follows from a decision is handed back.

mod bounds;
mod error;
mod id;
mod lease;
mod peer;
mod policy;
mod token;
mod view;

pub use self::bounds::{Bounds, Limit};
pub use self::error::{NameFault, RegistryError};
pub use self::id::{Draw, LeaseId, NotAnId, SessionId, TokenId};
pub use self::lease::{Binding, LeaseEnd, LeaseKind};
pub use self::peer::{ConnectionId, Peer, Process};
pub use self::policy::{Guard, Mode, Policy, PolicyPart, PolicyRequest};
pub use self::token::Holder;
pub use self::view::{
    Counts, GenerationView, LeaseView, OpenedSession, Receipt, SessionView, TokenView, Usage,
};
