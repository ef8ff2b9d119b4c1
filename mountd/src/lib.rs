//! The daemon and the command line of Holdfast: keeper, worker, mount, control socket, client.
//!
//! What files mean is decided in `holdfast_fs`, never here.
//!
//! For programs that want sessions and leases, [`control::client`] is the library; what goes over
//! the socket is in [`control::wire`], and every way to fail in [`fault`].

mod channel;
mod cli;
mod config;
pub mod control;
mod doctor;
mod errand;
pub mod fault;
mod keeper;
mod logging;
mod mount;
mod place;
pub mod qualify;
mod supervisor;
mod sweep;
mod sys;
mod worker;

use std::process::ExitCode;

/// Runs the program.
#[must_use]
pub fn run() -> ExitCode {
    cli::run()
}
