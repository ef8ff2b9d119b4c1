//! The differential test, on a mount and on what it's checked with itself.
//!
//! `HOLDFAST_SEQUENCES` says how many sequences each test runs, `HOLDFAST_SEED` which one alone.

use std::env;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use holdfast_tests::command::Program;
use holdfast_tests::daemon::Daemon;
use holdfast_tests::differential::batch::Summary;
use holdfast_tests::differential::mutation::Mutation;
use holdfast_tests::need::Need;
use holdfast_tests::report;
use holdfast_tests::stage::{Stage, as_ordinary_user, as_root};
use holdfast_tests::user::{User, is_root};

/// How many sequences each test runs where nobody says.
const SEQUENCES: u64 = 60;
/// How many where skipping is forbidden: there it must be thorough.
const SEQUENCES_OF_CI: u64 = 500;

/// What must have been met after a good number of sequences, whoever acted.
const ALWAYS: &[(&str, &[&str])] = &[
    ("Access", &["ok", "ENOENT", "ENOTDIR"]),
    ("Allocate", &["ok", "EOPNOTSUPP", "EBADF", "EINVAL"]),
    ("ChangeMode", &["ok", "ENOENT"]),
    ("ChangeOwner", &["ok", "ENOENT"]),
    ("Close", &["ok"]),
    ("CopyRange", &["ok", "EBADF"]),
    ("GetXattr", &["ok", "ENODATA", "ERANGE", "EOPNOTSUPP"]),
    ("Link", &["ok", "EEXIST", "EPERM", "ENOENT"]),
    ("LinkOpen", &["ENOENT"]),
    ("ListXattr", &["ok", "ENOENT"]),
    ("MakeDirectory", &["ok", "EEXIST", "ENOENT", "ENOTDIR", "ENAMETOOLONG"]),
    ("MakeNode", &["ok", "EEXIST"]),
    ("Map", &["ok", "EACCES"]),
    ("MapRead", &["ok", "EFAULT"]),
    ("MapSync", &["ok"]),
    ("MapWrite", &["ok", "EFAULT"]),
    ("Open", &["ok", "EEXIST", "EISDIR", "ELOOP", "ENOENT", "ENOTDIR", "ENXIO", "EINVAL"]),
    ("Read", &["ok", "EBADF"]),
    ("ReadAt", &["ok", "ESPIPE"]),
    ("ReadDirectory", &["ok", "ENOTDIR", "ENOENT"]),
    ("ReadLink", &["ok", "EINVAL"]),
    ("RemoveDirectory", &["ok", "ENOTEMPTY", "ENOTDIR", "EINVAL"]),
    ("RemoveXattr", &["ok", "ENODATA"]),
    ("Rename", &["ok", "EEXIST", "EINVAL", "EISDIR", "ENOTDIR", "ENOTEMPTY", "EBUSY", "ENOENT"]),
    ("Seek", &["ok", "ENXIO", "EINVAL"]),
    ("SetTimes", &["ok", "ENOENT"]),
    ("SetXattr", &["ok", "EEXIST", "ENODATA", "EINVAL", "E2BIG", "EOPNOTSUPP", "EPERM"]),
    ("Stat", &["ok", "ENOENT", "ELOOP"]),
    ("StatFs", &["ok"]),
    ("Symlink", &["ok", "EEXIST"]),
    ("Sync", &["ok", "EINVAL"]),
    ("Truncate", &["ok", "EISDIR", "EINVAL"]),
    ("TruncateOpen", &["ok", "EINVAL"]),
    ("Unlink", &["ok", "EISDIR", "ENOENT", "ENOTDIR"]),
    ("Write", &["ok", "EBADF"]),
    ("WriteAt", &["ok", "EINVAL"]),
];

/// What ordinary users meet besides.
const REFUSED: &[(&str, &[&str])] = &[
    ("Access", &["EACCES"]),
    ("ChangeMode", &["EACCES"]),
    ("ChangeOwner", &["EPERM"]),
    ("Link", &["EACCES"]),
    ("MakeDirectory", &["EACCES"]),
    ("MakeNode", &["EPERM", "EACCES"]),
    ("Open", &["EACCES"]),
    ("ReadDirectory", &["EACCES"]),
    ("Rename", &["EACCES"]),
    ("Symlink", &["EACCES"]),
    ("Unlink", &["EACCES"]),
];

/// What they meet where others are.
const NOT_THEIRS: &[(&str, &[&str])] = &[("ChangeMode", &["EPERM"]), ("SetTimes", &["EPERM"])];

