//! A user's own daemon keeps its files: `fusermount3` can't put the same mount back, so a new
//! connection serves the path, and the old one what is still open on it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use holdfast_tests::client::Client;
use holdfast_tests::command::Program;
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::detach::{self, Older};
use holdfast_tests::holder::{Holder, Sandbox};
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_ordinary_user};
use holdfast_tests::times::Times;
use serde_json::{Value, json};

const ROUNDS: usize = 20;
/// How long the end of a connection that nobody uses any more may take to be known.
const ENDS: Duration = Duration::from_secs(10);

const NEEDS: &[Need] = &[Need::Fuse, Need::Program("python3"), Need::Program("bwrap")];

/// Takes a lease of the session `main`.
fn taken(client: &mut Client) -> anyhow::Result<Value> {
    let acquire = json!({ "session": "main", "hold": "nothing" });
    Ok(client.get("AcquireLease", &acquire)?["lease"].clone())
}

fn check(client: &mut Client, lease: &Value) -> anyhow::Result<Value> {
    Ok(client.get("CheckLease", &json!({ "lease": lease["id"] }))?["lease"].clone())
}

/// Waits until the connection that a lease was taken on is gone.
fn becomes_stale(client: &mut Client, lease: &Value) -> anyhow::Result<Duration> {
    let start = Instant::now();
    loop {
        let now = check(client, lease)?;
        if now["stale"] == true {
            return Ok(start.elapsed());
        }
        if start.elapsed() > ENDS {
            bail!("not stale after {ENDS:?}: {now}");
        }
        // What it waits for is told by nobody, and each question has an answer to wait for.
        std::thread::yield_now();
    }
}

/// Everything that is held on a connection that serves works, and so does its path.
fn works(holder: &mut Holder, set: &Value) -> anyhow::Result<()> {
    let used = holder.ask(&format!("use {set}"))?;
    for what in ["read back", "seen by path"] {
        ensure!(used[what] == true, "{what}: {used}");
    }
    for what in ["read", "open in directory", "open in path", "working directory"] {
        ensure!(used[what] == "read----", "{what}: {used}");
    }
    ensure!(used["write"] == 8 && used["make in working directory"] == 8, "{used}");
    let unseen = holder.ask(&format!("across {set}"))?;
    ensure!(unseen == json!([]), "not seen on the other side: {unseen}");
    Ok(())
}

/// The mount is detached so often in this way, with a connection that lives on each time.
fn two_connections_serve(
    stage: &Stage,
    what: &str,
    detach: impl Fn(&Daemon, Option<&mut Older>) -> anyhow::Result<()>,
    mut older: Option<Older>,
) -> anyhow::Result<()> {
    let mut times = Times::of(format_args!("{what}, until a new connection serves"));
    let mut ends = Times::of(format_args!("{what}, until the end of the old one is known"));
    while_served(stage, |daemon| {
        stage.holdfast().args(["session", "open", "main"]).output()?;
        let mut holder = Holder::start(stage, "main")?;
        let mut client = Client::new(&stage.user, &daemon.socket)?;
        for _ in 0..ROUNDS {
            let lease = taken(&mut client)?;
            let (set, facts) = (holder.ask("hold")?, holder.ask("facts")?);
            let mut sandbox = Sandbox::start(stage, "main")?;
            works(&mut holder, &set)?;
            let start = Instant::now();
            detach(daemon, older.as_mut())?;
            times.add(holder.serves_after(start)?)?;
            let after = holder.ask("facts")?;
            for (name, before) in facts.as_object().context("facts")? {
                match (before.as_array(), after[name].as_array()) {
                    (Some(before), Some(after)) => {
                        ensure!(before[0] != after[0] && before[1..] == after[1..], "{name}");
                    }
                    _ => ensure!(*before == after[name], "{name}"),
                }
            }
            // The old connection serves what is open on it, the new one the path, and each sees
            // what happens on the other.
            works(&mut holder, &set)?;
            ensure!(sandbox.works("old")?, "a bind of the old connection doesn't work");
            let mut anew = Sandbox::start(stage, "main")?;
            ensure!(anew.works("new")? && sandbox.works("old")?);
            let new = taken(&mut client)?;
            ensure!(new["epoch"].as_u64() > lease["epoch"].as_u64(), "{lease}, {new}");
            ensure!(new["device"] != lease["device"] && new["inode"] == lease["inode"]);
            ensure!(new["stale"] == false, "{new}");
            let old = check(&mut client, &lease)?;
            ensure!(old["stale"] == false && old["epoch"] == lease["epoch"], "{old}");
            // With the last user the old one goes.
            drop((sandbox, anew));
            holder.ask("let_go")?;
            ends.add(becomes_stale(&mut client, &lease)?)?;
            ensure!(check(&mut client, &new)?["stale"] == false);
            for lease in [lease, new] {
                client.get("ReleaseLease", &json!({ "lease": lease["id"] }))?;
            }
        }
        holder.finish()?.success()?;
        stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
        Ok(())
    })?;
    times.print();
    ends.print();
    Ok(())
}

