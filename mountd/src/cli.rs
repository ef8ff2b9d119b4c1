//! The command line: what was asked, and which module answers.
//!
//! Nothing is decided here. Only `output` writes to the terminal.

pub(crate) mod args;
mod autostart;
mod check;
mod doctor;
mod down;
mod lease;
pub(crate) mod output;
mod qualify;
mod run;
mod serve;
mod session;
mod status;
mod sweep;
mod watch;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use tracing_subscriber::filter::LevelFilter;

use crate::fault::FaultReport;
use crate::logging;
use args::{Cli, Command};
use output::Output;

/// What a command ends with.
pub(crate) type Outcome = Result<ExitCode, FaultReport>;

/// The status of a command that was refused.
const REFUSED: u8 = 1;
/// The status of `run` where it has started nothing, as of `env` and its kind.
const NOTHING_STARTED: u8 = 125;

/// Does what the command line asks.
pub(crate) fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error),
    };
    let serves = matches!(cli.command, Command::Serve(_) | Command::Worker);
    logging::start(if serves { LevelFilter::INFO } else { LevelFilter::WARN });
    let runs = matches!(cli.command, Command::Run(_));
    let output = Output::new(cli.command.json());
    let output = if runs { output.aside() } else { output };
    let socket = cli.socket.as_deref();
    let outcome = match &cli.command {
        Command::Serve(args) => serve::run(socket, args, output),
        Command::Run(args) => run::run(socket, args, output),
        Command::Session(args) => session::run(socket, &args.command, output),
        Command::Lease(args) => lease::run(socket, &args.command, output),
        Command::Check(args) => check::run(socket, args, output),
        Command::Status(args) => status::run(socket, args, output),
        Command::Qualify(args) => qualify::run(socket, args, output),
        Command::Doctor(_) => doctor::run(socket, output),
        Command::Sweep(args) => sweep::run(socket, args, output),
        Command::Watch(args) => watch::run(socket, args, output),
        Command::Down(args) => down::run(socket, args, output),
        Command::Worker => serve::worker(),
        Command::Probe => serve::probe(),
        Command::CheckHost(args) => doctor::check(socket, args),
        Command::Examine(args) => qualify::examine(args),
    };
    match outcome {
        // A daemon serves whether or not anybody could be told.
        Ok(_) if output.lost() && !serves => ExitCode::from(REFUSED),
        Ok(code) => code,
        Err(report) => {
            output.fault(&report);
            ExitCode::from(if runs { NOTHING_STARTED } else { REFUSED })
        }
    }
}

/// Says what was wrong with the command line; `run` ends with its own status even so.
fn not_understood(error: &clap::Error) -> ExitCode {
    output::usage(error);
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let is_run = std::env::args_os()
        .skip(1)
        .find(|argument| !argument.as_encoded_bytes().starts_with(b"-"))
        .is_some_and(|command| command == OsStr::new("run"));
    match (asked, is_run) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(NOTHING_STARTED),
        (false, false) => ExitCode::from(2),
    }
}
