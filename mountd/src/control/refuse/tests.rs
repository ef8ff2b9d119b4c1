//! One code names a refusal everywhere, and no client is told a path.

use std::path::PathBuf;

use holdfast_fs::registry::{LeaseEnd, LeaseId, Limit, NameFault, PolicyPart, SessionId};
use rustix::io::Errno;

use super::*;

fn refusals() -> Vec<NamespaceError> {
    let session = SessionId::from_number(7);
    let lease = LeaseId::from_number(7);
    let registry = [
        RegistryError::NameInvalid { fault: NameFault::TooLong(200) },
        RegistryError::SessionUnknown { session: "s".into() },
        RegistryError::SessionAmbiguous { session: "s".into() },
        RegistryError::SessionSealed { session },
        RegistryError::SessionNotYours { session },
        RegistryError::PolicyDiffers { session, part: PolicyPart::Mode },
        RegistryError::TokenUnknown,
        RegistryError::LeaseUnknown { lease: "l".into() },
        RegistryError::LeaseEnded { lease, end: LeaseEnd::ProcessGone },
        RegistryError::LimitReached { limit: Limit::SessionsPerUid, value: 7 },
        RegistryError::GenerationsExhausted { value: 7 },
        RegistryError::NotFromInside { session },
        RegistryError::NoRandomness,
    ];
    let ground = [
        GroundError::Full,
        GroundError::OutOfInodes,
        GroundError::Exhausted,
        GroundError::Unfit,
        GroundError::NotSupported("limits"),
        GroundError::Refused { step: "make a store", errno: Errno::IO },
    ];
    let full = [
        NamespaceError::SessionFull { session, limit: 2, held: 1 },
        NamespaceError::SessionOutOfInodes { session, limit: 2, held: 1 },
    ];
    let registry = registry.into_iter().map(NamespaceError::from);
    registry.chain(ground.into_iter().map(NamespaceError::from)).chain(full).collect()
}

#[test]
fn a_refusal_has_the_code_that_the_namespace_gives_it() {
    for error in refusals() {
        assert_eq!(namespace_fault(&error).code(), error.code(), "{error:?}");
        let report = namespace_error(&error).report();
        assert_eq!(report.code, error.code());
        assert_eq!(report.message, error.to_string());
        assert!(!report.remedy.is_empty());
    }
}

#[test]
fn a_refusal_has_the_error_of_its_meaning() {
    let name = |error: &NamespaceError| {
        let wire = serde_json::to_value(namespace_error(error)).expect("JSON");
        wire["error"]
            .as_str()
            .expect("a name")
            .trim_start_matches("org.holdfast.Namespace.")
            .to_owned()
    };
    let names: Vec<String> = refusals().iter().map(name).collect();
    assert_eq!(
        names,
        [
            "NameInvalid",
            "SessionUnknown",
            "SessionUnknown",
            "SessionSealed",
            "SessionNotYours",
            "PolicyDiffers",
            "TokenUnknown",
            "LeaseUnknown",
            "LeaseUnknown",
            "LimitReached",
            "GenerationsExhausted",
            "NotFromInside",
            "NotSupported",
            "StoreFull",
            "StoreOutOfInodes",
            "GenerationsExhausted",
            "RequestInvalid",
            "NotSupported",
            "Faulted",
            "StoreFull",
            "StoreOutOfInodes",
        ]
    );
}

#[test]
fn a_fault_of_the_host_keeps_its_path_to_itself() {
    let path = PathBuf::from("/secret/place");
    let error = Error::from(&Fault::MountpointSymlink { path: path.clone(), target: path });
    let report = error.report();
    assert_eq!(report.code, "mountpoint-symlink");
    assert_eq!(report.cause, None);
    assert!(!report.message.contains("secret"), "{}", report.message);
}
