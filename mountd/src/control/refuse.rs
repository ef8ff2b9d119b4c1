//! From what went wrong to the error that a client gets, in one exhaustive match each.
//!
//! It must never let a path through to a client, nor drop what an operator needs to know.

use holdfast_fs::namespace::{GroundError, NamespaceError};
use holdfast_fs::registry::RegistryError;

use super::wire::Error;
use crate::fault::{Fault, FaultReport};

/// What the namespace refused, as a client gets it: the fault's code and remedy, and the
/// namespace's own words, which say more.
pub(super) fn namespace_error(error: &NamespaceError) -> Error {
    Error::from(&namespace_fault(error)).saying(error.to_string())
}

/// The fault that a refusal of the namespace is.
pub(super) fn namespace_fault(error: &NamespaceError) -> Fault {
    match error {
        NamespaceError::Registry(error) => registry_fault(error),
        NamespaceError::Ground(error) => ground_fault(error),
        NamespaceError::SessionFull { .. } | NamespaceError::TotalReached { .. } => {
            Fault::StoreFull
        }
        NamespaceError::SessionOutOfInodes { .. } => Fault::StoreOutOfInodes,
    }
}

fn registry_fault(error: &RegistryError) -> Fault {
    match error {
        RegistryError::NameInvalid { fault } => Fault::NameInvalid { reason: fault.to_string() },
        RegistryError::SessionUnknown { session } | RegistryError::SessionAmbiguous { session } => {
            Fault::SessionUnknown { session: session.clone() }
        }
        RegistryError::SessionSealed { session } => {
            Fault::SessionSealed { session: session.to_string() }
        }
        RegistryError::SessionNotYours { session } => {
            Fault::SessionNotYours { session: session.to_string() }
        }
        RegistryError::PolicyDiffers { session, part } => Fault::PolicyDiffers {
            session: session.to_string(),
            difference: part.name().to_owned(),
        },
        RegistryError::TokenUnknown => Fault::TokenUnknown,
        RegistryError::LeaseUnknown { lease } => Fault::LeaseUnknown { lease: lease.clone() },
        RegistryError::LeaseEnded { lease, end: _ } => {
            Fault::LeaseUnknown { lease: lease.to_string() }
        }
        RegistryError::LimitReached { limit, value } => {
            Fault::LimitReached { limit: limit.name().to_owned(), value: count(*value) }
        }
        RegistryError::GenerationsExhausted { value } => {
            Fault::GenerationsExhausted { limit: count(*value) }
        }
        RegistryError::NotFromInside { session } => {
            Fault::NotFromInside { session: session.to_string() }
        }
        RegistryError::NoRandomness => Fault::NotSupported { what: error.to_string() },
    }
}

fn ground_fault(error: &GroundError) -> Fault {
    match error {
        GroundError::Full => Fault::StoreFull,
        GroundError::OutOfInodes => Fault::StoreOutOfInodes,
        // The ground has no number for it; its words stand in the message.
        GroundError::Exhausted => Fault::GenerationsExhausted { limit: 0 },
        GroundError::NotSupported(what) => Fault::NotSupported { what: (*what).to_owned() },
        GroundError::Unfit => Fault::RequestInvalid { reason: error.to_string() },
        GroundError::Refused { step, errno } => {
            Fault::StoreUnusable { step: (*step).to_owned(), errno: *errno }
        }
    }
}

impl From<&Fault> for Error {
    fn from(fault: &Fault) -> Self {
        let FaultReport { code, message, remedy, cause: _ } = fault.report_to_client();
        match fault {
            Fault::SessionUnknown { .. } => Self::SessionUnknown { code, message, remedy },
            Fault::SessionSealed { .. } => Self::SessionSealed { code, message, remedy },
            Fault::SessionNotYours { .. } => Self::SessionNotYours { code, message, remedy },
            Fault::PolicyDiffers { .. } => Self::PolicyDiffers { code, message, remedy },
            Fault::LeaseUnknown { .. } => Self::LeaseUnknown { code, message, remedy },
            Fault::TokenUnknown => Self::TokenUnknown { code, message, remedy },
            Fault::NotFromInside { .. } => Self::NotFromInside { code, message, remedy },
            Fault::NameInvalid { .. } => Self::NameInvalid { code, message, remedy },
            Fault::LimitReached { .. } => Self::LimitReached { code, message, remedy },
            Fault::GenerationsExhausted { .. } => {
                Self::GenerationsExhausted { code, message, remedy }
            }
            Fault::StoreFull => Self::StoreFull { code, message, remedy },
            Fault::StoreOutOfInodes => Self::StoreOutOfInodes { code, message, remedy },
            Fault::SessionsAlive { sessions } => {
                let sessions = sessions.clone();
                Self::SessionsAlive { code, message, remedy, sessions }
            }
            Fault::DaemonNotYours { .. } => Self::DaemonNotYours { code, message, remedy },
            Fault::ProcessUnknown { .. } => Self::ProcessUnknown { code, message, remedy },
            Fault::RequestInvalid { .. } => Self::RequestInvalid { code, message, remedy },
            Fault::RequestTooLarge { .. } => Self::RequestTooLarge { code, message, remedy },
            Fault::NotSupported { .. } => Self::NotSupported { code, message, remedy },
            Fault::Stopping => Self::Stopping { code, message, remedy },
            Fault::FuseDeviceMissing { .. }
            | Fault::FusermountMissing { .. }
            | Fault::FusermountRefused { .. }
            | Fault::MountRefused { .. }
            | Fault::UsernsRefused { .. }
            | Fault::KernelTooOld { .. }
            | Fault::MountpointParentMissing { .. }
            | Fault::MountpointParentNotDirectory { .. }
            | Fault::MountpointParentWritable { .. }
            | Fault::MountpointSymlink { .. }
            | Fault::MountpointNotDirectory { .. }
            | Fault::MountpointWrongOwner { .. }
            | Fault::MountpointWrongMode { .. }
            | Fault::MountpointNotEmpty { .. }
            | Fault::MountpointForeignMount { .. }
            | Fault::MountpointInUse { .. }
            | Fault::MountpointUnusable { .. }
            | Fault::MountpointNotVisible { .. }
            | Fault::MountStale { .. }
            | Fault::MountDetached { .. }
            | Fault::ConnectionAborted { .. }
            | Fault::StoreParentMissing { .. }
            | Fault::StoreLocked { .. }
            | Fault::StoreSymlink { .. }
            | Fault::StoreNotDirectory { .. }
            | Fault::StoreWrongOwner { .. }
            | Fault::StoreWrongMode { .. }
            | Fault::StoreUnusable { .. }
            | Fault::SavedVersionUnknown { .. }
            | Fault::SavedUnreadable { .. }
            | Fault::DaemonUnreachable { .. }
            | Fault::DaemonUnresponsive { .. }
            | Fault::WorkerFailed { .. }
            | Fault::SettingsInvalid { .. }
            | Fault::SocketInUse { .. }
            | Fault::SocketRefused { .. }
            | Fault::System { .. } => Self::Faulted { code, message, remedy },
        }
    }
}

/// That the namespace can't be served, as a client gets it.
pub(super) fn faulted(report: &FaultReport) -> Error {
    let FaultReport { code, message, remedy, cause: _ } = report.clone();
    Error::Faulted { code, message, remedy }
}

fn count(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
