//! A daemon in the foreground, which a test starts and stops.
//!
//! It must never be taken for stopped before its process has ended.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use serde_json::Value;

use crate::command::{Finished, Running};
use crate::stage::Stage;
use crate::user::User;

/// Serves as the user of the stage while the test goes on, and stops in good order.
///
/// # Errors
///
/// Where the daemon doesn't start, the test fails, or something is left.
pub fn while_served(
    stage: &Stage,
    test: impl FnOnce(&Daemon) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let daemon = Daemon::start(stage, &stage.user, &[])?;
    let log = stage.path(&format!("daemon-{}.log", stage.user.uid));
    test(&daemon).with_context(|| {
        format!("the daemon's log: {}", std::fs::read_to_string(log).unwrap_or_default())
    })?;
    daemon.stop(stage)
}

/// A daemon that serves.
#[derive(Debug)]
pub struct Daemon {
    running: Running,
    /// Where it serves.
    pub mountpoint: PathBuf,
    /// Where it listens.
    pub socket: PathBuf,
}

impl Daemon {
    /// Starts a daemon with these arguments and waits until it serves.
    ///
    /// # Errors
    ///
    /// Where it doesn't.
    pub fn start(stage: &Stage, user: &User, arguments: &[&str]) -> anyhow::Result<Self> {
        let log = stage.path(&format!("daemon-{}.log", user.uid));
        Self::of(stage.holdfast_as(user).args(["serve", "--json"]).args(arguments).log(log))
    }

    /// Waits until the daemon that this program is, or becomes, serves.
    ///
    /// # Errors
    ///
    /// Where it doesn't.
    pub fn of(program: crate::command::Program) -> anyhow::Result<Self> {
        let mut running = program.deadline(std::time::Duration::from_secs(1800)).start()?;
        let line = running.line().context("the daemon doesn't serve")?;
        let answer: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        let path = |key: &str| answer[key].as_str().map(PathBuf::from);
        let (Some(mountpoint), Some(socket)) = (path("mountpoint"), path("socket")) else {
            bail!("the daemon says something else: {line}");
        };
        if answer["already"] != Value::Bool(false) {
            bail!("another daemon serves: {line}");
        }
        Ok(Self { running, mountpoint, socket })
    }

    /// The id of the process that was started.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// The id of the process that serves, which the first one has started.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub fn worker(&self) -> anyhow::Result<u32> {
        let keeper = self.id();
        let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
        let worker = children.split_whitespace().next().context("the daemon has no worker")?;
        Ok(worker.parse()?)
    }

    /// Stops the process that keeps the mount, as a terminal would; nothing is lost by it.
    ///
    /// # Errors
    ///
    /// Where it has ended.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.running.signal(Signal::STOP)?;
        let stopped = WaitIdOptions::STOPPED;
        rustix::process::waitid(WaitId::PidFd(self.running.handle()), stopped)?;
        Ok(())
    }

    /// Lets it go on.
    ///
    /// # Errors
    ///
    /// Where it has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.running.signal(Signal::CONT)
    }

    /// Sends a signal and waits until the daemon has ended.
    ///
    /// # Errors
    ///
    /// Where it doesn't in time.
    pub fn end(self, signal: Signal) -> anyhow::Result<Finished> {
        self.running.signal(signal)?;
        self.running.finish()
    }

    /// Stops it, and checks that it ended well and left nothing behind.
    ///
    /// # Errors
    ///
    /// Where it did not.
    pub fn stop(self, stage: &Stage) -> anyhow::Result<()> {
        let finished = self.end(Signal::TERM)?;
        let errors = finished.stderr.clone();
        finished.success()?;
        stage.nothing_is_left(&stage.user).with_context(|| errors)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// Where it doesn't in time.
    pub fn finish(self) -> anyhow::Result<Finished> {
        self.running.finish()
    }
}