#[test]
fn after_fusermount3_both_connections_serve() {
    as_ordinary_user(NEEDS, |stage| {
        let detach = |daemon: &Daemon, _: Option<&mut Older>| {
            let helper = Program::new("fusermount3").args(["-u", "-z"]).arg(&daemon.mountpoint);
            stage.program(helper).output().map(drop)
        };
        two_connections_serve(stage, "fusermount3 -u -z", detach, None)
    });
}

#[test]
fn after_a_lazy_unmount_both_connections_serve() {
    as_ordinary_user(&[NEEDS, &[Need::Root]].concat(), |stage| {
        let detach = |daemon: &Daemon, _: Option<&mut Older>| {
            detach::umount(stage, &["-l"], &daemon.mountpoint)?.success().map(drop)
        };
        two_connections_serve(stage, "umount -l at a user's daemon", detach, None)
    });
}

#[test]
fn after_a_rmdir_in_an_older_namespace_both_connections_serve() {
    as_ordinary_user(&[NEEDS, &[Need::Root]].concat(), |stage| {
        let detach = |_: &Daemon, older: Option<&mut Older>| {
            older.context("there is one")?.does("rmdir").map(drop)
        };
        let older = Older::new(stage, &stage.mountpoint(&stage.user))?;
        let what = "rmdir in an older namespace at a user's daemon";
        two_connections_serve(stage, what, detach, Some(older))
    });
}

/// Nothing is open past the connection here, so what is held of it dies with it.
#[test]
fn after_an_abort_the_path_is_served_anew() {
    as_ordinary_user(&[NEEDS, &[Need::Root]].concat(), |stage| {
        for (what, abort) in [("abort at a user's daemon", true), ("umount -f there", false)] {
            let mut times = Times::of(format_args!("{what}, until a new connection serves"));
            while_served(stage, |daemon| {
                stage.holdfast().args(["session", "open", "main"]).output()?;
                let mut holder = Holder::start(stage, "main")?;
                let mut client = Client::new(&stage.user, &daemon.socket)?;
                for _ in 0..ROUNDS {
                    let lease = taken(&mut client)?;
                    let (set, facts) = (holder.ask("hold")?, holder.ask("facts")?);
                    let start = Instant::now();
                    if abort {
                        detach::abort(stage, daemon)?;
                    } else {
                        drop(detach::umount(stage, &["-f"], &daemon.mountpoint)?);
                    }
                    times.add(holder.serves_after(start)?)?;
                    let dead = holder.ask(&format!("use {set}"))?;
                    for what in ["write", "list", "working directory"] {
                        let error = dead[what].as_str().unwrap_or("none");
                        ensure!(["ENOTCONN", "ECONNABORTED"].contains(&error), "{what}: {dead}");
                    }
                    let after = holder.ask("facts")?;
                    let below = "deep/below/data";
                    ensure!(
                        facts[below][0] != after[below][0] && facts[below][1] == after[below][1]
                    );
                    becomes_stale(&mut client, &lease)?;
                    ensure!(taken(&mut client)?["stale"] == false);
                    let read = stage.run_in("main", r#"cat "$TMPDIR/deep/below/read""#);
                    ensure!(read.output()? == "read----");
                }
                holder.finish()?.success()?;
                stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
                Ok(())
            })?;
            times.print();
        }
        Ok(())
    });
}
