//! The daemon and the command line of Holdfast: keeper, worker, mount, control socket, client.
//!
//! What files mean is decided in `holdfast_fs`, never here.

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
