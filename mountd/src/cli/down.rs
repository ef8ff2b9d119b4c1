//! `holdfast down`.

use std::path::Path;

use super::Outcome;
use super::args::DownArgs;
use super::output::Output;
use crate::fault::Fault;

/// Does what was asked.
pub(crate) fn run(_socket: Option<&Path>, _args: &DownArgs, _output: Output) -> Outcome {
    Err(Fault::NotSupported { what: "down".to_owned() }.into())
}
