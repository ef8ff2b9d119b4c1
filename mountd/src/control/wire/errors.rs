//! The errors of the interface: one for each meaning that a client can act on.
//!
//! A message must never carry a path: clients read it.

use serde::Deserialize;
use serde_json::Value;

use crate::fault::FaultReport;

macro_rules! errors {
    ($($(#[doc = $doc:literal])* $name:ident $({ $(#[doc = $about:literal])* $more:ident: $type:ty })?,)*) => {
        /// An error of the interface.
        #[derive(Clone, Debug, PartialEq, Eq, zlink::ReplyError, zlink::introspect::ReplyError)]
        #[zlink(interface = "org.holdfast.Namespace")]
        pub enum Error {
            $($(#[doc = $doc])*
            $name {
                /// The stable code.
                code: String,
                /// What is wrong.
                message: String,
                /// What can be done about it.
                remedy: String,
                $($(#[doc = $about])* $more: $type,)?
            },)*
        }

        impl Error {
            /// The same as a report.
            #[must_use]
            pub fn report(&self) -> FaultReport {
                let (code, message, remedy) = match self {
                    $(Self::$name { code, message, remedy, .. } => (code, message, remedy),)*
                };
                FaultReport {
                    code: code.clone(),
                    message: message.clone(),
                    remedy: remedy.clone(),
                    cause: None,
                }
            }

            /// The same error with other words for what is wrong.
            #[must_use]
            pub(crate) fn saying(mut self, words: String) -> Self {
                match &mut self {
                    $(Self::$name { message, .. } => *message = words,)*
                }
                self
            }
        }
    };
}

errors! {
    /// There is no such session of the caller's.
    SessionUnknown,
    /// The session takes no lease any more, ever.
    SessionSealed,
    /// The session belongs to another user.
    SessionNotYours,
    /// The session is open with another policy than the one that is asked for.
    PolicyDiffers,
    /// There is no such lease of the caller's, or it has ended.
    LeaseUnknown,
    /// The session has no such owner token.
    TokenUnknown,
    /// Not from inside a lease of what would end.
    NotFromInside,
    /// The name breaks the rules for names.
    NameInvalid,
    /// A limit is reached.
    LimitReached,
    /// There are as many generations as the daemon can hold.
    GenerationsExhausted,
    /// There are no bytes left.
    StoreFull,
    /// There are no inodes left.
    StoreOutOfInodes,
    /// The daemon doesn't end while sessions live.
    SessionsAlive {
        /// Their names, or ids where they have none.
        sessions: Vec<String>
    },
    /// The daemon is another user's.
    DaemonNotYours,
    /// There is no such process of the caller's user.
    ProcessUnknown,
    /// The request can't be understood.
    RequestInvalid,
    /// The request is too long. The connection ends.
    RequestTooLarge,
    /// The daemon, or this host, can't do that.
    NotSupported,
    /// The daemon is about to end.
    Stopping,
    /// The namespace can't be served; the code says why.
    Faulted,
}

/// Any error as a client gets it, also one that it doesn't know.
#[derive(Debug, Deserialize)]
pub struct ErrorReply {
    /// Its name, with that of its interface.
    pub error: String,
    /// What it carries.
    #[serde(default)]
    pub parameters: Option<Value>,
}

impl ErrorReply {
    /// What it says, as well as that can be told.
    #[must_use]
    pub fn report(&self) -> FaultReport {
        let text = |name| {
            let value = self.parameters.as_ref()?.get(name)?;
            value.as_str().map(str::to_owned)
        };
        FaultReport {
            code: text("code").unwrap_or_else(|| "request-invalid".to_owned()),
            message: text("message").unwrap_or_else(|| match &self.parameters {
                Some(parameters) => format!("{} {parameters}", self.error),
                None => self.error.clone(),
            }),
            remedy: text("remedy").unwrap_or_else(|| "use a client of its version".to_owned()),
            cause: None,
        }
    }
}
