//! The stable codes of faults.
//!
//! Clients compare them, so one that was given must never change.

use super::Fault;

impl Fault {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::FuseDeviceMissing { .. } => "fuse-device-missing",
            Self::FusermountMissing { .. } => "fusermount-missing",
            Self::FusermountRefused { .. } => "fusermount-refused",
            Self::MountRefused { .. } => "mount-refused",
            Self::UsernsRefused { .. } => "userns-refused",
            Self::KernelTooOld { .. } => "kernel-too-old",
            Self::MountpointParentMissing { .. } => "mountpoint-parent-missing",
            Self::MountpointParentNotDirectory { .. } => "mountpoint-parent-not-directory",
            Self::MountpointParentWritable { .. } => "mountpoint-parent-writable",
            Self::MountpointSymlink { .. } => "mountpoint-symlink",
            Self::MountpointNotDirectory { .. } => "mountpoint-not-directory",
            Self::MountpointWrongOwner { .. } => "mountpoint-wrong-owner",
            Self::MountpointWrongMode { .. } => "mountpoint-wrong-mode",
            Self::MountpointNotEmpty { .. } => "mountpoint-not-empty",
            Self::MountpointForeignMount { .. } => "mountpoint-foreign-mount",
            Self::MountpointInUse { .. } => "mountpoint-in-use",
            Self::MountpointUnusable { .. } => "mountpoint-unusable",
            Self::MountpointNotVisible { .. } => "mountpoint-not-visible",
            Self::MountStale { .. } => "mount-stale",
            Self::MountDetached { .. } => "mount-detached",
            Self::ConnectionAborted { .. } => "connection-aborted",
            Self::StoreParentMissing { .. } => "store-parent-missing",
            Self::StoreLocked { .. } => "store-locked",
            Self::StoreSymlink { .. } => "store-symlink",
            Self::StoreNotDirectory { .. } => "store-not-directory",
            Self::StoreWrongOwner { .. } => "store-wrong-owner",
            Self::StoreWrongMode { .. } => "store-wrong-mode",
            Self::StoreUnusable { .. } => "store-unusable",
            Self::SavedVersionUnknown { .. } => "saved-version-unknown",
            Self::SavedUnreadable { .. } => "saved-unreadable",
            Self::StoreFull => "store-full",
            Self::StoreOutOfInodes => "store-out-of-inodes",
            Self::GenerationsExhausted { .. } => "generations-exhausted",
            Self::SessionUnknown { .. } => "session-unknown",
            Self::SessionSealed { .. } => "session-sealed",
            Self::SessionNotYours { .. } => "session-not-yours",
            Self::PolicyDiffers { .. } => "policy-differs",
            Self::LeaseUnknown { .. } => "lease-unknown",
            Self::TokenUnknown => "token-unknown",
            Self::NotFromInside { .. } => "not-from-inside",
            Self::NameInvalid { .. } => "name-invalid",
            Self::LimitReached { .. } => "limit-reached",
            Self::SessionsAlive { .. } => "sessions-alive",
            Self::DaemonNotYours { .. } => "daemon-not-yours",
            Self::ProcessUnknown { .. } => "process-unknown",
            Self::RequestInvalid { .. } => "request-invalid",
            Self::RequestTooLarge { .. } => "request-too-large",
            Self::NotSupported { .. } => "not-supported",
            Self::Stopping => "stopping",
            Self::DaemonUnreachable { .. } => "daemon-unreachable",
            Self::DaemonUnresponsive { .. } => "daemon-unresponsive",
            Self::WorkerFailed { .. } => "worker-failed",
            Self::SettingsInvalid { .. } => "settings-invalid",
            Self::SocketInUse { .. } => "socket-in-use",
            Self::SocketRefused { .. } => "socket-refused",
            Self::System { .. } => "system",
        }
    }
}
