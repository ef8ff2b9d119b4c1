//! Somebody who takes the mount away, and puts other things in its place.
//!
//! Whatever is put there must be taken away again, unchanged, before tenants are let live.

use std::fmt;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use fastrand::Rng;
use holdfast::control::client::Client;
use holdfast::control::wire;
use holdfast::fault::FaultReport;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::GENEROUS;
use super::watchdog::Beat;
use super::weather::{Harm, Weather, is_of_the_mount};
use crate::agents::{complain, connect};
use crate::daemon::Daemon;
use crate::damage::Elder;
use crate::report::Times;
use crate::stage::Stage;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// `umount -l`.
    Lazy,
    /// `umount -f`.
    Force,
    /// The directory is removed from an older mount namespace.
    Elder,
    /// It is removed, and made again by hand.
    ByHand,
    /// Something else comes in its place.
    Replace(Thing),
}

/// What comes in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Link,
    File,
    Fifo,
    /// A directory with something in it.
    Full,
    /// A directory with another mode.
    Open,
}

const ALL: [Attack; 9] = [
    Attack::Lazy,
    Attack::Force,
    Attack::Elder,
    Attack::ByHand,
    Attack::Replace(Thing::Link),
    Attack::Replace(Thing::File),
    Attack::Replace(Thing::Fifo),
    Attack::Replace(Thing::Full),
    Attack::Replace(Thing::Open),
];

impl Thing {
    /// What the daemon calls it.
    const fn code(self) -> &'static str {
        match self {
            Self::Link => "mountpoint-symlink",
            Self::File | Self::Fifo => "mountpoint-not-directory",
            Self::Full => "mountpoint-not-empty",
            Self::Open => "mountpoint-wrong-mode",
        }
    }
}

/// What was done how often, and how long it took until the daemon said that all is well.
#[derive(Debug)]
pub(super) struct Attacks(Vec<(Attack, Times)>);

impl Attacks {
    /// Whether each kind was tried.
    pub(super) fn each_happened(&self) -> anyhow::Result<()> {
        for attack in ALL {
            let happened = self.0.iter().any(|(done, _)| *done == attack);
            ensure!(happened, "never happened: {attack:?}");
        }
        Ok(())
    }

    fn add(&mut self, attack: Attack, took: std::time::Duration) {
        match self.0.iter_mut().find(|(done, _)| *done == attack) {
            Some((_, times)) => times.add(took),
            None => {
                let mut times = Times::default();
                times.add(took);
                self.0.push((attack, times));
            }
        }
    }
}

impl fmt::Display for Attacks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (attack, times)) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { "\n  " };
            write!(formatter, "{separator}{attack:?}: {times}")?;
        }
        Ok(())
    }
}

/// The attacker.
pub(super) struct Attacker<'a> {
    stage: &'a Stage,
    path: &'a Path,
    weather: &'a Weather,
    beat: Beat<'a>,
    elder: &'a mut Elder,
    random: Rng,
    /// What finds out what the daemon says.
    client: Client,
    session: String,
    /// Where things are before they come in the way, and afterwards.
    beside: PathBuf,
    attacks: Attacks,
}

impl<'a> Attacker<'a> {
    pub(super) fn new(
        stage: &'a Stage,
        daemon: &'a Daemon,
        weather: &'a Weather,
        beat: Beat<'a>,
        elder: &'a mut Elder,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let mut client = connect(stage, &daemon.socket)?;
        let open = wire::OpenSession { name: Some("lookout".to_owned()), ..Default::default() };
        let session = client.call(&open).map_err(complain)?.session.id;
        let path = daemon.mountpoint.as_path();
        // On the same filesystem, so that a thing comes in one step.
        let beside = path.with_extension("beside");
        let (random, attacks) = (Rng::with_seed(!seed), Attacks(Vec::new()));
        Ok(Self { stage, path, weather, beat, elder, random, client, session, beside, attacks })
    }

    /// Attacks until the time has come, and leaves everything in order.
    pub(super) fn attack(mut self, until: Instant) -> anyhow::Result<Attacks> {
        let mut plan: Vec<Attack> = Vec::new();
        while Instant::now() < until && !self.weather.is_stopped() {
            let attack = match plan.pop() {
                Some(attack) => attack,
                None => {
                    plan.extend(ALL);
                    self.random.shuffle(&mut plan);
                    continue;
                }
            };
            self.beat.step("attack");
            self.weather.begins();
            let since = self.perform(attack).with_context(|| format!("{attack:?}"))?;
            self.wait_until_well().with_context(|| format!("after {attack:?}"))?;
            self.attacks.add(attack, since.elapsed());
            self.weather.is_over();
            self.beat.step("let live");
            let steps = self.random.u64(8..160);
            ensure!(self.weather.lets_live(steps), "the tenants stand still");
        }
        // What was made by hand would stay when the daemon goes.
        self.weather.begins();
        self.perform(Attack::Elder)?;
        self.wait_until_well()?;
        self.weather.is_over();
        self.weather.stop();
        let close = wire::CloseSession { session: self.session, force: None };
        self.client.call(&close).map_err(complain)?;
        Ok(self.attacks)
    }

