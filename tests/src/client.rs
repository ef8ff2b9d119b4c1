//! A client that speaks to the socket by hand, on one connection.
//!
//! It must never hide what was answered, and never wait for an answer without a limit.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::user::User;

/// How long an answer may take; it tells a hang from a wait.
const ANSWER: Duration = Duration::from_secs(20);

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client(UnixStream);

impl Client {
    /// Calls the daemon at this socket as this user.
    ///
    /// # Errors
    ///
    /// Where nobody listens.
    pub fn new(user: &User, socket: &Path) -> anyhow::Result<Self> {
        // Whose it is, is decided when it connects.
        let stream = user.act(|| Ok(UnixStream::connect(socket)?))?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        Ok(Self(stream))
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    ///
    /// Where they can't be sent, but not where the other end is closed.
    pub fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match self.0.write_all(bytes) {
            // It may have been refused before it was all sent; the answer tells.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// The next answer; `None` at the end of the connection.
    ///
    /// # Errors
    ///
    /// Where there is none in time, or it is no JSON.
    pub fn answer(&mut self) -> anyhow::Result<Option<Value>> {
        let mut bytes = Vec::new();
        let mut byte = [0];
        loop {
            match self.0.read(&mut byte) {
                Ok(0) => break,
                Ok(_) if byte[0] == 0 => break,
                Ok(_) => bytes.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error.into()),
            }
        }
        if bytes.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(&bytes)?)) }
    }

    /// Calls a method; the answer whole, be it an error or not.
    ///
    /// # Errors
    ///
    /// Where there is no answer.
    pub fn call(&mut self, method: &str, parameters: &Value) -> anyhow::Result<Value> {
        let method = format!("org.holdfast.Namespace.{method}");
        let mut call = json!({ "method": method, "parameters": parameters }).to_string();
        call.push('\0');
        self.send(call.as_bytes())?;
        self.answer()?.context("the connection ended without an answer")
    }

    /// Calls a method; what it gives.
    ///
    /// # Errors
    ///
    /// Where it is refused.
    pub fn get(&mut self, method: &str, parameters: &Value) -> anyhow::Result<Value> {
        let mut answer = self.call(method, parameters)?;
        if answer.get("error").is_some() {
            bail!("{method}: {answer}");
        }
        Ok(answer["parameters"].take())
    }

    /// Calls a method; the code that it is refused with, where it is.
    ///
    /// # Errors
    ///
    /// Where there is no answer.
    pub fn refusal(&mut self, method: &str, parameters: &Value) -> anyhow::Result<Option<String>> {
        let answer = self.call(method, parameters)?;
        if answer.get("error").is_none() {
            return Ok(None);
        }
        let code = answer["parameters"]["code"].as_str();
        code.map(|code| Some(code.to_owned())).with_context(|| format!("no code: {answer}"))
    }
}
