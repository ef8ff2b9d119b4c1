//! Where a test plays: a mount namespace, `/tmp` and `/run` of its own, and the programs under test.
//!
//! What is here vanishes with the test. An ordinary user can't have a mount namespace in which
//! FUSE works, and gets a directory for everything instead; nothing outside of it may be used.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::command::Program;
use crate::daemon::Daemon;
use crate::need::{self, Need};
use crate::user::{User, is_root};
use crate::{mounts, processes, sys};

/// Where everything is that a stage needs for itself, where it has a namespace of its own.
const SCRATCH: &str = "/run/test";
/// The programs under test, by the names that they have on the stage and where they are built.
const PROGRAMS: [(&str, &str); 2] =
    [("holdfast", "holdfast-under-test"), ("differential", "differential")];

/// Where a test plays, and who plays there.
#[derive(Debug)]
pub struct Stage {
    /// The user who serves and is served, unless a test says otherwise.
    pub user: User,
    scratch: PathBuf,
    /// Removed at the end; a namespace of its own needs no such directory.
    _directory: Option<tempfile::TempDir>,
}

/// Plays a test once as root and once as an ordinary user, each on a stage of its own.
///
/// # Panics
///
/// Where the test fails, or leaves something behind.
pub fn as_each_user(needs: &[Need], test: impl Fn(&Stage) -> anyhow::Result<()> + Sync) {
    match User::root() {
        Some(root) => play(needs, &root, &test),
        None => drop(need::skip("only root can run it as root; as an ordinary user it runs")),
    }
    play(needs, &User::ordinary(), &test);
}

/// Plays a test once as root.
///
/// # Panics
///
/// Where the test fails, or leaves something behind.
pub fn as_root(needs: &[Need], test: impl Fn(&Stage) -> anyhow::Result<()> + Sync) {
    match User::root() {
        Some(root) => play(needs, &root, &test),
        None => drop(need::skip("only root can run it")),
    }
}

/// Plays a test once as an ordinary user.
///
/// # Panics
///
/// Where the test fails, or leaves something behind.
pub fn as_ordinary_user(needs: &[Need], test: impl Fn(&Stage) -> anyhow::Result<()> + Sync) {
    play(needs, &User::ordinary(), &test);
}

