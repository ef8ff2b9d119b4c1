//! `holdfast session`.

use std::path::Path;

use super::Outcome;
use super::args::SessionCommand;
use super::output::Output;
use crate::fault::Fault;

/// Does what was asked.
pub(crate) fn run(_socket: Option<&Path>, _args: &SessionCommand, _output: Output) -> Outcome {
    Err(Fault::NotSupported { what: "session".to_owned() }.into())
}
