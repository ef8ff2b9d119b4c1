//! What every Varlink service answers about itself, so that tools find their way.
//!
//! It must never say anything of the namespace.

use std::borrow::Cow;

use serde_json::Value;
use zlink::varlink_service as varlink;

use super::{Refusal, Reply};
use crate::control::wire;
use crate::fault::Fault;

/// What every Varlink service answers about itself.
pub(super) fn introspect(
    method: &str,
    full_name: &str,
    parameters: &Value,
) -> Result<Reply, Refusal> {
    match method {
        "GetInfo" => {
            let interfaces = [wire::INTERFACE, varlink::INTERFACE_NAME.as_str()];
            varlink::Info::new("Holdfast", "holdfast", env!("CARGO_PKG_VERSION"), "", interfaces)
                .map(Reply::Info)
                .map_err(|error| Fault::RequestInvalid { reason: error.to_string() }.into())
        }
        "GetInterfaceDescription" => {
            let asked = parameters.get("interface").and_then(Value::as_str);
            let interface = match asked {
                Some(name) if name == wire::INTERFACE => wire::DESCRIPTION,
                Some(name) if name == varlink::INTERFACE_NAME.as_str() => varlink::DESCRIPTION,
                Some(name) => {
                    let interface = Cow::Owned(name.to_owned());
                    return Err(Refusal::Varlink(varlink::Error::InterfaceNotFound { interface }));
                }
                None => {
                    let parameter = Cow::Borrowed("interface");
                    return Err(Refusal::Varlink(varlink::Error::InvalidParameter { parameter }));
                }
            };
            Ok(Reply::Description { description: wire::text(interface) })
        }
        _ => Err(not_found(full_name)),
    }
}

/// There is no such method.
pub(super) fn not_found(method: &str) -> Refusal {
    Refusal::Varlink(varlink::Error::MethodNotFound { method: Cow::Owned(method.to_owned()) })
}
