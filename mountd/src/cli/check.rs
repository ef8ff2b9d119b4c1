//! `holdfast check`.

use std::path::Path;

use super::Outcome;
use super::args::CheckArgs;
use super::output::Output;
use crate::fault::Fault;

/// Does what was asked.
pub(crate) fn run(_socket: Option<&Path>, _args: &CheckArgs, _output: Output) -> Outcome {
    Err(Fault::NotSupported { what: "check".to_owned() }.into())
}
