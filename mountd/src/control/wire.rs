//! The Varlink interface `org.holdfast.Namespace`: its methods, types and errors.
//!
//! It stands apart from the records that are kept: what is on the wire stays as it is while those
//! change. It must never decide or do anything.

mod calls;
mod description;
mod errors;
mod event;
mod leftover;
mod qualification;
mod types;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zlink::idl;
use zlink::introspect::{CustomType as _, ReplyError as _, Type};
use zlink::names::{InterfaceName, TypeName};

pub use self::calls::*;
pub(crate) use self::description::text;
pub use self::errors::{Error, ErrorReply};
pub use self::event::{Attempt, Event, EventKind};
pub use self::leftover::{Leftover, LeftoverKind};
pub use self::qualification::*;
pub use self::types::*;

/// The name of the interface.
pub const INTERFACE: &str = "org.holdfast.Namespace";

/// No request is longer, its end included.
pub const LONGEST_REQUEST: usize = 64 * 1024;

/// A method: what it takes, its name, and what it gives.
pub trait Method: Serialize + DeserializeOwned + std::fmt::Debug {
    /// The name, with the interface's before it.
    const NAME: &'static str;
    /// What it gives.
    type Reply: Serialize + DeserializeOwned + std::fmt::Debug;
}

/// A request that is none of this interface.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// There is no such method.
    Method,
    /// The method takes other parameters.
    Parameters(String),
}

macro_rules! methods {
    ($($(#[doc = $doc:literal])* $name:ident => $reply:ident,)*) => {
        $(impl Method for $name {
            const NAME: &'static str = concat!("org.holdfast.Namespace.", stringify!($name));
            type Reply = $reply;
        })*

        /// A request that was understood.
        #[derive(Debug)]
        pub(crate) enum Request {
            $($(#[doc = $doc])* $name($name),)*
        }

        impl Request {
            /// The request that a method's name and its parameters mean.
            pub(crate) fn parse(method: &str, parameters: Value) -> Result<Self, Unfit> {
                match method {
                    $($name::NAME => fit(parameters).map(Self::$name),)*
                    _ => Err(Unfit::Method),
                }
            }

            /// The name of its method.
            pub(crate) const fn method(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($name),)*
                }
            }
        }

        /// What is answered to a request.
        #[derive(Debug, Serialize)]
        #[serde(untagged)]
        pub(crate) enum Answer {
            $($(#[doc = $doc])* $name($reply),)*
        }

        const METHODS: &[&idl::Method<'static>] = &[$({
            const METHOD: &idl::Method<'static> = &idl::Method::new(
                TypeName::from_static_str_unchecked(stringify!($name)),
                parameters::<$name>(),
                parameters::<$reply>(),
                &[$(&idl::Comment::new($doc.trim_ascii())),*],
            );
            METHOD
        }),*];
    };
}

methods! {
    /// What this daemon is, and what it can't promise on this host.
    Describe => Description,
    /// Opens a session, or attaches to the open one of that name. The owner token that it answers
    /// with hangs on the caller's process unless something else is said.
    OpenSession => OpenedSession,
    /// Gives one more owner token of an open session. It hangs on the caller's process unless
    /// something else is said.
    RetainSession => RetainedSession,
    /// Takes an owner token back. The last one seals the session, for ever. A token that was
    /// released before is released again without an error.
    ReleaseSession => Nothing,
    /// Retires the current generation. The next lease makes a fresh one.
    RotateSession => ShownSession,
    /// Changes the limits of an open session. What isn't said stays as it is.
    ResizeSession => ShownSession,
    /// Seals a session, whoever retains it.
    CloseSession => Nothing,
    /// The sessions of the caller's user; for root all.
    ListSessions => ShownSessions,
    /// One session, sealed or not.
    ShowSession => ShownSession,
    /// Would the next lease of a session be had? Answers at once, with the error that the lease
    /// would be refused with.
    Check => ShownSession,
    /// Takes a lease on the current generation of a session. It ends with the caller's process
    /// unless something else is said.
    AcquireLease => AcquiredLease,
    /// Hangs a lease on a process, whatever it hung on before.
    BindLease => ShownLease,
    /// One lease that has not ended.
    CheckLease => ShownLease,
    /// Ends a lease. For one that has ended already, the receipt is given again for a while.
    ReleaseLease => ReleasedLease,
    /// The leases of the caller's user; for root all.
    ListLeases => ShownLeases,
    /// Has a lease keep the record of an examination of its directory, in place of the one that it
    /// had.
    Qualify => Nothing,
    /// Shows what is left of what has ended, the caller's or for root everybody's, and sweeps away
    /// what nobody uses. Each thing is looked at anew before it goes. It takes as long as that is
    /// large.
    Sweep => Swept,
    /// How the daemon is doing.
    Status => CurrentStatus,
    /// What happened. Called with `more` it goes on for ever: the first reply comes at once, further
    /// ones as things happen, and the last one when the daemon is about to end. Called without, it
    /// gives one page of what there is. The daemon keeps the last few thousand events. What concerns
    /// a session is told to the user whose it is, whoever did it, and to root.
    Watch => Watched,
    /// Ends the daemon. For root, and for the user whose daemon it is.
    Down => Nothing,
}

/// The interface as tools are told it.
pub(crate) const DESCRIPTION: &idl::Interface<'static> = &idl::Interface::new(
    InterfaceName::from_static_str_unchecked(INTERFACE),
    METHODS,
    &[
        Mode::CUSTOM_TYPE,
        Guard::CUSTOM_TYPE,
        LeaseKind::CUSTOM_TYPE,
        Hold::CUSTOM_TYPE,
        LeaseEnd::CUSTOM_TYPE,
        DownMode::CUSTOM_TYPE,
        EventKind::CUSTOM_TYPE,
        Attempt::CUSTOM_TYPE,
        LeftoverKind::CUSTOM_TYPE,
        Process::CUSTOM_TYPE,
        Policy::CUSTOM_TYPE,
        Owner::CUSTOM_TYPE,
        Generation::CUSTOM_TYPE,
        Session::CUSTOM_TYPE,
        Lease::CUSTOM_TYPE,
        Receipt::CUSTOM_TYPE,
        LostPromise::CUSTOM_TYPE,
        Fault::CUSTOM_TYPE,
        Limits::CUSTOM_TYPE,
        Counts::CUSTOM_TYPE,
        Event::CUSTOM_TYPE,
        Leftover::CUSTOM_TYPE,
        Verdict::CUSTOM_TYPE,
        ErrorNumber::CUSTOM_TYPE,
        Asker::CUSTOM_TYPE,
        View::CUSTOM_TYPE,
        Link::CUSTOM_TYPE,
        Object::CUSTOM_TYPE,
        MountPoint::CUSTOM_TYPE,
        Access::CUSTOM_TYPE,
        Probe::CUSTOM_TYPE,
        Space::CUSTOM_TYPE,
        GitAnswer::CUSTOM_TYPE,
        Qualification::CUSTOM_TYPE,
    ],
    Error::VARIANTS,
    &[
        &idl::Comment::new("Sessions, generations and leases of a managed temp namespace."),
        &idl::Comment::new(""),
        &idl::Comment::new(
            "The caller is whoever the kernel says is at the other end. A user sees",
        ),
        &idl::Comment::new("and touches the user's own sessions, root all. A session is named by"),
        &idl::Comment::new("its name or its id. Times are in milliseconds. Every error carries a"),
        &idl::Comment::new("stable code, a message without a path, and a remedy."),
    ],
);

