//! What somebody may put where a mount was, so that it can't be put back.
//!
//! Each is taken away by the one who put it there, and by nobody else.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::daemon::Daemon;
use crate::detach::Silent;
use crate::mounts;
use crate::stage::Stage;
use crate::user::User;

/// What is where the mount was, or wrong with the directory that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// A link to a directory.
    Symlink,
    /// A link to nothing.
    Dangling,
    /// A regular file.
    File,
    /// A fifo, at which whoever opens it waits.
    Fifo,
    /// A socket with a listener.
    Socket,
    /// A directory of somebody else.
    WrongOwner,
    /// A directory with another mode.
    WrongMode,
    /// A directory with something in it.
    NotEmpty,
    /// A tmpfs with a file in it.
    Tmpfs,
    /// A mount of FUSE for which nobody answers.
    SilentFuse,
    /// The mount of another user's daemon.
    OtherDaemon,
    /// The parent is renamed.
    ParentMissing,
    /// A file is where the parent was.
    ParentNotDirectory,
    /// Others may write in the parent, and it has no sticky bit.
    ParentWritable,
}

/// Takes a replacement away again.
pub type Remove<'a> = Box<dyn FnOnce() -> anyhow::Result<()> + 'a>;

/// A directory for a mountpoint of its own, in which it can be replaced.
#[derive(Debug)]
pub struct Place<'a> {
    stage: &'a Stage,
    directory: PathBuf,
    /// The mountpoint.
    pub path: PathBuf,
}

impl Replacement {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Symlink,
        Self::Dangling,
        Self::File,
        Self::Fifo,
        Self::Socket,
        Self::WrongOwner,
        Self::WrongMode,
        Self::NotEmpty,
        Self::Tmpfs,
        Self::SilentFuse,
        Self::OtherDaemon,
        Self::ParentMissing,
        Self::ParentNotDirectory,
        Self::ParentWritable,
    ];

    /// The code of the fault that it is.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Symlink | Self::Dangling => "mountpoint-symlink",
            Self::File | Self::Fifo | Self::Socket => "mountpoint-not-directory",
            Self::WrongOwner => "mountpoint-wrong-owner",
            Self::WrongMode => "mountpoint-wrong-mode",
            Self::NotEmpty => "mountpoint-not-empty",
            Self::Tmpfs | Self::SilentFuse | Self::OtherDaemon => "mountpoint-foreign-mount",
            Self::ParentMissing => "mountpoint-parent-missing",
            Self::ParentNotDirectory => "mountpoint-parent-not-directory",
            Self::ParentWritable => "mountpoint-parent-writable",
        }
    }
}

impl<'a> Place<'a> {
    /// Makes one that root and an ordinary user can have a mountpoint in.
    ///
    /// # Errors
    ///
    /// Where it can't be made.
    pub fn new(stage: &'a Stage) -> anyhow::Result<Self> {
        let directory = stage.make_directory("place", 0o1777)?;
        let path = directory.join("mountpoint");
        Ok(Self { stage, directory, path })
    }

    /// Starts a daemon of the stage's user there.
    ///
    /// # Errors
    ///
    /// Where it doesn't serve.
    pub fn serve(&self) -> anyhow::Result<Daemon> {
        Daemon::start(self.stage, &self.stage.user, &["--mountpoint", self.text()?])
    }

