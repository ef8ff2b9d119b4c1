//! `holdfast serve`, and what only the keeper starts.

use std::path::Path;

use super::Outcome;
use super::args::ServeArgs;
use super::output::Output;
use crate::fault::Fault;

/// Serves until told to stop.
pub(crate) fn run(_socket: Option<&Path>, _args: &ServeArgs, _output: Output) -> Outcome {
    Err(Fault::NotSupported { what: "serve".to_owned() }.into())
}

/// The keeper's other half.
pub(crate) fn worker() -> Outcome {
    Err(Fault::NotSupported { what: "worker".to_owned() }.into())
}

/// Asks a mount whether anybody serves it.
pub(crate) fn probe() -> Outcome {
    Err(Fault::NotSupported { what: "probe".to_owned() }.into())
}