/// Who acts, and on what.
struct Run<'a> {
    stage: &'a Stage,
    subject: Option<&'a Path>,
    words: &'a [&'a str],
    expected: &'a [&'a [(&'static str, &'static [&'static str])]],
}

impl Run<'_> {
    /// Runs as many sequences as are wanted, or the one that is.
    fn compare(&self) -> anyhow::Result<()> {
        let seed = env::var("HOLDFAST_SEED").ok();
        let wanted = match (&seed, env::var("HOLDFAST_SEQUENCES")) {
            (Some(_), _) => 1,
            (None, Ok(number)) => number.parse().context("HOLDFAST_SEQUENCES")?,
            (None, Err(_)) if env::var_os("HOLDFAST_TESTS_NO_SKIP").is_some() => SEQUENCES_OF_CI,
            (None, Err(_)) => SEQUENCES,
        };
        let seed = match &seed {
            Some(seed) => seed.parse().context("HOLDFAST_SEED")?,
            None => fastrand::u64(..1 << 40),
        };
        let summary = self.sequences(seed, wanted, &[])?;
        let who = if self.stage.user.is_root() { "as root" } else { "as an ordinary user" };
        let words = self.words.join(" ");
        let table = &summary.coverage;
        report::print(format!("{who} {words}: {wanted} sequences from seed {seed}\n{table}"));
        if let Some(failure) = summary.failure {
            bail!("{failure}\n(HOLDFAST_SEED=… runs this one alone)");
        }
        ensure!(summary.sequences == wanted, "only {} were run", summary.sequences);
        if wanted >= SEQUENCES {
            // The rarest of these is expected some ten times in so many sequences.
            let missing: Vec<_> =
                self.expected.iter().flat_map(|pairs| summary.coverage.below(1, pairs)).collect();
            ensure!(missing.is_empty() || wanted < 100, "never met: {}", missing.join(", "));
            let least = if wanted < 100 { 150 } else { 190 };
            let pairs = summary.coverage.pairs();
            ensure!(pairs >= least, "only {pairs} pairs of operation and answer were met");
        }
        Ok(())
    }

    /// Runs sequences on the subject, or in a lease where there is none, and a tmpfs.
    fn sequences(&self, seed: u64, number: u64, more: &[&str]) -> anyhow::Result<Summary> {
        let stage = self.stage;
        let reference = stage.tmpfs("reference")?;
        let program = stage.path("bin/differential");
        let mut words = vec![format!("reference={}", reference.display())];
        words.push(format!("seed={seed}"));
        words.push(format!("sequences={number}"));
        words.extend(self.words.iter().chain(more).map(|word| (*word).to_owned()));
        let program = match self.subject {
            Some(subject) => {
                stage.program(Program::new(program).arg(format!("subject={}", subject.display())))
            }
            None => {
                // Everybody is to act in it.
                let script = r#"chmod 1777 "$TMPDIR"; exec "$0" subject="$TMPDIR" "$@""#;
                let shell = ["run", "--mode", "shared", "--", "bash", "-c", script];
                stage.holdfast().args(shell).arg(program)
            }
        };
        let finished = program.args(words).deadline(Duration::from_secs(1500)).run()?;
        serde_json::from_str(&finished.stdout).with_context(|| format!("{finished:?}"))
    }
}

/// In a lease on a daemon of the stage's user.
fn on_a_mount(
    stage: &Stage,
    words: &[&str],
    expected: &[&[(&'static str, &'static [&'static str])]],
) -> anyhow::Result<()> {
    let daemon = stage.serve()?;
    Run { stage, subject: None, words, expected }.compare()?;
    daemon.stop(stage)
}

#[test]
fn root_can_tell_no_difference() {
    as_root(&[Need::Fuse], |stage| on_a_mount(stage, &["cast=alone"], &[ALWAYS]));
}

#[test]
fn users_beside_root_can_tell_no_difference() {
    as_root(&[Need::Fuse], |stage| {
        on_a_mount(stage, &["cast=mixed"], &[ALWAYS, REFUSED, NOT_THEIRS])
    });
}

#[test]
fn an_ordinary_user_of_a_privileged_daemon_can_tell_no_difference() {
    as_root(&[Need::Fuse], |stage| {
        let daemon = stage.serve()?;
        let user = stage.for_user(User::ordinary());
        Run { stage: &user, subject: None, words: &[], expected: &[ALWAYS, REFUSED] }.compare()?;
        daemon.stop(stage)
    });
}

#[test]
fn an_ordinary_user_can_tell_no_difference() {
    as_ordinary_user(&[Need::Fuse], |stage| {
        on_a_mount(stage, &["unprivileged=true"], &[ALWAYS, REFUSED])
    });
}

#[test]
fn a_directory_store_can_be_told_by_nothing() {
    as_root(&[Need::Fuse], |stage| {
        let store = format!("dir:{}/store", stage.tmpfs("disk")?.display());
        let daemon = Daemon::start(stage, &stage.user, &["--store", &store])?;
        let run = Run { stage, subject: None, words: &["cast=mixed"], expected: &[] };
        run.compare()?;
        daemon.stop(stage)
    });
}

#[test]
fn two_tmpfs_do_not_differ() {
    as_ordinary_user(&[], |stage| {
        let subject = stage.tmpfs("subject")?;
        let run = Run { stage, subject: Some(&subject), words: &[], expected: &[] };
        let summary = run.sequences(1, 20, &[])?;
        ensure!(summary.failure.is_none(), "{:?}", summary.failure);
        ensure!(summary.sequences == 20);
        Ok(())
    });
}

#[test]
fn every_wrong_subject_is_found_out() {
    let test = |stage: &Stage| {
        for mutation in Mutation::ALL {
            let subject = stage.tmpfs("subject")?;
            let run = Run { stage, subject: Some(&subject), words: &[], expected: &[] };
            let word = format!("mutation={mutation:?}");
            let summary = run.sequences(1, 60, &[&word])?;
            let failure = summary.failure.with_context(|| format!("{mutation:?} wasn't found"))?;
            ensure!(failure.contains("a shorter sequence"), "{failure}");
        }
        Ok(())
    };
    if is_root() { as_root(&[], test) } else { as_ordinary_user(&[], test) }
}

#[test]
fn a_seed_means_the_same_sequence_everywhere() {
    use holdfast_tests::differential::generate::{Cast, Recipe, sequence};
    let recipe = Recipe {
        seed: 7,
        cast: Cast::Mixed,
        length: 250,
        ids: [0, 1, 2],
        privileged: true,
        knows_own_id_only: false,
    };
    let steps = sequence(recipe);
    assert_eq!(steps, sequence(recipe));
    assert_ne!(steps, sequence(Recipe { seed: 8, ..recipe }));
    assert!(steps.len() >= 250);
}
