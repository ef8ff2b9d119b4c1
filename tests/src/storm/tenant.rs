//! Somebody who lives on the mount: takes leases, keeps files in them, and gives them back.
//!
//! A file is known from the moment that it was written whole; from then on it must be there, as it
//! was, until the tenant removes it or gives the lease back.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use fastrand::Rng;
use holdfast::control::client::Client;
use holdfast::control::wire;

use super::tally::Tally;
use super::watchdog::Beat;
use super::weather::{Weather, is_of_the_mount};
use crate::agents::complain;
use crate::command::{Program, Running};
use crate::daemon::Daemon;
use crate::stage::Stage;

/// Leases that a tenant has at once, and files in each.
const LEASES: usize = 3;
const FILES: usize = 8;

/// A lease, and what is known to be in it.
struct Held {
    lease: wire::Lease,
    taken: Instant,
    files: BTreeMap<String, Vec<u8>>,
    open: Option<(File, Vec<u8>, Instant)>,
}

impl Held {
    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.lease.path).join(name)
    }
}

/// A sandbox in which a lease is bound.
struct Sandbox {
    running: Running,
    lease: String,
    name: String,
    since: Instant,
}

/// A tenant.
pub(super) struct Tenant<'a> {
    stage: &'a Stage,
    weather: &'a Weather,
    beat: Beat<'a>,
    number: usize,
    random: Rng,
    client: Client,
    session: String,
    token: String,
    /// Whether what is open is read and written without the connection.
    passthrough: bool,
    leases: Vec<Held>,
    sandbox: Option<Sandbox>,
    /// No name is ever used twice.
    serial: u64,
    tally: Tally,
}

impl<'a> Tenant<'a> {
    pub(super) fn new(
        stage: &'a Stage,
        daemon: &Daemon,
        weather: &'a Weather,
        beat: Beat<'a>,
        number: usize,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let mut client = Client::connect(&daemon.socket).map_err(complain)?;
        // Two of them have one session.
        let name = Some(format!("tenants-{}", number / 2));
        let open = wire::OpenSession { name, ..Default::default() };
        let opened = client.call(&open).map_err(complain)?;
        let lost = client.call(&wire::Describe {}).map_err(complain)?.lost_promises;
        let passthrough = !lost.iter().any(|promise| promise.name == "data-passthrough");
        Ok(Self {
            stage,
            weather,
            beat,
            number,
            random: Rng::with_seed(seed),
            client,
            session: opened.session.id,
            token: opened.token,
            passthrough,
            leases: Vec::new(),
            sandbox: None,
            serial: 0,
            tally: Tally::default(),
        })
    }

    /// Lives until all is to end, and leaves nothing.
    pub(super) fn live(mut self) -> anyhow::Result<Tally> {
        while !self.weather.is_stopped() {
            self.step()?;
            self.weather.note_step();
        }
        self.leave_sandbox()?;
        while !self.leases.is_empty() {
            self.give_back(0)?;
        }
        self.beat.step("let the session go");
        let release = wire::ReleaseSession { session: self.session, token: self.token };
        self.client.call(&release).map_err(complain)?;
        Ok(self.tally)
    }

    fn step(&mut self) -> anyhow::Result<()> {
        if self.leases.is_empty() {
            return self.take();
        }
        let lease = self.random.usize(..self.leases.len());
        match self.random.u32(..100) {
            0..8 if self.leases.len() < LEASES => self.take(),
            0..30 => self.write(lease),
            30..60 => self.read(lease),
            60..65 => self.remove(lease),
            65..80 => self.use_open(lease),
            80..86 => self.list(lease),
            86..89 => self.look_after(lease),
            89 => self.sweep(),
            90..92 => self.rotate(),
            92..96 => self.give_back(lease),
            // A sandbox takes as long as a hundred other steps, so only some tenants have them.
            _ if !self.number.is_multiple_of(4) => self.read(lease),
            _ if self.sandbox.is_some() => self.leave_sandbox(),
            _ => self.enter_sandbox(lease),
        }
    }

