//! What somebody else does to a mount that is served.
//!
//! Nothing here may be done to a mount that a test did not start itself, nor wait for one.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::command::{Finished, Program, Running};
use crate::daemon::Daemon;
use crate::mounts::{self, Mount};
use crate::stage::Stage;
use crate::user::User;

/// How long `umount` and its kind may take.
const AT_ONCE: Duration = Duration::from_secs(20);
/// All that one test may ask of an older mount namespace.
const WHILE: Duration = Duration::from_secs(600);

/// The mount of a daemon.
///
/// # Errors
///
/// Where there is none.
pub fn mount_of(daemon: &Daemon) -> anyhow::Result<Mount> {
    let at = |mount: &Mount| mount.path == daemon.mountpoint;
    // The last one is the one on top.
    mounts::fuse()?.into_iter().rfind(at).context("the daemon has no mount")
}

/// Runs `umount` as root.
///
/// # Errors
///
/// Where it doesn't end.
pub fn umount(stage: &Stage, flags: &[&str], path: &Path) -> anyhow::Result<Finished> {
    let root = User::root().context("only root can unmount")?;
    let umount = Program::new("umount").args(flags).arg(path).deadline(AT_ONCE);
    stage.program_as(&root, umount).run()
}

/// Ends the connection of a daemon's mount to the kernel, as root can.
///
/// # Errors
///
/// Where there is no such connection.
pub fn abort(stage: &Stage, daemon: &Daemon) -> anyhow::Result<()> {
    let connection = mount_of(daemon)?.device.1.to_string();
    let abort = stage.path("fusectl").join(connection).join("abort");
    fs::write(&abort, "1").with_context(|| abort.display().to_string())
}

/// A mount namespace that is older than the mount, so that the mount isn't there. Nothing that is
/// mounted later gets there.
#[derive(Debug)]
pub struct Older {
    running: Running,
    path: PathBuf,
}

impl Older {
    /// Makes one, for a mount that is to be at this path.
    ///
    /// # Errors
    ///
    /// Where it can't be made.
    pub fn new(stage: &Stage, path: &Path) -> anyhow::Result<Self> {
        let script = r#"
            echo ready
            while read -r -a words; do
                "${words[@]}" && echo "= $?" || echo "= $?"
            done
        "#;
        let root = User::root().context("only root can make one")?;
        let alone = ["-m", "--propagation", "private", "bash", "-uc", script];
        let program = Program::new("unshare").args(alone).deadline(WHILE);
        let mut running = stage.program_as(&root, program).start()?;
        ensure!(running.line()? == "ready");
        Ok(Self { running, path: path.to_owned() })
    }

    /// Does something with the directory that the mount is on; what that prints.
    ///
    /// # Errors
    ///
    /// Where it fails.
    pub fn does(&mut self, words: &str) -> anyhow::Result<String> {
        self.running.say(&format!("{words} {}", self.path.display()))?;
        let mut printed = String::new();
        loop {
            match self.running.line()? {
                end if end == "= 0" => return Ok(printed),
                end if end.starts_with("= ") => anyhow::bail!("{words}: {end}"),
                line => printed += &line,
            }
        }
    }
}

/// A filesystem that is mounted without anybody who answers; whoever asks it waits.
#[derive(Debug)]
pub struct Silent(fs::File);

impl Silent {
    /// Mounts one of FUSE with this type and source.
    ///
    /// # Errors
    ///
    /// Where it can't be mounted.
    pub fn mount(kind: &str, source: &str, path: &Path) -> anyhow::Result<Self> {
        let device = fs::File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options)?;
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount(source, path, kind, flags, Some(options.as_c_str()))?;
        Ok(Self(device))
    }

    /// Ends it as the end of its daemon would. It stays where it is, with nobody to answer.
    pub fn end(self) {
        drop(self.0);
    }

    /// Takes it away.
    ///
    /// # Errors
    ///
    /// Where it isn't there any more.
    pub fn unmount(self, path: &Path) -> anyhow::Result<()> {
        // Whoever waits for it goes on with an error.
        drop(self.0);
        Ok(rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH)?)
    }
}
