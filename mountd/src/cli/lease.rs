//! `holdfast lease`.

use std::path::Path;

use super::Outcome;
use super::args::LeaseCommand;
use super::output::Output;
use crate::fault::Fault;

/// Does what was asked.
pub(crate) fn run(_socket: Option<&Path>, _args: &LeaseCommand, _output: Output) -> Outcome {
    Err(Fault::NotSupported { what: "lease".to_owned() }.into())
}
