//! What the namespace needs from the filesystem that it stands on.
//!
//! It must never decide who gets what; the registry did.

use rustix::io::Errno;
use thiserror::Error;

use crate::node::GenerationKey;
use crate::registry::{LeaseId, Mode, SessionId, Usage};

/// To whom a directory that is raised belongs, and who gets through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Who gets through.
    pub mode: Mode,
}

/// What a generation may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes; `None` is no limit.
    pub size: Option<u64>,
    /// Inodes; `None` is no limit.
    pub inodes: Option<u64>,
}

impl Room {
    /// Whether there is no limit at all.
    pub(super) const fn is_unlimited(self) -> bool {
        self.size.is_none() && self.inodes.is_none()
    }
}

/// Whether something is as it was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is.
    Whole,
    /// It isn't there, or something else is in its place; what is wrong.
    Missing(&'static str),
}

/// Called once, when a generation that was drained is gone.
pub type Gone = Box<dyn FnOnce() + Send>;

/// Called where a generation that is drained doesn't go.
pub type Stuck = Box<dyn Fn(Blockage) + Send>;

/// Why a generation that is to go doesn't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blockage {
    /// Something in it is used.
    InUse,
    /// Something in it can't be removed; what the kernel says. It is tried again.
    Refused(String),
}

/// What became of something that is left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// It isn't there any more, or something else is.
    Nothing,
    /// Something in it is used, or that can't be told.
    InUse(Usage),
    /// Nobody uses it.
    Unused(Usage),
    /// It was swept.
    Swept(Usage),
}

/// A generation in the store that no session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unclaimed {
    /// Its key.
    pub key: GenerationKey,
    /// The owner of its files' root.
    pub uid: u32,
    /// What is in it.
    pub usage: Usage,
}

/// The filesystem beneath the namespace: it makes and removes the directories that the registry
/// decided about.
///
/// Every call is made with the lock of the [`Namespace`](super::Namespace) held. So none may call
/// back into it, wait for a thread that does, or take longer than making a directory or a store
/// takes. A call that fails leaves nothing behind.
pub trait Ground: Send + Sync {
    /// Whether a generation can be held to its room at all.
    fn holds_limits(&self) -> bool;

    /// The smallest number of bytes by which generations differ in what they may hold.
    fn grain(&self) -> u64;

    /// Makes a session's directory below the root; its inode's number.
    ///
    /// # Errors
    /// Where it can't be made.
    fn raise_session(&self, session: &SessionId, owner: Owner) -> Result<u64, GroundError>;

    /// Makes the store of a generation and hangs its directory below the session's, under its
    /// number; that directory's inode number.
    ///
    /// # Errors
    /// Where the store can't be made, or can't be held to its room.
    fn raise_generation(
        &self,
        session: &SessionId,
        number: u32,
        key: GenerationKey,
        room: Room,
        owner: Owner,
    ) -> Result<u64, GroundError>;

    /// Makes a private lease's directory in a generation, structural; its inode's number.
    ///
    /// # Errors
    /// Where it can't be made.
    fn raise_lease(
        &self,
        key: GenerationKey,
        lease: &LeaseId,
        owner: Owner,
    ) -> Result<u64, GroundError>;

    /// Takes away the directory of a private lease that was raised just now and could not be
    /// kept. Where somebody was quicker and put something into it, it is an ordinary one from now
    /// on.
    fn take_back_lease(&self, key: GenerationKey, lease: &LeaseId);

    /// Makes a session's directory again, under the number that its inode had.
    ///
    /// # Errors
    /// Where it can't be made.
    fn restore_session(
        &self,
        session: &SessionId,
        owner: Owner,
        inode: u64,
    ) -> Result<(), GroundError>;

    /// Hangs a generation that an earlier daemon made below its session's directory, if it is
    /// still there and has the same inode.
    ///
    /// # Errors
    /// Where that can't be told.
    fn restore_generation(
        &self,
        session: &SessionId,
        number: u32,
        key: GenerationKey,
        inode: u64,
    ) -> Result<Found, GroundError>;

