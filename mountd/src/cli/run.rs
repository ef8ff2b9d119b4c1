//! `holdfast run`.

use std::path::Path;

use super::Outcome;
use super::args::RunArgs;
use super::output::Output;
use crate::fault::Fault;

/// Does what was asked.
pub(crate) fn run(_socket: Option<&Path>, _args: &RunArgs, _output: Output) -> Outcome {
    Err(Fault::NotSupported { what: "run".to_owned() }.into())
}
