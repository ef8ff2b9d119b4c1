//! A fault on its way to whoever has to hear of it.
//!
//! It must never reach a client with its cause.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Fault;

/// A fault as it goes from one process to another.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{code}: {message} (remedy: {remedy})")]
pub struct FaultReport {
    /// The stable code.
    pub code: String,
    /// What a client is told, without a path.
    pub message: String,
    /// What can be done about it.
    pub remedy: String,
    /// What an operator needs to know, where the receiver may know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl From<&Fault> for FaultReport {
    fn from(fault: &Fault) -> Self {
        fault.report()
    }
}

impl From<Fault> for FaultReport {
    fn from(fault: Fault) -> Self {
        fault.report()
    }
}