    /// Puts something in place of the directory from which the mount was detached; what takes it
    /// away again.
    ///
    /// # Errors
    ///
    /// Where it can't be put there.
    pub fn put(&self, what: Replacement) -> anyhow::Result<Remove<'_>> {
        let path = self.path.as_path();
        let removes_file = || -> Remove<'_> { Box::new(move || Ok(fs::remove_file(path)?)) };
        let removes_directory = || -> Remove<'_> { Box::new(move || Ok(fs::remove_dir(path)?)) };
        let renamed = self.directory.with_file_name("place, renamed");
        let directory = self.directory.as_path();
        if path.symlink_metadata().is_ok() {
            fs::remove_dir(path)?;
        }
        Ok(match what {
            Replacement::Symlink => {
                let target = self.stage.path("work");
                symlink(target, path)?;
                removes_file()
            }
            Replacement::Dangling => {
                symlink("nowhere", path)?;
                removes_file()
            }
            Replacement::File => {
                fs::write(path, "to be kept\n")?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o4751))?;
                removes_file()
            }
            Replacement::Fifo => {
                rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o622), 0)?;
                removes_file()
            }
            Replacement::Socket => {
                let listener = UnixListener::bind(path)?;
                Box::new(move || {
                    drop(listener);
                    Ok(fs::remove_file(path)?)
                })
            }
            Replacement::WrongOwner => {
                self.directory_of(2, self.mode())?;
                removes_directory()
            }
            Replacement::WrongMode => {
                self.directory_of(self.stage.user.uid, 0o2775)?;
                removes_directory()
            }
            Replacement::NotEmpty => {
                self.directory_of(self.stage.user.uid, self.mode())?;
                fs::create_dir(path.join("kept"))?;
                fs::write(path.join("kept/file"), "to be kept\n")?;
                Box::new(move || Ok(fs::remove_dir_all(path.join("kept"))?))
            }
            Replacement::Tmpfs => {
                self.directory_of(self.stage.user.uid, self.mode())?;
                self.put_on_top()?
            }
            Replacement::SilentFuse => {
                self.directory_of(self.stage.user.uid, self.mode())?;
                let mount = Silent::mount("fuse.other", "other", path)?;
                Box::new(move || mount.unmount(path))
            }
            Replacement::OtherDaemon => {
                let other = User::other().context("root runs this")?;
                let arguments = ["--mountpoint", self.text()?];
                let daemon = Daemon::start(self.stage, &other, &arguments)?;
                let alive = self.stage.for_user(other);
                Box::new(move || {
                    // By its own socket: that of the system's daemon would be found first.
                    let script = r#"echo alive > "$TMPDIR/x"; cat "$TMPDIR/x""#;
                    let run = alive.run(script).env("HOLDFAST_SOCKET", &daemon.socket);
                    anyhow::ensure!(run.output()? == "alive\n");
                    daemon.end(rustix::process::Signal::TERM)?.success().map(drop)
                })
            }
            Replacement::ParentMissing => {
                fs::rename(directory, &renamed)?;
                Box::new(move || Ok(fs::rename(renamed, directory)?))
            }
            Replacement::ParentNotDirectory => {
                fs::rename(directory, &renamed)?;
                fs::write(directory, "to be kept\n")?;
                Box::new(move || {
                    fs::remove_file(directory)?;
                    Ok(fs::rename(renamed, directory)?)
                })
            }
            Replacement::ParentWritable => {
                fs::set_permissions(directory, fs::Permissions::from_mode(0o777))?;
                Box::new(move || {
                    Ok(fs::set_permissions(directory, fs::Permissions::from_mode(0o1777))?)
                })
            }
        })
    }

    /// Removes the mountpoint where it is there, which must be empty.
    ///
    /// # Errors
    ///
    /// Where it isn't.
    pub fn clear(&self) -> anyhow::Result<()> {
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => Ok(other?),
        }
    }

    /// Mounts a tmpfs with a file in it on whatever is at the path.
    ///
    /// # Errors
    ///
    /// Where it can't be mounted.
    pub fn put_on_top(&self) -> anyhow::Result<Remove<'_>> {
        let path = self.path.as_path();
        rustix::mount::mount("other", path, "tmpfs", MountFlags::NOSUID, None)?;
        fs::write(path.join("file"), "to be kept\n")?;
        Ok(Box::new(move || Ok(rustix::mount::unmount(path, UnmountFlags::empty())?)))
    }

    /// Everything that is at the place and around it, to the byte and to the nanosecond at which it
    /// was changed last. No filesystem is asked that may not answer.
    ///
    /// # Errors
    ///
    /// Where it can't be read.
    pub fn snapshot(&self) -> anyhow::Result<String> {
        let mut found = String::new();
        for mount in mounts::list()? {
            writeln!(found, "{mount:?}")?;
        }
        for name in ["place", "place, renamed"] {
            describe(&self.stage.path(name), &mut found)?;
        }
        Ok(found)
    }

    fn directory_of(&self, uid: u32, mode: u32) -> anyhow::Result<()> {
        fs::create_dir(&self.path)?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode))?;
        Ok(chown(&self.path, Some(uid), Some(uid))?)
    }

    fn mode(&self) -> u32 {
        if self.stage.user.is_root() { 0o755 } else { 0o700 }
    }

    fn text(&self) -> anyhow::Result<&str> {
        self.path.to_str().context("the path is text")
    }
}

fn describe(path: &Path, found: &mut String) -> anyhow::Result<()> {
    write!(found, "{}", path.display())?;
    if mounts::fuse()?.iter().any(|mount| mount.path == path) {
        writeln!(found, ": a mount of FUSE")?;
        return Ok(());
    }
    let Ok(facts) = path.symlink_metadata() else {
        writeln!(found, ": nothing")?;
        return Ok(());
    };
    let id = (facts.dev(), facts.ino(), facts.mode(), facts.uid(), facts.gid());
    let times = (facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec());
    write!(found, ": {id:?} {} bytes, {times:?}", facts.size())?;
    if facts.is_file() {
        write!(found, " {:?}", fs::read(path)?)?;
    } else if facts.is_symlink() {
        write!(found, " {:?}", fs::read_link(path)?)?;
    }
    writeln!(found)?;
    if facts.is_dir() {
        let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
        let mut entries = entries.collect::<anyhow::Result<Vec<_>>>()?;
        entries.sort();
        entries.iter().try_for_each(|entry| describe(entry, found))?;
    }
    Ok(())
}
