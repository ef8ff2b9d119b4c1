//! What the end-to-end tests share: a real daemon, a real mount, real Bash.
//!
//! Nothing here may touch a mount, a process or a directory that a test did not make itself.

pub mod command;
pub mod differential;
pub mod mounts;
pub mod sys;
pub mod user;
