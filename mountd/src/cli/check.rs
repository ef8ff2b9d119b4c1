//! `holdfast check`.

use std::path::Path;
use std::process::ExitCode;

use super::Outcome;
use super::args::CheckArgs;
use super::output::Output;
use crate::control::client::Client;
use crate::control::wire;

/// Says whether the next lease of a session would be had.
pub(crate) fn run(socket: Option<&Path>, args: &CheckArgs, output: Output) -> Outcome {
    let mut client = Client::find(socket)?;
    let shown = client.call(&wire::Check { session: args.session.clone() })?;
    output.answer(&shown, |_| "the next lease would be had".to_owned());
    Ok(ExitCode::SUCCESS)
}
