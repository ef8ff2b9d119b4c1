//! What somebody does to a mountpoint, by hand and by accident.
//!
//! Only the mount of a stage's own daemon is ever touched.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;

use crate::command::{Program, Running};
use crate::processes::Process;
use crate::stage::Stage;
use crate::user::User;

/// Does something while every thread of a process stands still.
///
/// # Errors
///
/// Where it can't be stopped, and what the doing gives itself.
pub fn while_stopped<T>(id: u32, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let process = Process::of(id)?;
    process.signal(Signal::STOP);
    let acted = wait_until_stopped(id).and_then(|()| act());
    process.signal(Signal::CONT);
    acted
}

/// Waits until every thread of a process stands still; the kernel stops them one by one.
///
/// # Errors
///
/// Where it's gone.
pub fn wait_until_stopped(id: u32) -> anyhow::Result<()> {
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        let status = thread?.path().join("status");
        while !fs::read_to_string(&status)?.contains("\nState:\tT") {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Detaches a mount of the stage's user, as that user does it by hand.
///
/// # Errors
///
/// Where it can't be detached.
pub fn detach(stage: &Stage, path: &Path) -> anyhow::Result<()> {
    let program = if stage.user.is_root() {
        Program::new("umount").arg("-l")
    } else {
        Program::new("fusermount3").args(["-u", "-z", "--"])
    };
    stage.program(program.arg(path)).output().map(drop)
}

/// A shell in a mount namespace that is older than the mount: what it removes there takes the mount
/// with it.
#[derive(Debug)]
pub struct Elder(Running);

impl Elder {
    /// Starts one for a user. It must be started before the mount is made.
    ///
    /// # Errors
    ///
    /// Where no mount namespace can be had; an ordinary user may not.
    pub fn start(stage: &Stage, user: &User) -> anyhow::Result<Self> {
        let uid = user.uid.to_string();
        let shell = r#"echo ready; while read -r line; do eval "$line"; echo "$?"; done"#;
        let become_user = ["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups"];
        let unshare = Program::new("unshare").args(["--mount", "--propagation", "private"]);
        let root = User::root().context("only root has mount namespaces")?;
        let program = unshare.args(become_user).args(["bash", "-c", shell]);
        let mut running =
            stage.program_as(&root, program).deadline(Duration::from_secs(1800)).start()?;
        let line = running.line()?;
        ensure!(line == "ready", "{line}");
        Ok(Self(running))
    }

    /// Runs a line there; whether it ended well.
    ///
    /// # Errors
    ///
    /// Where the shell is gone.
    pub fn run(&mut self, line: &str) -> anyhow::Result<bool> {
        self.0.say(line)?;
        Ok(self.0.line()? == "0")
    }
}