    /// Takes a lease, which can be reached unless the mount was taken away since.
    fn take(&mut self) -> anyhow::Result<()> {
        self.beat.step("take a lease");
        let kinds = [wire::LeaseKind::Shared, wire::LeaseKind::Private];
        let holds = [wire::Hold::Process, wire::Hold::Connection, wire::Hold::Nothing];
        let acquire = wire::AcquireLease {
            session: self.session.clone(),
            kind: self.random.choice(kinds),
            hold: self.random.choice(holds),
            pid: None,
        };
        let taken = Instant::now();
        let mut code = None;
        let answered = self.weather.attempt(|| {
            let acquired = self.client.call(&acquire);
            acquired.inspect_err(|report| code = Some(report.code.clone())).map_err(complain)
        })?;
        if let Some(code) = code {
            ensure!(is_of_the_mount(&code), "refused: {code}");
            *self.tally.refused.entry(code).or_default() += 1;
        }
        let Some(acquired) = answered else { return Ok(()) };
        let lease = acquired.lease;
        self.tally.granted += 1;
        let reached = fs::symlink_metadata(&lease.path);
        let now = Instant::now();
        match reached {
            Ok(found) if (found.dev(), found.ino()) == (lease.device, lease.inode) => {}
            // What was asked for before the mount was taken away is told so.
            _ if self.weather.explains(taken, now, false) => {
                // It was granted for what is there again afterwards.
                let found = self.weather.insist(|| Ok(fs::symlink_metadata(&lease.path)?))?;
                ensure!(found.ino() == lease.inode, "{lease:?} leads to {found:?}");
                self.tally.too_late += 1;
            }
            found => bail!("{lease:?} was granted and leads to {found:?}"),
        }
        self.leases.push(Held { lease, taken, files: BTreeMap::new(), open: None });
        Ok(())
    }

    /// Writes a new file. Where an attack comes in between, nothing is known of it.
    fn write(&mut self, lease: usize) -> anyhow::Result<()> {
        if self.leases[lease].files.len() >= FILES {
            return self.remove(lease);
        }
        self.beat.step("write");
        let name = self.new_name();
        let content = self.content(&name);
        let held = &mut self.leases[lease];
        let path = held.path(&name);
        match self.weather.attempt(|| fs::write(&path, &content).with_context(|| show(&path)))? {
            Some(()) => {
                held.files.insert(name, content);
                self.tally.written += 1;
            }
            None => self.tally.interrupted += 1,
        }
        Ok(())
    }

    /// Reads a file that must be there, however often it takes.
    fn read(&mut self, lease: usize) -> anyhow::Result<()> {
        self.beat.step("read");
        let Some((path, content)) = self.any_file(lease) else { return self.write(lease) };
        self.is_there(&path, &content)?;
        self.tally.read += 1;
        Ok(())
    }

    fn is_there(&self, path: &Path, content: &[u8]) -> anyhow::Result<()> {
        let found = self.weather.insist(|| Ok(fs::read(path)?));
        let found = found.with_context(|| format!("{} is lost", path.display()))?;
        ensure!(found == content, "{} is not what was written", path.display());
        Ok(())
    }

    fn remove(&mut self, lease: usize) -> anyhow::Result<()> {
        self.beat.step("remove");
        let held = &mut self.leases[lease];
        let Some((name, _)) = held.files.pop_first() else { return Ok(()) };
        let path = held.path(&name);
        let mut again = false;
        self.weather.insist(|| match fs::remove_file(&path) {
            // What was asked for and not answered was done all the same, perhaps.
            Err(error) if again && error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => {
                again = true;
                removed.with_context(|| show(&path))
            }
        })?;
        self.tally.removed += 1;
        Ok(())
    }

    /// Reads and writes through a descriptor, which only the end of its connection excuses, and not
    /// even that where data don't go through it.
    fn use_open(&mut self, lease: usize) -> anyhow::Result<()> {
        self.beat.step("use an open file");
        if self.leases[lease].open.is_none() {
            let Some((path, content)) = self.any_file(lease) else { return self.write(lease) };
            let since = Instant::now();
            let open = || {
                let opened = OpenOptions::new().read(true).write(true).open(&path);
                opened.with_context(|| show(&path))
            };
            match self.weather.attempt(open)? {
                Some(file) => self.leases[lease].open = Some((file, content, since)),
                None => self.tally.interrupted += 1,
            }
            return Ok(());
        }
        let Some((file, content, since)) = &self.leases[lease].open else { return Ok(()) };
        let mut found = vec![0; content.len()];
        let used = file.read_exact_at(&mut found, 0).and_then(|()| file.write_all_at(content, 0));
        let aborted = self.weather.explains(*since, Instant::now(), true);
        match used {
            Ok(()) => {
                ensure!(found == *content, "an open file is not what was written");
                self.tally.through += 1;
                self.tally.outlived += u64::from(aborted);
                if self.random.u32(..8) == 0 {
                    self.leases[lease].open = None;
                }
            }
            Err(_) if aborted && !self.passthrough => {
                self.tally.interrupted += 1;
                self.leases[lease].open = None;
            }
            Err(error) => return Err(error).context("an open file is lost"),
        }
        Ok(())
    }

    fn list(&mut self, lease: usize) -> anyhow::Result<()> {
        self.beat.step("list");
        let held = &self.leases[lease];
        let found = self.weather.insist(|| {
            let names = fs::read_dir(&held.lease.path)
                .with_context(|| held.lease.path.clone())?
                .map(|entry| Ok(entry?.file_name()));
            Ok(names.collect::<std::io::Result<Vec<_>>>()?)
        })?;
        for name in held.files.keys() {
            ensure!(found.iter().any(|found| found == name.as_str()), "{name} is not listed");
        }
        self.tally.lists += 1;
        Ok(())
    }

