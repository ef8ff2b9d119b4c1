//! Runs many sequences, each in a process of its own that is ended when it hangs.
//!
//! It must go on after a sequence that fails only to count: the first failure is what is told.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::compare::Rules;
use super::coverage::Coverage;
use super::generate::{Cast, Recipe, sequence};
use super::run::{Setting, Verdict, run_and_shrink};
use crate::command::Program;
use crate::user::is_root;

/// How long one sequence may take; a fraction of a second is usual.
const DEADLINE: Duration = Duration::from_secs(60);

/// What all sequences together came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// How many were run to their end.
    pub sequences: u64,
    /// What was met.
    pub coverage: Coverage,
    /// What the first failure was, with its seed.
    pub failure: Option<String>,
}

/// The words of a command line: `key=value`, each known key once.
struct Words(HashMap<String, String>);

impl Words {
    fn new(arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        const KNOWN: [&str; 9] = [
            "subject",
            "reference",
            "seed",
            "sequences",
            "length",
            "cast",
            "mutation",
            "unprivileged",
            "looks",
        ];
        let mut words = HashMap::new();
        for argument in arguments {
            let (key, value) = argument.split_once('=').context("an argument is key=value")?;
            if !KNOWN.contains(&key) {
                bail!("{key} is none of {KNOWN:?}");
            }
            words.insert(key.to_owned(), value.to_owned());
        }
        Ok(Self(words))
    }

    fn get<T>(&self, key: &str) -> anyhow::Result<Option<T>>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        let parse =
            |text: &String| text.parse().map_err(|error| anyhow::anyhow!("{key}={text}: {error}"));
        self.0.get(key).map(parse).transpose()
    }
}

/// The program `differential`: one sequence where no number is given, otherwise that many.
///
/// # Errors
///
/// Where an argument is wrong or a place can't be used.
pub fn main(arguments: impl Iterator<Item = String>) -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = arguments.collect();
    let words = Words::new(arguments.iter().cloned())?;
    let (text, failed) = match words.get("sequences")? {
        None => {
            let verdict = one(&words)?;
            (serde_json::to_string(&verdict)?, verdict.mismatch.is_some())
        }
        Some(sequences) => {
            let seed = words.get("seed")?.unwrap_or_else(|| fastrand::u64(..));
            let summary = many(seed, sequences, &arguments)?;
            (serde_json::to_string(&summary)?, summary.failure.is_some())
        }
    };
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{text}")?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn one(words: &Words) -> anyhow::Result<Verdict> {
    // Whoever started it may be killed for being late, and can't end it then.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let own = rustix::process::geteuid().as_raw();
    let cast = match words.get::<String>("cast")?.as_deref() {
        None | Some("alone") => Cast::Alone,
        Some("mixed") => Cast::Mixed,
        Some(other) => bail!("cast={other}: it's alone or mixed"),
    };
    // Whether the subject is served by an ordinary user.
    let unprivileged = words.get("unprivileged")?.unwrap_or(false);
    let recipe = Recipe {
        seed: words.get("seed")?.context("a seed is needed")?,
        cast,
        length: words.get("length")?.unwrap_or(250),
        ids: [own, 1 + u32::from(own == 1), 2 + u32::from(own == 2)],
        knows_own_id_only: unprivileged,
        privileged: is_root(),
    };
    let mut rules = Rules::ALL;
    // There data goes through a page cache of the subject's own.
    rules.holes_of_mapped_files = !unprivileged;
    let setting = Setting {
        subject: words.get::<PathBuf>("subject")?.context("a subject is needed")?,
        reference: words.get::<PathBuf>("reference")?.context("a reference is needed")?,
        rules,
        mutation: words.get("mutation")?,
        looks: words.get("looks")?.map(|steps| (steps, false)),
    };
    run_and_shrink(recipe, &sequence(recipe), &setting)
}

fn many(first: u64, sequences: u64, arguments: &[String]) -> anyhow::Result<Summary> {
    let own = std::env::current_exe()?;
    let is_own = |word: &&String| !word.starts_with("seed=") && !word.starts_with("sequences=");
    let mut summary = Summary::default();
    for number in 0..sequences {
        let seed = first.wrapping_add(number);
        let program = Program::new(&own)
            .args(arguments.iter().filter(is_own))
            .arg(format!("seed={seed}"))
            .deadline(DEADLINE);
        match verdict(program) {
            Ok(verdict) => {
                summary.sequences += 1;
                summary.coverage.add(&verdict.coverage);
                if let Some(mismatch) = verdict.mismatch {
                    let shrunk = mismatch.shrunk.join("\n  ");
                    let what = mismatch.what;
                    summary.failure =
                        Some(format!("seed {seed}, {what}\na shorter sequence:\n  {shrunk}"));
                }
            }
            Err(error) => summary.failure = Some(format!("seed {seed}: {error:#}")),
        }
        if summary.failure.is_some() {
            break;
        }
    }
    Ok(summary)
}

fn verdict(program: Program) -> anyhow::Result<Verdict> {
    let finished = program.run()?;
    if !finished.stderr.is_empty() {
        bail!("{}", finished.stderr);
    }
    serde_json::from_str(&finished.stdout).with_context(|| format!("{finished:?}"))
}
