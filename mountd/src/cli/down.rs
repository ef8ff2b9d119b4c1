//! `holdfast down`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::Outcome;
use super::args::DownArgs;
use super::output::Output;
use crate::control::client::Client;
use crate::control::wire;

/// How long the daemon may take to put everything away.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the daemon, and comes back when it has ended.
pub(crate) fn run(socket: Option<&Path>, args: &DownArgs, output: Output) -> Outcome {
    let mode = match (args.drain, args.force) {
        (true, _) => wire::DownMode::Drain,
        (false, true) => wire::DownMode::Force,
        (false, false) => wire::DownMode::Refuse,
    };
    let mut client = Client::find(socket)?;
    if args.drain {
        client.set_deadline(None);
    }
    let nothing = client.call(&wire::Down { mode: Some(mode) })?;
    client.wait_for_end(PATIENCE)?;
    output.answer(&nothing, |_| String::new());
    Ok(ExitCode::SUCCESS)
}