    /// A lease stands as long as it isn't given back, and is stale only with a reason.
    fn look_after(&mut self, lease: usize) -> anyhow::Result<()> {
        self.beat.step("look after a lease");
        let held = &self.leases[lease];
        let check = wire::CheckLease { lease: held.lease.id.clone() };
        let lease = self.client.call(&check).map_err(complain)?.lease;
        if lease.stale {
            let explained = self.weather.explains(held.taken, Instant::now(), false);
            ensure!(explained, "{lease:?} is stale, and nothing was done");
            self.tally.stale += 1;
        }
        Ok(())
    }

    fn rotate(&mut self) -> anyhow::Result<()> {
        self.beat.step("rotate");
        let rotate = wire::RotateSession { session: self.session.clone() };
        self.client.call(&rotate).map_err(complain)?;
        self.tally.rotated += 1;
        Ok(())
    }

    /// Has everything taken away that has ended: nothing that anybody has.
    fn sweep(&mut self) -> anyhow::Result<()> {
        self.beat.step("sweep");
        self.client.call(&wire::Sweep::default()).map_err(complain)?;
        self.tally.swept += 1;
        Ok(())
    }

    /// Gives a lease back, after everything in it was seen once more.
    fn give_back(&mut self, lease: usize) -> anyhow::Result<()> {
        if self.sandbox.as_ref().is_some_and(|held| held.lease == self.leases[lease].lease.id) {
            self.leave_sandbox()?;
        }
        self.beat.step("give a lease back");
        let held = self.leases.swap_remove(lease);
        for (name, content) in &held.files {
            self.is_there(&held.path(name), content)?;
        }
        let release = wire::ReleaseLease { lease: held.lease.id };
        let receipt = self.client.call(&release).map_err(complain)?.receipt;
        ensure!(receipt.end == wire::LeaseEnd::Released, "{receipt:?}");
        self.tally.released += 1;
        Ok(())
    }

    /// Starts a sandbox that goes on while other things are done.
    fn enter_sandbox(&mut self, lease: usize) -> anyhow::Result<()> {
        self.beat.step("enter a sandbox");
        let (name, since) = (self.new_name(), Instant::now());
        let script = r#"echo ready; read -r _; printf %s "$1" > "$1"; cat "$1""#;
        let bwrap = ["--ro-bind", "/", "/", "--dev", "/dev", "--chdir", "/mnt", "--bind"];
        let held = &self.leases[lease];
        let started = self.weather.attempt(|| {
            let program = Program::new("bwrap").args(bwrap).arg(&held.lease.path);
            let program = program.args(["/mnt", "bash", "-euc", script, "bash"]).arg(&name);
            let mut running = self.stage.program(program).start()?;
            let line = running.line()?;
            ensure!(line == "ready", "{line}");
            Ok(running)
        })?;
        match started {
            Some(running) => {
                let lease = held.lease.id.clone();
                self.sandbox = Some(Sandbox { running, lease, name, since });
            }
            None => self.tally.interrupted += 1,
        }
        Ok(())
    }

    /// What was bound when the sandbox began is good until the end of its connection.
    fn leave_sandbox(&mut self) -> anyhow::Result<()> {
        let Some(Sandbox { mut running, lease, name, since }) = self.sandbox.take() else {
            return Ok(());
        };
        self.beat.step("leave a sandbox");
        let used = running.say("go").and_then(|()| running.finish()?.success());
        match used {
            Ok(printed) => {
                ensure!(printed.trim_end() == format!("ready\n{name}"), "{printed:?}");
                self.tally.sandboxes += 1;
                let held = self.leases.iter_mut().find(|held| held.lease.id == lease);
                let held = held.context("a sandbox without its lease")?;
                held.files.insert(name.clone(), name.into_bytes());
            }
            Err(_) if self.weather.explains(since, Instant::now(), true) => {
                self.tally.interrupted += 1;
            }
            Err(error) => return Err(error).context("a sandbox lost its lease"),
        }
        Ok(())
    }

    fn any_file(&mut self, lease: usize) -> Option<(PathBuf, Vec<u8>)> {
        let held = &self.leases[lease];
        let name = self.random.choice(held.files.keys())?;
        Some((held.path(name), held.files[name].clone()))
    }

    fn new_name(&mut self) -> String {
        self.serial += 1;
        format!("{}-{}", self.number, self.serial)
    }

    fn content(&mut self, name: &str) -> Vec<u8> {
        let length = self.random.usize(1..20_000);
        name.bytes().cycle().take(length).collect()
    }
}

fn show(path: &Path) -> String {
    path.display().to_string()
}
