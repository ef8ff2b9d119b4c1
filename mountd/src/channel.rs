//! The line between keeper and worker: small messages, with descriptors where they need some.
//!
//! The keeper must never get anything else over it; no request of a client passes here.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::Store;
use crate::fault::FaultReport;

/// No message is longer.
const LONGEST: usize = 64 * 1024;
/// No message has more descriptors.
const MOST_DESCRIPTORS: usize = 4;

/// What the keeper tells the worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// Get ready. Comes with the listener, and with the directory of a `dir:` store.
    Begin(Begin),
    /// Serve this connection, besides those that there are. Comes with the device.
    Serve {
        /// Which of the keeper's connections it is.
        number: u64,
        /// The device number of the mount, as `st_dev`.
        device: u64,
    },
    /// What has happened to the mount or the socket.
    Happened(Change),
    /// How things stand.
    Stands {
        /// The number of the last question that this answers.
        asked: u64,
        /// Why no lease can be had, where that is so.
        fault: Option<FaultReport>,
    },
    /// Let clients in here too. Comes with a listener.
    Listen,
    /// Take no request any more, but go on serving what is open.
    Quiesce,
}

/// What has happened to the mount or the socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// Somebody has taken the mount from its path.
    Detached,
    /// The connection to the kernel was ended from outside.
    Aborted,
    /// The same mount is back at its path.
    Reattached {
        /// How long it was away, as far as that is known.
        took: Duration,
    },
    /// A new mount over the same store is at the path.
    Remounted {
        /// How long there was none, as far as that is known.
        took: Duration,
    },
    /// Service can't resume.
    FaultRaised(FaultReport),
    /// What was in the way of service no longer is.
    FaultCleared {
        /// The fault's code.
        code: String,
    },
    /// A socket that was lost is bound anew.
    SocketBound,
}

/// What the worker needs to know before it gets ready.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// Whether it may mount, and serves other users.
    pub(crate) privileged: bool,
    /// The keeper's process.
    pub(crate) keeper: u32,
    /// Where the namespace appears.
    pub(crate) mountpoint: PathBuf,
    /// Where clients find the daemon.
    pub(crate) socket: PathBuf,
    /// Where files are kept.
    pub(crate) store: Store,
    /// After how long without use to leave.
    pub(crate) idle_exit: Option<Duration>,
    /// Bytes that all sessions together may hold, where somebody has said it.
    pub(crate) total: Option<u64>,
}

/// What the worker tells the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToKeeper {
    /// It can serve as soon as it gets the device.
    Prepared,
    /// It serves a connection.
    Ready {
        /// Which one.
        number: u64,
    },
    /// It can't serve a connection.
    Unfit {
        /// Which one.
        number: u64,
        /// Why not.
        report: FaultReport,
    },
    /// A connection has ended.
    Ended {
        /// Which one.
        number: u64,
    },
    /// How do things stand at this moment?
    Look {
        /// The number of the question.
        asked: u64,
    },
    /// It can't serve, and ends.
    Failed(FaultReport),
    /// The daemon should stop.
    Stop(Why),
    /// It takes no request any more.
    Quiet,
}

/// Why the daemon should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    /// A client asked for it.
    Asked,
    /// Nobody has used it for long enough.
    Idle,
}

/// One end of the line.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// Both ends of a new line; the other one is for a process to be started.
    pub(crate) fn pair() -> rustix::io::Result<(Self, OwnedFd)> {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self { socket: ours }, theirs))
    }

    /// The end that this process was started with.
    pub(crate) const fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a message.
    pub(crate) fn send<T: Serialize>(
        &self,
        message: &T,
        descriptors: &[BorrowedFd<'_>],
    ) -> rustix::io::Result<()> {
        let bytes = serde_json::to_vec(message).map_err(|_| Errno::BADMSG)?;
        if bytes.len() > LONGEST || descriptors.len() > MOST_DESCRIPTORS {
            return Err(Errno::MSGSIZE);
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::MSGSIZE);
        }
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for a message; `None` once the other end is gone.
    pub(crate) fn receive<T: DeserializeOwned>(
        &self,
    ) -> rustix::io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; LONGEST];
        let (length, descriptors) =
            match receive(self.socket.as_fd(), &mut bytes, RecvFlags::empty()) {
                // It has gone without reading all that was sent to it.
                Err(Errno::CONNRESET) | Ok((0, _)) => return Ok(None),
                received => received?,
            };
        let message = serde_json::from_slice(&bytes[..length]).map_err(|_| Errno::BADMSG)?;
        Ok(Some((message, descriptors)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Takes a descriptor that has been sent over a stream; `None` where none has.
pub(crate) fn receive_descriptor(socket: BorrowedFd<'_>) -> rustix::io::Result<Option<OwnedFd>> {
    match receive(socket, &mut [0; 16], RecvFlags::DONTWAIT) {
        Ok((_, descriptors)) => Ok(descriptors.into_iter().next()),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok((received.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn messages_bring_their_descriptors() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        let theirs = Channel::from(theirs);
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        ours.send(&ToWorker::Serve { number: 1, device: 7 }, &[reader.as_fd()]).expect("sent");
        let (message, descriptors) =
            theirs.receive::<ToWorker>().expect("received").expect("not the end");
        assert!(matches!(message, ToWorker::Serve { number: 1, device: 7 }));
        let [received] = <[OwnedFd; 1]>::try_from(descriptors).expect("one descriptor");
        writer.write_all(b"x").expect("written");
        let mut byte = [0];
        File::from(received).read_exact(&mut byte).expect("read");
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn the_end_is_told_from_a_message() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        ours.send(&ToWorker::Quiesce, &[]).expect("sent");
        drop(ours);
        let theirs = Channel::from(theirs);
        assert!(theirs.receive::<ToWorker>().expect("received").is_some());
        assert!(theirs.receive::<ToWorker>().expect("received").is_none());
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        ours.send(&"nonsense", &[]).expect("sent");
        let refused = Channel::from(theirs).receive::<ToWorker>();
        assert_eq!(refused.err(), Some(Errno::BADMSG));
    }
}