fn fit<T: DeserializeOwned>(parameters: Value) -> Result<T, Unfit> {
    // A list would be taken for the members in their order.
    if !parameters.is_object() {
        return Err(Unfit::Parameters("parameters are an object".to_owned()));
    }
    serde_json::from_value(parameters).map_err(|error| Unfit::Parameters(error.to_string()))
}

/// The members of an object, as parameters of a method.
const fn parameters<T: Type>() -> &'static [&'static idl::Parameter<'static>] {
    match T::TYPE.as_object() {
        Some(members) => match members.as_borrowed() {
            Some(members) => members,
            None => panic!("a derived type is borrowed"),
        },
        None => panic!("what a method takes and gives is an object"),
    }
}

/// A request as it comes: any object with a method's name in it.
#[derive(Debug, Deserialize)]
pub(crate) struct Incoming {
    /// The method's name, with that of its interface.
    pub(crate) method: String,
    /// What it is given.
    #[serde(default)]
    pub(crate) parameters: Option<Value>,
}

/// A request as it goes.
#[derive(Debug, Serialize)]
pub(crate) struct Outgoing<'a, M> {
    method: &'static str,
    parameters: &'a M,
}

impl<'a, M: Method> Outgoing<'a, M> {
    /// The request to call a method with these parameters.
    pub(crate) const fn new(parameters: &'a M) -> Self {
        Self { method: M::NAME, parameters }
    }
}

#[cfg(test)]
mod tests;