    /// Makes the directory of a private lease structural again, if it is still there and has the
    /// same inode.
    ///
    /// # Errors
    /// Where that can't be told.
    fn restore_lease(
        &self,
        key: GenerationKey,
        lease: &LeaseId,
        inode: u64,
    ) -> Result<Found, GroundError>;

    /// A private lease has ended: its directory is an ordinary one from now on. It stays, with
    /// what is in it, until somebody removes it or the generation goes: a process that went its
    /// own way may still be in it. Answers with the number of its inode, where it is there.
    fn end_lease(&self, key: GenerationKey, lease: &LeaseId) -> Option<u64>;

    /// Nobody leases this generation any more, and nobody will. Once the kernel doesn't use it
    /// either, it is to be discarded and its name removed, and then `gone` called: from a thread
    /// of the ground's own with nothing of the ground's locked, never from within this call. So is
    /// `stuck`, once for each reason, where it doesn't go at once.
    fn drain(&self, key: GenerationKey, gone: Gone, stuck: Stuck);

    /// Removes a session's directory; there is no generation in it any more.
    fn lower_session(&self, session: &SessionId);

    /// Gives a generation other room while it is in use; nothing where it was drained and is gone
    /// already, though that was not said yet.
    ///
    /// # Errors
    /// Where it holds more than that already, or the store has no limits.
    fn resize(&self, key: GenerationKey, room: Room) -> Result<(), GroundError>;

    /// What a generation holds of its session's limits; nothing for one that was drained and is
    /// gone already, though that was not said yet.
    ///
    /// # Errors
    /// Where that can't be told.
    fn used(&self, key: GenerationKey) -> Result<Usage, GroundError>;

    /// Whether a file of a generation was opened for writing since this was taken note of the last
    /// time. From then on it is told anew.
    fn is_written(&self, key: GenerationKey, take_note: bool) -> bool;

    /// Looks whether anybody uses anything in the directory of a private lease that has ended, if it
    /// still is the one with this inode, and where nobody does and it is to be swept removes it.
    ///
    /// It takes as long as the directory is large, so unlike all others it is called with nothing
    /// locked.
    ///
    /// # Errors
    /// Where it can't be looked at or removed.
    fn sweep_lease(
        &self,
        key: GenerationKey,
        lease: &LeaseId,
        inode: u64,
        sweep: bool,
    ) -> Result<Remains, GroundError>;

    /// The generations in the store that an earlier daemon has left: those before `first` that
    /// `claimed` doesn't say are a session's. With nothing locked, too.
    ///
    /// # Errors
    /// Where the store can't be looked at.
    fn unclaimed(
        &self,
        first: GenerationKey,
        claimed: &dyn Fn(GenerationKey) -> bool,
    ) -> Result<Vec<Unclaimed>, GroundError>;

    /// Discards a generation that no session has. With nothing locked, too.
    ///
    /// # Errors
    /// Where something in it can't be removed.
    fn sweep_generation(&self, key: GenerationKey) -> Result<(), GroundError>;
}

/// Why the ground could not do what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GroundError {
    /// There are no bytes left.
    #[error("the store is full")]
    Full,
    /// There are no inodes left.
    #[error("the store has no inodes left")]
    OutOfInodes,
    /// There are no descriptors, or no numbers, for one more.
    #[error("the daemon can't hold another generation")]
    Exhausted,
    /// The store can't have the limits that were asked for.
    #[error("the store can't have these limits: more is in use, or they make no sense")]
    Unfit,
    /// The store can't do this, whatever the moment.
    #[error("the store can't do this: {0}")]
    NotSupported(&'static str),
    /// The kernel refused.
    #[error("{step}: {errno}")]
    Refused {
        /// What was being done.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl GroundError {
    /// A session was to have limits, and the store knows none.
    pub(crate) const NO_LIMITS: Self =
        Self::NotSupported("limits of a session (--size, --inodes) need the tmpfs store");

    /// The stable code that clients, events and metrics know it by.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Full => "store-full",
            Self::OutOfInodes => "store-out-of-inodes",
            Self::Exhausted => "generations-exhausted",
            Self::Unfit => "request-invalid",
            Self::NotSupported(_) => "not-supported",
            Self::Refused { .. } => "store-unusable",
        }
    }
}