fn play(needs: &[Need], user: &User, test: &(impl Fn(&Stage) -> anyhow::Result<()> + Sync)) {
    if !need::are_met(needs, user) {
        return;
    }
    // A thread has a mount namespace of its own, and what it starts has the same one. That of the
    // test runner must stay as it is.
    let run = || -> anyhow::Result<()> {
        let stage = Stage::new(user.clone())?;
        let result = test(&stage);
        let left = stage.clear();
        result.and(left)
    };
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let result = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, run);
        thread.expect("a thread can be started").join()
    });
    let who = if user.is_root() { "as root" } else { "as an ordinary user" };
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("{who}: {error:#}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

impl Stage {
    fn new(user: User) -> anyhow::Result<Self> {
        let (scratch, directory, programs) = if is_root() {
            let programs = private_namespace().context("there is no stage")?;
            (PathBuf::from(SCRATCH), None, programs)
        } else {
            let directory = tempfile::tempdir()?;
            (directory.path().to_owned(), Some(directory), Vec::new())
        };
        let stage = Self { user, scratch, _directory: directory };
        stage.make_directory("bin", 0o755)?;
        for (name, program) in programs {
            // No copy: while one is written, a process that another test starts holds it open.
            let path = stage.path("bin").join(name);
            fs::write(&path, "")?;
            rustix::mount::mount_bind(format!("/proc/self/fd/{}", program.as_raw_fd()), &path)?;
        }
        if !is_root() {
            for (name, built) in PROGRAMS {
                symlink(beside_this_program(built), stage.path("bin").join(name))?;
            }
        }
        if is_root() {
            let control = stage.make_directory("fusectl", 0o755)?;
            let flags = MountFlags::empty();
            // Without it, a hung mount is only ended by the one who runs the tests.
            if rustix::mount::mount("fusectl", &control, "fusectl", flags, None).is_ok() {
                mounts::set_control(control);
            }
        }
        stage.make_directory("home", 0o777)?;
        stage.make_directory("work", 0o1777)?;
        Ok(stage)
    }

    /// The same stage for somebody else, within the test that has it.
    #[must_use]
    pub fn for_user(&self, user: User) -> Self {
        Self { user, scratch: self.scratch.clone(), _directory: None }
    }

    /// A path below the directory of this stage.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// A directory below that of this stage, with exactly this mode.
    ///
    /// # Errors
    ///
    /// Where it can't be made.
    pub fn make_directory(&self, name: &str, mode: u32) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    }

    /// A tmpfs at a directory of this name; a plain directory on one where there's no namespace.
    ///
    /// # Errors
    ///
    /// Where it can't be mounted.
    pub fn tmpfs(&self, name: &str) -> anyhow::Result<PathBuf> {
        if !is_root() {
            let directory = tempfile::tempdir_in("/dev/shm")?.keep();
            return Ok(directory);
        }
        let path = self.make_directory(name, 0o777)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("tmpfs", &path, "tmpfs", flags, Some(c"mode=1777,inode64"))?;
        Ok(path)
    }

    /// The program `holdfast`, as the user of this stage.
    #[must_use]
    pub fn holdfast(&self) -> Program {
        self.holdfast_as(&self.user)
    }

    /// The program `holdfast`, as somebody else.
    #[must_use]
    pub fn holdfast_as(&self, user: &User) -> Program {
        self.surroundings(Program::new(self.path("bin/holdfast")), user)
    }

    /// Any program, as the user of this stage.
    #[must_use]
    pub fn program(&self, program: Program) -> Program {
        self.surroundings(program, &self.user)
    }

    /// Any program, as somebody else.
    #[must_use]
    pub fn program_as(&self, user: &User, program: Program) -> Program {
        self.surroundings(program, user)
    }

    /// A Bash script in a lease of its own, as the user of this stage.
    #[must_use]
    pub fn run(&self, script: &str) -> Program {
        self.holdfast().args(["run", "--"]).args(bash(script))
    }

    /// A Bash script in a lease of this session, as the user of this stage.
    #[must_use]
    pub fn run_in(&self, session: &str, script: &str) -> Program {
        self.holdfast().args(["run", "--session", session, "--"]).args(bash(script))
    }

    /// Serves as the user of this stage, and waits until it does.
    ///
    /// # Errors
    ///
    /// Where it doesn't.
    pub fn serve(&self) -> anyhow::Result<Daemon> {
        Daemon::start(self, &self.user, &[])
    }

    /// Where the daemon of a user of this stage serves by default.
    #[must_use]
    pub fn mountpoint(&self, user: &User) -> PathBuf {
        if !is_root() {
            return self.path("mountpoint");
        }
        match user.uid {
            0 => PathBuf::from("/tmp/mecatl"),
            uid => PathBuf::from(format!("/tmp/mecatl-{uid}")),
        }
    }

    /// Where the daemon of a user of this stage listens by default.
    #[must_use]
    pub fn socket(&self, user: &User) -> PathBuf {
        if !is_root() {
            return self.path("socket/control");
        }
        match user.uid {
            0 => PathBuf::from("/run/holdfast/control"),
            uid => PathBuf::from(format!("/tmp/holdfast-{uid}/control")),
        }
    }

    /// Checks that nothing of a daemon of this user is left: no mount, no socket, no directory.
    ///
    /// # Errors
    ///
    /// Where something is.
    pub fn nothing_is_left(&self, user: &User) -> anyhow::Result<()> {
        let mounts = mounts::fuse()?;
        let mountpoint = self.mountpoint(user);
        if let Some(mount) = mounts.iter().find(|mount| mount.path == mountpoint) {
            bail!("a mount is left: {mount:?}");
        }
        let socket = self.socket(user);
        let directory = socket.parent().context("the socket is in a directory")?;
        for path in [&mountpoint, &socket, directory] {
            if path.symlink_metadata().is_ok() {
                bail!("{} is left", path.display());
            }
        }
        Ok(())
    }

    /// What every program of a test gets, and nothing of what surrounds the test.
    fn surroundings(&self, program: Program, user: &User) -> Program {
        let mut program = program.user(user).directory("/").env("PATH", need::PATH);
        for name in [
            "HOLDFAST_SOCKET",
            "HOLDFAST_MOUNTPOINT",
            "HOLDFAST_MEMBER",
            "TMPDIR",
            "TMP",
            "TEMP",
            "XDG_RUNTIME_DIR",
            "XDG_CONFIG_HOME",
            "NOTIFY_SOCKET",
        ] {
            program = program.without_env(name);
        }
        if !is_root() {
            program = program
                .env("HOLDFAST_MOUNTPOINT", self.mountpoint(user))
                .env("HOLDFAST_SOCKET", self.socket(user));
        }
        program.env("HOME", self.path("home")).env("LC_ALL", "C.UTF-8")
    }

    /// Ends what is still running in this stage's namespace, and says so.
    fn clear(&self) -> anyhow::Result<()> {
        if !is_root() {
            return Ok(());
        }
        let left = processes::in_this_namespace()?;
        let mut names = Vec::new();
        for process in &left {
            names.push(process.name.clone());
            process.kill();
        }
        if left.iter().any(|process| !process.has_ended(Duration::from_secs(5))) {
            mounts::abort_fuse_connections();
        }
        for process in &left {
            let _ = process.has_ended(Duration::from_secs(5));
        }
        if names.is_empty() { Ok(()) } else { bail!("left running: {}", names.join(", ")) }
    }
}

