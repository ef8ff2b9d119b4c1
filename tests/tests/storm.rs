//! A minute on a mount that somebody takes away all the time.
//!
//! `HOLDFAST_STORM_SECONDS` says how long it lasts where that is longer, `HOLDFAST_SEED` which
//! choices are made.

use std::env;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_tests::damage::Elder;
use holdfast_tests::mounts;
use holdfast_tests::need::{self, Need};
use holdfast_tests::report::print;
use holdfast_tests::stage::{Stage, as_root};
use holdfast_tests::storm;
use holdfast_tests::user::User;

/// What issues ask for.
const SECONDS: u64 = 60;

fn storm(stage: &Stage) -> anyhow::Result<()> {
    let number = |name| -> anyhow::Result<Option<u64>> {
        env::var(name).ok().map(|text| text.parse().context(name)).transpose()
    };
    let seconds = number("HOLDFAST_STORM_SECONDS")?.unwrap_or_default().max(SECONDS);
    let seed = number("HOLDFAST_SEED")?.unwrap_or_else(|| fastrand::u64(..));
    let who = if stage.user.is_root() { "root" } else { "an ordinary user" };
    print(format_args!("a storm over {who}: HOLDFAST_SEED={seed}"));
    let root = User::root().context("root runs this")?;
    let before = mounts::list()?;
    let mut elder = Elder::start(stage, &root)?;
    let daemon = stage.serve()?;
    let duration = Duration::from_secs(seconds);
    let summary = storm::rage(stage, &daemon, &mut elder, seed, duration).with_context(|| {
        let log = stage.path(&format!("daemon-{}.log", stage.user.uid));
        format!("HOLDFAST_SEED={seed}: {}", std::fs::read_to_string(log).unwrap_or_default())
    })?;
    print(format_args!("a storm of {seconds} s over {who}:\n  {summary}"));
    stage.holdfast().arg("down").output()?;
    daemon.finish()?.success()?;
    stage.nothing_is_left(&stage.user)?;
    let left = mounts::list()?;
    ensure!(left == before, "{left:?} instead of {before:?}");
    summary.is_worth_it()
}

#[test]
fn nothing_is_lost_while_the_mount_is_taken_away_and_replaced() {
    as_root(&[Need::Fuse, Need::Program("bwrap")], storm);
}

#[test]
fn nothing_of_an_ordinary_users_daemon_is_lost_either() {
    as_root(&[Need::Fuse, Need::Program("bwrap")], |stage| {
        if need::find("fusermount3").is_none() {
            need::skip("fusermount3 is missing (Debian's package fuse3)");
            return Ok(());
        }
        storm(&stage.for_user(User::ordinary()))
    });
}
