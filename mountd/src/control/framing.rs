//! One connection as zlink reads and writes it: whole messages, none too long, none malformed.
//!
//! What isn't a request is answered here with a typed error, and the connection then ends. It must
//! never hold more of a client's bytes than one request may have, nor take descriptors from it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use serde::Serialize;
use tokio::net::UnixStream;
use zlink::Call;
use zlink::connection::PassedCredentials;
use zlink::connection::socket::{ReadHalf, ReadResult, Socket, WriteHalf};

use super::state::Stop;
use super::wire::{self, Incoming, LONGEST_REQUEST};
use crate::fault::Fault;

/// The end of a message.
const END: u8 = 0;
/// How much is read at once.
const PIECE: usize = 4096;

/// A connection.
#[derive(Debug)]
pub(super) struct Framed {
    stream: Rc<UnixStream>,
    stop: Stop,
}

impl Framed {
    /// A connection that ends after the request in hand once the daemon is to stop.
    pub(super) const fn new(stream: Rc<UnixStream>, stop: Stop) -> Self {
        Self { stream, stop }
    }
}

impl Socket for Framed {
    type ReadHalf = Reading;
    type WriteHalf = Writing;

    fn split(self) -> (Reading, Writing) {
        let stream = self.stream;
        let reading = Reading {
            stream: Rc::clone(&stream),
            stop: self.stop,
            read: Vec::new(),
            given: 0,
            end: None,
            refusal: None,
        };
        (reading, Writing { stream })
    }
}

/// The half that requests come in by.
#[derive(Debug)]
pub(super) struct Reading {
    stream: Rc<UnixStream>,
    stop: Stop,
    /// What was read.
    read: Vec<u8>,
    /// How much of that was handed on.
    given: usize,
    /// Where the request that is being handed on ends.
    end: Option<usize>,
    /// What is to be said before the connection ends, and how much of it was.
    refusal: Option<(Vec<u8>, usize)>,
}

impl ReadHalf for Reading {
    /// Hands on the next bytes of a request that is whole and well formed. Everything that was
    /// done stands in `self`, so a call may be dropped at any time.
    async fn read(&mut self, buffer: &mut [u8]) -> zlink::Result<ReadResult> {
        loop {
            if let Some((words, said)) = &mut self.refusal {
                say(&self.stream, words, said).await?;
                return Ok(ReadResult::new(0));
            }
            if let Some(end) = self.end {
                return Ok(ReadResult::new(self.hand_on(end, buffer)));
            }
            if self.stop.is_asked() {
                return Ok(ReadResult::new(0));
            }
            match self.read.iter().position(|byte| *byte == END) {
                Some(end) if end < LONGEST_REQUEST => self.judge(end),
                _ if self.read.len() >= LONGEST_REQUEST => {
                    let limit = LONGEST_REQUEST as u64;
                    self.refuse(&Fault::RequestTooLarge { limit });
                }
                _ => {
                    let asked = self.stop.clone();
                    let more = tokio::select! {
                        biased;
                        _ = asked.asked() => 0,
                        more = receive(&self.stream, &mut self.read) => more?,
                    };
                    if more == 0 {
                        return Ok(ReadResult::new(0));
                    }
                }
            }
        }
    }
}

impl Reading {
    fn judge(&mut self, end: usize) {
        match serde_json::from_slice::<Call<Incoming>>(&self.read[..end]) {
            Ok(_) => self.end = Some(end + 1),
            Err(error) => self.refuse(&Fault::RequestInvalid { reason: error.to_string() }),
        }
    }

    fn refuse(&mut self, fault: &Fault) {
        self.refusal = Some((message(&wire::Error::from(fault)), 0));
    }

    fn hand_on(&mut self, end: usize, buffer: &mut [u8]) -> usize {
        let rest = &self.read[self.given..end];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.given += length;
        if self.given == end {
            self.read.drain(..end);
            self.given = 0;
            self.end = None;
        }
        length
    }
}

/// The half that answers go out by.
#[derive(Debug)]
pub(super) struct Writing {
    stream: Rc<UnixStream>,
}

impl WriteHalf for Writing {
    async fn write(
        &mut self,
        buffer: &[u8],
        _descriptors: &[impl AsFd],
        _credentials: Option<&PassedCredentials>,
    ) -> zlink::Result<()> {
        if let Err(error) = say(&self.stream, buffer, &mut 0).await {
            // It has left, as clients may. The other half finds the end of what it sent.
            tracing::debug!(%error, "a client doesn't take its answer");
        }
        Ok(())
    }
}

impl AsFd for Reading {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// An error as it goes over the socket.
pub(super) fn message(error: &impl Serialize) -> Vec<u8> {
    // Strings can always be written.
    let mut bytes = serde_json::to_vec(error).unwrap_or_default();
    bytes.push(END);
    bytes
}

/// Reads once, and no more than makes a request too long.
async fn receive(stream: &UnixStream, read: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        let before = read.len();
        read.resize((before + PIECE).min(LONGEST_REQUEST), 0);
        let received = stream.try_read(&mut read[before..]);
        read.truncate(before + received.as_ref().map_or(0, |length| *length));
        match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
    }
}

/// Writes what is left of the words.
async fn say(stream: &UnixStream, words: &[u8], said: &mut usize) -> io::Result<()> {
    while *said < words.len() {
        stream.writable().await?;
        match stream.try_write(&words[*said..]) {
            Ok(length) => *said += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
