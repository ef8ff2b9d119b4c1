//! Asks whoever listens at the control socket what it serves.
//!
//! One call, by hand: the keeper needs no client. The answer is bounded in length and in time.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use serde::Deserialize;

use crate::place::Place;

/// How long an answer is waited for. A daemon that has just begun to start answers once it serves.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

const CALL: &[u8] = b"{\"method\":\"org.holdfast.Namespace.Describe\"}\0";
const LONGEST_ANSWER: usize = 64 * 1024;

/// Who listens at a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// Nobody: the kernel's answer.
    Nobody(ErrorKind),
    /// A daemon of this user, and what it serves.
    Serves { uid: u32, mountpoint: PathBuf },
    /// Somebody who ended the connection without an answer, as a daemon does that stops.
    Left,
    /// Somebody who doesn't answer in time.
    Silent,
    /// Something else than a daemon of this kind.
    Other(String),
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

/// Asks. Errors are those of our own side.
pub(super) fn ask(socket: &Place) -> io::Result<Listener> {
    let mut stream = match UnixStream::connect(socket.address()) {
        Ok(stream) => stream,
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                return Ok(Listener::Nobody(error.kind()));
            }
            _ => return Err(error),
        },
    };
    let uid = socket_peercred(&stream)?.uid.as_raw();
    match exchange(&mut stream) {
        Ok(answer) => Ok(understand(uid, &answer)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(Listener::Silent),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                Ok(Listener::Left)
            }
            _ => Err(error),
        },
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
        let found = ask(&Place::of(&socket).expect("a place")).expect("our own side is fine");
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
        assert_eq!(
            ask(&Place::of(&socket).expect("a place")).ok(),
            Some(Listener::Nobody(ErrorKind::NotFound))
        );
        drop(UnixListener::bind(&socket).expect("bound"));
        assert_eq!(
            ask(&Place::of(&socket).expect("a place")).ok(),
            Some(Listener::Nobody(ErrorKind::ConnectionRefused))
        );
    }
}
