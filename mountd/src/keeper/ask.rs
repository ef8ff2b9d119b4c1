//! Asks whoever listens at the control socket what it serves.
//!
//! One call, by hand: the keeper needs no client. The answer is bounded in length and in time.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Deserialize;

use crate::place::Place;

/// How long an answer is waited for. A daemon that has just begun to start answers once it serves.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

const CALL: &[u8] = b"{\"method\":\"org.holdfast.Namespace.Describe\"}\0";
const LONGEST_ANSWER: usize = 64 * 1024;

/// Who listens at a socket, by what it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// A daemon of this kind, and what it serves.
    Serves { uid: u32, mountpoint: PathBuf },
    /// Somebody who ended the connection without an answer, as a daemon does that stops.
    Left,
    /// Somebody who doesn't answer in time.
    Silent,
    /// Something else than a daemon of this kind.
    Other(String),
}

/// A connection to whoever listens.
#[derive(Debug)]
pub(super) struct Call {
    stream: UnixStream,
    uid: u32,
}

#[derive(Deserialize)]
struct Reply {
    parameters: Option<Description>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Description {
    mountpoint: PathBuf,
}

impl Call {
    /// Connects, if anybody listens.
    pub(super) fn to(socket: &Place) -> io::Result<Option<Self>> {
        let flags = SocketFlags::CLOEXEC;
        let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Else it would wait without an end for one who lets nobody in.
        set_socket_timeout(&stream, Timeout::Send, Some(PATIENCE))?;
        match connect(&stream, &SocketAddrUnix::new(socket.address())?) {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let uid = socket_peercred(&stream)?.uid.as_raw();
        Ok(Some(Self { stream: UnixStream::from(stream), uid }))
    }

    /// Asks. Errors are those of our own side.
    pub(super) fn answer(mut self) -> io::Result<Listener> {
        match exchange(&mut self.stream) {
            Ok(answer) => Ok(understand(self.uid, &answer)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(Listener::Silent),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                    Ok(Listener::Left)
                }
                _ => Err(error),
            },
        }
    }
}

fn exchange(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(CALL)?;
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() > LONGEST_ANSWER {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let length = stream.read(&mut part)?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let part = &part[..length];
        match part.iter().position(|byte| *byte == 0) {
            Some(end) => {
                answer.extend_from_slice(&part[..end]);
                return Ok(answer);
            }
            None => answer.extend_from_slice(part),
        }
    }
}

fn understand(uid: u32, answer: &[u8]) -> Listener {
    match serde_json::from_slice::<Reply>(answer) {
        Ok(Reply { error: Some(error), .. }) => {
            Listener::Other(format!("uid {uid}, which answers {error}"))
        }
        Ok(Reply { parameters: Some(description), error: None }) => {
            Listener::Serves { uid, mountpoint: description.mountpoint }
        }
        Ok(Reply { parameters: None, error: None }) | Err(_) => {
            Listener::Other(format!("uid {uid}, whose answer makes no sense"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    fn answer_of(answer: &'static [u8]) -> Listener {
        let room = tempfile::tempdir().expect("a temporary directory");
        let socket = room.path().join("s");
        let listener = UnixListener::bind(&socket).expect("bound");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("asked");
            let mut call = vec![0; CALL.len()];
            stream.read_exact(&mut call).expect("read");
            stream.write_all(answer).expect("answered");
            call
        });
        let call = Call::to(&Place::of(&socket).expect("a place")).expect("our own side is fine");
        let found = call.expect("somebody listens").answer().expect("our own side is fine");
        assert_eq!(server.join().expect("served"), CALL);
        found
    }

    #[test]
    fn a_daemon_is_told_from_others() {
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(
            answer_of(b"{\"parameters\":{\"mountpoint\":\"/m\",\"pid\":1}}\0"),
            Listener::Serves { uid, mountpoint: "/m".into() },
        );
        assert_eq!(answer_of(b"{\"par"), Listener::Left);
        assert!(matches!(
            answer_of(b"{\"error\":\"org.varlink.service.InterfaceNotFound\"}\0"),
            Listener::Other(_),
        ));
        assert!(matches!(answer_of(b"HTTP/1.1 400\0"), Listener::Other(_)));
    }

    #[test]
    fn nobody_is_told_from_somebody() {
        let room = tempfile::tempdir().expect("a temporary directory");
        let socket = room.path().join("s");
        let place = Place::of(&socket).expect("a place");
        assert!(Call::to(&place).expect("our own side is fine").is_none());
        drop(UnixListener::bind(&socket).expect("bound"));
        assert!(Call::to(&place).expect("our own side is fine").is_none());
    }
}