    /// Does it, and takes it back; since when nothing is in the way.
    fn perform(&mut self, attack: Attack) -> anyhow::Result<Instant> {
        let path = self.path;
        let detach = |flags| unmount(path, flags | UnmountFlags::NOFOLLOW);
        match attack {
            Attack::Lazy => {
                self.weather.harm(Harm::Detached, || detach(UnmountFlags::DETACH))?;
            }
            Attack::Force => {
                match self.weather.harm(Harm::Aborted, || detach(UnmountFlags::FORCE)) {
                    // The connection is gone all the same.
                    Ok(()) | Err(Errno::BUSY) => {}
                    Err(errno) => bail!("umount -f: {errno}"),
                }
            }
            Attack::Elder => self.remove("")?,
            Attack::ByHand => {
                let mode = if self.stage.user.is_root() { 755 } else { 700 };
                let uid = self.stage.user.uid;
                let (path, beside) = (self.path.display(), self.beside.display());
                // In one step, so that it is right from the beginning; the daemon may be quicker.
                self.remove(&format!(
                    " && mkdir -m {mode} {beside} && chown {uid}:{uid} {beside} \
                     && {{ mv -nT {beside} {path}; rmdir {beside} 2>/dev/null || :; }}"
                ))?;
            }
            Attack::Replace(thing) => return self.replace(thing),
        }
        Ok(Instant::now())
    }

    /// Removes the directory from an older namespace, in which nothing is mounted on it.
    fn remove(&mut self, and_then: &str) -> anyhow::Result<()> {
        let line = format!("rmdir {}{and_then}", self.path.display());
        let removed = self.weather.harm(Harm::Detached, || self.elder.run(&line))?;
        ensure!(removed, "the directory can't be removed");
        Ok(())
    }

    fn replace(&mut self, thing: Thing) -> anyhow::Result<Instant> {
        self.make(thing)?;
        let made = facts(&self.beside)?;
        let until = Instant::now() + GENEROUS;
        let lazily = self.random.bool();
        // The daemon may be quicker, and has its mount back before anything else is there.
        while !self.put_in_place(lazily)? {
            ensure!(Instant::now() < until, "the daemon is always quicker");
        }
        for _ in 0..self.random.u32(1..100) {
            let report = self.check().err().context("all is well, says the daemon")?;
            ensure!(report.code == thing.code(), "{report:?} for {thing:?}");
            ensure!(!report.message.contains('/'), "{report:?}");
        }
        ensure!(facts(self.path)? == made, "{thing:?} is not as it was");
        renameat_with(CWD, self.path, CWD, &self.beside, RenameFlags::NOREPLACE)?;
        let since = Instant::now();
        ensure!(facts(&self.beside)? == made, "{thing:?} is not as it was");
        if self.beside.symlink_metadata()?.is_dir() {
            fs::remove_dir_all(&self.beside)?;
        } else {
            fs::remove_file(&self.beside)?;
        }
        Ok(since)
    }

    /// Makes a thing beside the path.
    fn make(&self, thing: Thing) -> anyhow::Result<()> {
        let (path, uid) = (&self.beside, Some(self.stage.user.uid));
        let right = if self.stage.user.is_root() { 0o755 } else { 0o700 };
        let directory = |mode| -> anyhow::Result<()> {
            fs::create_dir(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            Ok(chown(path, uid, uid)?)
        };
        match thing {
            Thing::Link => symlink("/run", path)?,
            Thing::File => fs::write(path, "somebody's file")?,
            Thing::Fifo => {
                let mode = Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0)?;
            }
            Thing::Full => {
                directory(right)?;
                fs::write(path.join("somebody's"), "file")?;
            }
            Thing::Open => directory(0o777)?,
        }
        Ok(())
    }

    /// Takes the mount and its directory away, and puts the thing there if nothing else is.
    fn put_in_place(&mut self, lazily: bool) -> anyhow::Result<bool> {
        let (path, beside) = (self.path, &self.beside);
        let elder = &mut self.elder;
        self.weather.harm(Harm::Detached, || {
            if lazily {
                // Each of the two can find that the daemon was quicker.
                match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                    Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
                    Err(errno) => bail!("umount -l: {errno}"),
                }
                match rustix::fs::rmdir(path) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::BUSY) => return Ok(false),
                    Err(errno) => bail!("rmdir: {errno}"),
                }
            } else {
                elder.run(&format!("rmdir {}", path.display()))?;
            }
            match renameat_with(CWD, beside, CWD, path, RenameFlags::NOREPLACE) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(errno) => bail!("rename: {errno}"),
            }
        })
    }

    fn check(&mut self) -> Result<(), FaultReport> {
        self.client.call(&wire::Check { session: self.session.clone() }).map(drop)
    }

    /// Waits until the daemon says that the next lease would be had.
    fn wait_until_well(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + GENEROUS;
        while let Err(report) = self.check() {
            ensure!(is_of_the_mount(&report.code), "{report:?}");
            ensure!(Instant::now() < until, "it doesn't recover: {report:?}");
        }
        Ok(())
    }
}

/// All that somebody could see of a thing, but when it was renamed.
fn facts(path: &Path) -> anyhow::Result<impl PartialEq + fmt::Debug + use<>> {
    let found = path.symlink_metadata()?;
    let content = match found.file_type() {
        kind if kind.is_symlink() => fs::read_link(path)?.into_os_string().into_encoded_bytes(),
        kind if kind.is_file() => fs::read(path)?,
        kind if kind.is_dir() => {
            let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
            names.collect::<std::io::Result<Vec<_>>>()?.join("/".as_ref()).into_encoded_bytes()
        }
        _ => Vec::new(),
    };
    let times = (found.mtime(), found.mtime_nsec());
    Ok((found.ino(), found.mode(), found.uid(), found.gid(), found.size(), times, content))
}
