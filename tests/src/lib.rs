//! What the end-to-end tests share: a real daemon, a real mount, real Bash.
//!
//! Nothing here may touch a mount, a process or a directory that a test did not make itself.

pub mod agents;
pub mod client;
pub mod command;
pub mod daemon;
pub mod damage;
pub mod detach;
pub mod differential;
pub mod figures;
pub mod holder;
pub mod mounts;
pub mod need;
pub mod processes;
pub mod readme;
pub mod replacement;
pub mod report;
pub mod stage;
pub mod status;
pub mod storm;
pub mod sys;
pub mod times;
pub mod user;
pub mod varlink;
