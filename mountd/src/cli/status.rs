//! `holdfast status`.

use std::path::Path;

use super::Outcome;
use super::args::StatusArgs;
use super::output::Output;
use crate::fault::Fault;

/// Does what was asked.
pub(crate) fn run(_socket: Option<&Path>, _args: &StatusArgs, _output: Output) -> Outcome {
    Err(Fault::NotSupported { what: "status".to_owned() }.into())
}
