//! Sixteen tenants who live on a mount, and somebody who takes it away all the time.
//!
//! Whatever is done, nobody may wait without an end, lose a file of a lease that they have, or be
//! granted a lease that can't be reached. Only what was done to the mount at that very time excuses
//! a failure.

mod attacker;
mod tally;
mod tenant;
mod watchdog;
mod weather;

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use self::attacker::{Attacker, Attacks};
use self::tally::Tally;
use self::tenant::Tenant;
use self::watchdog::Watchdog;
use self::weather::Weather;
use crate::daemon::Daemon;
use crate::damage::Elder;
use crate::stage::Stage;
use crate::{mounts, status};

/// How many live on the mount.
const TENANTS: usize = 16;
/// Longer than anything takes that doesn't hang.
const GENEROUS: Duration = Duration::from_secs(30);

/// What happened.
#[derive(Debug)]
pub struct Summary {
    attacks: Attacks,
    tally: Tally,
    before: Open,
    after: Open,
}

impl Summary {
    /// Whether enough happened for it to mean anything.
    ///
    /// # Errors
    ///
    /// Where something never did.
    pub fn is_worth_it(&self) -> anyhow::Result<()> {
        self.attacks.each_happened()?;
        self.tally.each_happened()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attacks, tally, before, after } = self;
        write!(formatter, "{attacks}\n  {tally}\n  before: {before}\n  after: {after}")
    }
}

/// What the two processes of a daemon have open, and their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    keeper: (usize, usize),
    worker: (usize, usize),
}

impl Open {
    fn of(daemon: &Daemon) -> anyhow::Result<Self> {
        let count = |id: u32, of: &str| -> anyhow::Result<usize> {
            Ok(fs::read_dir(format!("/proc/{id}/{of}"))?.count())
        };
        let both = |id| -> anyhow::Result<_> { Ok((count(id, "fd")?, count(id, "task")?)) };
        Ok(Self { keeper: both(daemon.id())?, worker: both(daemon.worker()?)? })
    }

    const fn is_within(&self, other: &Self) -> bool {
        self.keeper.0 <= other.keeper.0
            && self.keeper.1 <= other.keeper.1
            && self.worker.0 <= other.worker.0
            && self.worker.1 <= other.worker.1
    }
}

impl fmt::Display for Open {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keeper, worker } = self;
        write!(
            formatter,
            "keeper {} descriptors and {} threads, worker {} and {}",
            keeper.0, keeper.1, worker.0, worker.1
        )
    }
}

/// Lets it rage on the mount of a daemon for so long. The elder one's shell removes directories.
///
/// # Errors
///
/// Where any promise is broken.
pub fn rage(
    stage: &Stage,
    daemon: &Daemon,
    elder: &mut Elder,
    seed: u64,
    duration: Duration,
) -> anyhow::Result<Summary> {
    // What is made once and kept is there before it is counted.
    stage.run(r#"echo once > "$TMPDIR/file""#).output()?;
    nobody_is_left(stage)?;
    let before = Open::of(daemon)?;
    let weather = Weather::default();
    let watchdog = Watchdog::new(TENANTS + 1);
    let until = Instant::now() + duration;
    let (attacks, tally) = std::thread::scope(|scope| {
        let (weather, watchdog) = (&weather, &watchdog);
        let tenants: Vec<_> = (0..TENANTS)
            .map(|number| {
                scope.spawn(move || {
                    let lived = watchdog.guard(number, weather, |beat| {
                        stage.user.becomes_this_thread()?;
                        let seed = seed.wrapping_add(u64::try_from(number)?);
                        Tenant::new(stage, daemon, weather, beat, number, seed)?.live()
                    });
                    lived.with_context(|| format!("tenant {number}"))
                })
            })
            .collect();
        let attacker = scope.spawn(move || {
            watchdog.guard(TENANTS, weather, |beat| {
                Attacker::new(stage, daemon, weather, beat, elder, seed)?.attack(until)
            })
        });
        let watched = watchdog.watch(weather);
        let attacks = attacker.join().map_err(panicked)?.context("the attacker");
        let mut tally = Ok(Tally::default());
        for tenant in tenants {
            match (tenant.join().map_err(panicked)?, &mut tally) {
                (Ok(own), Ok(all)) => all.add(&own),
                (Err(error), Ok(_)) => tally = Err(error),
                (Ok(_) | Err(_), Err(_)) => {}
            }
        }
        // What a hang brought with it is no news.
        watched?;
        match (attacks, tally) {
            (Ok(attacks), Ok(tally)) => Ok((attacks, tally)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            // Either can be why the other failed.
            (Err(error), Err(other)) => Err(error.context(format!("{other:#}"))),
        }
    })?;
    nobody_is_left(stage)?;
    let fuse = mounts::fuse()?;
    ensure!(fuse.len() == 1 && fuse[0].path == daemon.mountpoint, "mounts leaked: {fuse:?}");
    let after = closes(daemon, &before)?;
    Ok(Summary { attacks, tally, before, after })
}

/// Waits until every session and generation is gone.
fn nobody_is_left(stage: &Stage) -> anyhow::Result<()> {
    let all = ["sessions", "generations", "leases", "tokens", "processes"];
    status::becomes(stage, &all.map(|name| (name, 0)), GENEROUS)
}

/// Waits until no more is open than before.
fn closes(daemon: &Daemon, before: &Open) -> anyhow::Result<Open> {
    let until = Instant::now() + GENEROUS;
    loop {
        let after = Open::of(daemon)?;
        if after.is_within(before) {
            return Ok(after);
        }
        if Instant::now() > until {
            bail!("something leaks: before, {before}; after, {after}");
        }
        std::thread::yield_now();
    }
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().cloned();
    anyhow::anyhow!("it panicked: {}", text.unwrap_or_default())
}
