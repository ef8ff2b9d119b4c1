//! Processes that use a lease while something happens to the mount: one that holds things open, and
//! a sandbox with a bind of the lease.
//!
//! Whatever could hang happens in them, never in the test itself.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::command::{Finished, Running};
use crate::stage::Stage;

const HOLDER: &str = include_str!("holder.py");
/// In a lease; each word that is read goes through a file of the sandbox's bind of it.
const SANDBOX: &str = r#"
    exec bwrap --ro-bind / / --dev /dev --proc /proc --bind "$TMPDIR" /mnt --chdir /mnt bash -uc '
        exec 3<>held-$$
        echo ready
        while read -r word; do
            echo "$word" > path-$$ && echo "$word" > "$PWD/full-path-$$" && echo "$word" >&3 &&
            [[ $(< path-$$) == "$word" && $(< /mnt/full-path-$$) == "$word" ]] &&
            [[ $(tail -n 1 /mnt/held-$$) == "$word" && $(< /mnt/deep/below/read) == read---- ]] &&
            echo good || echo bad
        done
    '
"#;
/// All that one test may ask of one of them.
const WHILE: Duration = Duration::from_secs(600);

/// A process that holds things open in its lease.
#[derive(Debug)]
pub struct Holder(Running);

impl Holder {
    /// Starts one in this session, as the user of the stage, and makes what it holds later.
    ///
    /// # Errors
    ///
    /// Where it can't be started.
    pub fn start(stage: &Stage, session: &str) -> anyhow::Result<Self> {
        let run = ["run", "--session", session, "--", "python3", "-c", HOLDER];
        let mut holder = Self(stage.holdfast().args(run).deadline(WHILE).start()?);
        holder.ask("make")?;
        Ok(holder)
    }

    /// Has it do something.
    ///
    /// # Errors
    ///
    /// Where it fails with what nothing was to fail with.
    pub fn ask(&mut self, what: &str) -> anyhow::Result<Value> {
        self.0.say(what)?;
        let line = self.0.line().with_context(|| what.to_owned())?;
        serde_json::from_str(&line).with_context(|| format!("{what}: {line}"))
    }

    /// How long after that moment the path leads to the files.
    ///
    /// # Errors
    ///
    /// Where it never does.
    pub fn serves_after(&mut self, start: Instant) -> anyhow::Result<Duration> {
        self.ask("serves")?;
        Ok(start.elapsed())
    }

    /// Its process, which has the lease.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// Where it doesn't end well.
    pub fn finish(self) -> anyhow::Result<Finished> {
        self.0.finish()
    }
}

/// A sandbox with a bind of a lease.
#[derive(Debug)]
pub struct Sandbox(Running);

impl Sandbox {
    /// Starts one in this session, in which a [`Holder`] has made its files.
    ///
    /// # Errors
    ///
    /// Where it can't be started.
    pub fn start(stage: &Stage, session: &str) -> anyhow::Result<Self> {
        let mut running = stage.run_in(session, SANDBOX).deadline(WHILE).start()?;
        ensure!(running.line()? == "ready");
        Ok(Self(running))
    }

    /// Whether files in its bind can be written and read.
    ///
    /// # Errors
    ///
    /// Where it has ended.
    pub fn works(&mut self, word: &str) -> anyhow::Result<bool> {
        self.0.say(word)?;
        Ok(self.0.line()? == "good")
    }
}