/// A script that stops at the first command that fails, and says which one it was.
fn bash(script: &str) -> [String; 5] {
    let trap = r#"trap 'echo "failed, line $((LINENO - 1)): $BASH_COMMAND" >&2' ERR"#;
    let script = format!("{trap}\n{script}");
    ["bash", "-Eeuo", "pipefail", "-c", &script].map(str::to_owned)
}

/// Makes `/tmp` and `/run` empty for this thread and for what it starts. The programs may have lain
/// there, so they are opened before.
fn private_namespace() -> anyhow::Result<Vec<(&'static str, OwnedFd)>> {
    sys::leave_mount_namespace().context("a mount namespace of its own")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let open = |(name, built)| {
        let path = beside_this_program(built);
        let opened = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        Ok((name, opened.with_context(|| format!("{} isn't built", path.display()))?))
    };
    let programs = PROGRAMS.into_iter().map(open).collect::<anyhow::Result<_>>()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", "/tmp", "tmpfs", flags, Some(c"mode=1777"))?;
    rustix::mount::mount("tmpfs", "/run", "tmpfs", flags, Some(c"mode=755"))?;
    rustix::fs::mkdirat(CWD, SCRATCH, Mode::from_raw_mode(0o755))?;
    open_device()?;
    Ok(programs)
}

/// Lets ordinary users open the device, as every usual system does; where it's so already, or there
/// is none, nothing changes.
fn open_device() -> anyhow::Result<()> {
    let path = "/dev/fuse";
    let Ok(device) = rustix::fs::stat(path) else { return Ok(()) };
    let everybody = Mode::from_raw_mode(0o666);
    if Mode::from_raw_mode(device.st_mode).contains(everybody) {
        return Ok(());
    }
    // The node itself belongs to the host and is left alone.
    let place = PathBuf::from(SCRATCH).join("device");
    fs::create_dir(&place)?;
    rustix::mount::mount("tmpfs", &place, "tmpfs", MountFlags::NOSUID, None)?;
    let node = place.join("fuse");
    let kind = FileType::CharacterDevice;
    rustix::fs::mknodat(CWD, &node, kind, everybody, device.st_rdev)?;
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666))?;
    rustix::mount::mount_bind(&node, path).context("a device for everybody")
}

/// The directory of built programs, from the test that is one of them.
fn beside_this_program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let directory = own.parent().map(Path::to_owned).unwrap_or_default();
    // Tests are built one level below.
    let built = if directory.ends_with("deps") { directory.parent() } else { None };
    built.unwrap_or(&directory).join(name)
}
