//! The system's daemon keeps its mount: whoever detaches it sees the same one again, and whoever
//! ends its connection gets a new one over the same files.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use holdfast_tests::client::Client;
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::detach::{self, Older};
use holdfast_tests::holder::{Holder, Sandbox};
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_root};
use holdfast_tests::times::Times;
use rustix::mount::{MountPropagationFlags, mount_change};
use serde_json::{Value, json};

const ROUNDS: usize = 20;

/// A session in use, and a client that watches over it.
struct Used {
    holder: Holder,
    sandbox: Sandbox,
    client: Client,
    /// A lease that hangs on nothing, and its record when it was taken.
    lease: Value,
}

impl Used {
    fn begin(stage: &Stage, daemon: &Daemon) -> anyhow::Result<Self> {
        stage.holdfast().args(["session", "open", "main"]).output()?;
        let holder = Holder::start(stage, "main")?;
        let sandbox = Sandbox::start(stage, "main")?;
        let mut client = Client::new(&stage.user, &daemon.socket)?;
        let lease = taken(&mut client)?;
        Ok(Self { holder, sandbox, client, lease })
    }

    /// Everything that is held works as on the first day.
    fn works(&mut self, set: &Value, round: usize) -> anyhow::Result<()> {
        let used = self.holder.ask(&format!("use {set}"))?;
        for what in ["read back", "seen by path"] {
            ensure!(used[what] == true, "{what}: {used}");
        }
        for what in ["read", "open in directory", "open in path", "working directory"] {
            ensure!(used[what] == "read----", "{what}: {used}");
        }
        ensure!(used["write"] == 8 && used["make in working directory"] == 8, "{used}");
        ensure!(used["list"] == json!(["data", "link", "made", "read"]), "{used}");
        ensure!(self.sandbox.works(&format!("round-{round}"))?, "the sandbox doesn't work");
        Ok(())
    }

    fn check(&mut self, lease: &Value) -> anyhow::Result<Value> {
        let shown = self.client.get("CheckLease", &json!({ "lease": lease["id"] }))?;
        Ok(shown["lease"].clone())
    }
}

/// Takes a lease of the session `main`.
fn taken(client: &mut Client) -> anyhow::Result<Value> {
    client.get("Check", &json!({ "session": "main" }))?;
    let acquire = json!({ "session": "main", "hold": "nothing" });
    Ok(client.get("AcquireLease", &acquire)?["lease"].clone())
}

/// Epoch, device, inode and staleness.
fn record(lease: &Value) -> Value {
    ["epoch", "device", "inode", "path", "stale"].iter().map(|key| lease[*key].clone()).collect()
}

/// What `lease list --json` tells of a lease.
fn listed(stage: &Stage, lease: &Value) -> anyhow::Result<Value> {
    let list = stage.holdfast().args(["lease", "list", "--json"]).output()?;
    let list: Value = serde_json::from_str(&list)?;
    let mut leases = list["leases"].as_array().context("leases")?.iter();
    let found = leases.find(|listed| listed["id"] == lease["id"]);
    found.cloned().with_context(|| format!("{lease} isn't in {list}"))
}

/// The mount is detached so often in this way; each time the same one comes back.
fn comes_back_the_same(
    stage: &Stage,
    what: &str,
    detach: impl Fn(&Daemon, &mut Older) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut older = Older::new(stage, &stage.mountpoint(&stage.user))?;
    let mut times = Times::of(format_args!("{what}, until the same mount serves"));
    while_served(stage, |daemon| {
        let mut used = Used::begin(stage, daemon)?;
        let set = used.holder.ask("hold")?;
        used.works(&set, 0)?;
        let (facts, mount) = (used.holder.ask("facts")?, detach::mount_of(daemon)?);
        let (lease, status) = (used.lease.clone(), used.client.get("Status", &json!({}))?);
        for round in 1..=ROUNDS {
            let start = Instant::now();
            detach(daemon, &mut older)?;
            times.add(used.holder.serves_after(start)?)?;
            let back = detach::mount_of(daemon)?;
            ensure!((back.device, &back.kind) == (mount.device, &mount.kind), "{back:?}");
            let after = used.holder.ask("facts")?;
            ensure!(after == facts, "it was {facts} and is {after}");
            used.works(&set, round)?;
            let new = taken(&mut used.client)?;
            for lease in [&lease, &new] {
                let (before, now) = (record(lease), record(&used.check(lease)?));
                ensure!(now == before && lease["stale"] == false, "{before}, {now}");
            }
            ensure!(record(&listed(stage, &lease)?) == record(&lease));
            let now = used.client.get("Status", &json!({}))?;
            for key in ["device", "epoch", "fault"] {
                ensure!(now[key] == status[key], "{key}: {status}, {now}");
            }
        }
        let mut next = Holder::start(stage, "main")?;
        ensure!(next.ask("facts")? == facts);
        used.holder.finish()?.success()?;
        next.finish()?.success()?;
        drop(used.sandbox);
        stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
        Ok(())
    })?;
    times.print();
    Ok(())
}

const NEEDS: &[Need] = &[Need::Fuse, Need::Program("python3"), Need::Program("bwrap")];

#[test]
fn a_lazily_detached_mount_comes_back_the_same() {
    as_root(NEEDS, |stage| {
        comes_back_the_same(stage, "umount -l", |daemon, _| {
            detach::umount(stage, &["-l"], &daemon.mountpoint)?.success().map(drop)
        })
    });
}

#[test]
fn a_mount_detached_from_an_older_namespace_comes_back_the_same() {
    as_root(NEEDS, |stage| {
        comes_back_the_same(stage, "rmdir in an older namespace", |_, older| {
            older.does("rmdir").map(drop)
        })
    });
}

/// On usual systems mounts are shared, and what happens to one happens to its copies.
#[test]
fn a_shared_mount_comes_back_the_same() {
    as_root(NEEDS, |stage| {
        mount_change("/tmp", MountPropagationFlags::SHARED)?;
        comes_back_the_same(stage, "umount -l of a shared mount", |daemon, _| {
            detach::umount(stage, &["-l"], &daemon.mountpoint)?.success().map(drop)
        })
    });
}

#[test]
fn a_mount_that_nobody_is_in_is_unmounted_and_comes_back_the_same() {
    as_root(NEEDS, |stage| {
        let mut times = Times::of("umount, until the same mount serves");
        while_served(stage, |daemon| {
            let mut used = Used::begin(stage, daemon)?;
            let (facts, mount) = (used.holder.ask("facts")?, detach::mount_of(daemon)?);
            for round in 1..=ROUNDS {
                // While anything is held it is refused, and nothing changes.
                let set = used.holder.ask("hold")?;
                let busy = detach::umount(stage, &[], &daemon.mountpoint)?;
                ensure!(busy.code() == Some(32) && busy.stderr.contains("busy"), "{busy:?}");
                used.works(&set, round)?;
                used.holder.ask("let_go")?;
                let start = Instant::now();
                detach::umount(stage, &[], &daemon.mountpoint)?.success()?;
                times.add(used.holder.serves_after(start)?)?;
                ensure!(detach::mount_of(daemon)?.device == mount.device);
                let after = used.holder.ask("facts")?;
                ensure!(after == facts, "it was {facts} and is {after}");
                ensure!(used.sandbox.works("after")?, "the sandbox doesn't work");
                let lease = used.lease.clone();
                ensure!(record(&used.check(&lease)?) == record(&lease));
            }
            used.holder.finish()?.success()?;
            drop(used.sandbox);
            stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
            Ok(())
        })?;
        times.print();
        Ok(())
    });
}

#[test]
fn a_working_directory_has_no_path_after_its_mount_was_detached() {
    as_root(NEEDS, |stage| {
        while_served(stage, |daemon| {
            let mut used = Used::begin(stage, daemon)?;
            let set = used.holder.ask("hold")?;
            let before = used.holder.ask(&format!("use {set}"))?;
            let path = before["getcwd"].as_str().context("a path")?;
            ensure!(before["link in proc"] == path, "{before}");
            detach::umount(stage, &["-l"], &daemon.mountpoint)?.success()?;
            used.holder.ask("serves")?;
            // It is on the mount that was detached, which is at no path; but it is the same directory.
            let after = used.holder.ask(&format!("use {set}"))?;
            ensure!(after["getcwd"] == "ENOENT", "{after}");
            let below = path.strip_prefix(daemon.mountpoint.to_str().context("text")?);
            ensure!(after["link in proc"].as_str() == below, "{after}");
            used.works(&set, 1)?;
            // Whoever goes there anew has it as before.
            let again = used.holder.ask("hold")?;
            let again = used.holder.ask(&format!("use {again}"))?;
            ensure!(again["getcwd"] == path && again["link in proc"] == path, "{again}");
            // What Bash has remembered of it is the path still.
            let script = r#"
                cd "$TMPDIR" && echo x > file && echo ready && read -r _
                [[ $(pwd) == "$TMPDIR" && $(< file) == x ]] && ! pwd -P 2>/dev/null
                cd "$TMPDIR" && [[ $(pwd -P) == "$TMPDIR" ]] && echo good
            "#;
            let mut shell = stage.run(script).start()?;
            shell.line()?;
            detach::umount(stage, &["-l"], &daemon.mountpoint)?.success()?;
            used.holder.ask("serves")?;
            shell.say("go on")?;
            ensure!(shell.finish()?.success()?.ends_with("good\n"));
            used.holder.finish()?.success()?;
            drop(used.sandbox);
            stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
            Ok(())
        })
    });
}

/// Errors of what needs a connection that has ended.
const DEAD: [&str; 2] = ["ENOTCONN", "ECONNABORTED"];

/// The connection is ended so often in this way; each time a new one over the same files follows.
fn is_served_anew(
    stage: &Stage,
    what: &str,
    end: impl Fn(&Daemon, &mut Used) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut times = Times::of(format_args!("{what}, until a new mount serves"));
    while_served(stage, |daemon| {
        let mut used = Used::begin(stage, daemon)?;
        let mut facts = used.holder.ask("facts")?;
        let mut device = used.lease["device"].clone();
        let mut leases = vec![used.lease.clone()];
        for round in 1..=ROUNDS {
            used.holder.ask("hold")?;
            let start = Instant::now();
            end(daemon, &mut used)?;
            times.add(used.holder.serves_after(start)?)?;
            let after = used.holder.ask("facts")?;
            same_inodes(&facts, &after)?;
            facts = after;
            // Files that were opened by any connection before still read and write, each byte of
            // it seen by path; directories are dead.
            for set in 0..round {
                let dead = used.holder.ask(&format!("use {set}"))?;
                for what in ["read back", "seen by path"] {
                    ensure!(dead[what] == true, "round {round}, {set}: {dead}");
                }
                ensure!(dead["write"] == 8 && dead["read"] == "read----", "{dead}");
                for what in ["list", "open in directory", "open in path", "working directory"] {
                    let error = dead[what].as_str().unwrap_or("none");
                    ensure!(DEAD.contains(&error), "round {round}, {set}: {what}: {dead}");
                }
            }
            // So is a bind that was made of it; a new sandbox has a live one.
            ensure!(!used.sandbox.works("after")?, "a dead bind works");
            used.sandbox = Sandbox::start(stage, "main")?;
            ensure!(used.sandbox.works("anew")?);
            let new = taken(&mut used.client)?;
            ensure!(new["stale"] == false && new["device"] != device, "{new}");
            let before = leases.last().context("there is one")?;
            ensure!(new["epoch"].as_u64() > before["epoch"].as_u64(), "{before}, {new}");
            ensure!(new["inode"] == before["inode"] && new["path"] == before["path"]);
            for lease in &leases {
                // What it was taken with stays as it was.
                let mut expected = lease.clone();
                expected["stale"] = json!(true);
                let (now, expected) = (record(&used.check(lease)?), record(&expected));
                ensure!(now == expected, "{now} instead of {expected}");
            }
            ensure!(listed(stage, &leases[0])?["stale"] == true);
            ensure!(listed(stage, &new)?["stale"] == false);
            device = new["device"].clone();
            let status = used.client.get("Status", &json!({}))?;
            ensure!(status["device"] == device && status["epoch"] == new["epoch"], "{status}");
            leases.push(new);
            ensure!(
                stage.run_in("main", "cat \"$TMPDIR/deep/below/read\"").output()? == "read----"
            );
        }
        used.holder.finish()?.success()?;
        drop(used.sandbox);
        stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
        Ok(())
    })?;
    times.print();
    Ok(())
}

/// Everything is the same but for the device, which is another.
fn same_inodes(before: &Value, after: &Value) -> anyhow::Result<()> {
    let (before, after) = (before.as_object().context("facts")?, after.as_object());
    for (name, before) in before {
        let after = after.and_then(|after| after.get(name)).context("it's missing")?;
        match (before.as_array(), after.as_array()) {
            (Some(before), Some(after)) => {
                ensure!(before[0] != after[0], "{name}: the device is the same");
                ensure!(before[1..] == after[1..], "{name}: {before:?} and {after:?}");
            }
            _ => ensure!(before == after, "{name}: {before} and {after}"),
        }
    }
    Ok(())
}

#[test]
fn an_aborted_connection_is_followed_by_one_over_the_same_files() {
    as_root(NEEDS, |stage| {
        is_served_anew(stage, "abort", |daemon, _| detach::abort(stage, daemon))
    });
}

#[test]
fn a_forced_unmount_is_followed_by_a_mount_over_the_same_files() {
    as_root(NEEDS, |stage| {
        is_served_anew(stage, "umount -f", |daemon, used| {
            // It ends the connection in any case, and unmounts where nothing is held.
            let forced = detach::umount(stage, &["-f"], &daemon.mountpoint)?;
            ensure!(forced.status.success() || forced.stderr.contains("busy"), "{forced:?}");
            used.client.get("Describe", &json!({})).map(drop)
        })
    });
}

/// Whoever hammers on the mount finds it served in the end, each time.
#[test]
fn whatever_follows_at_once_is_mended() {
    as_root(NEEDS, |stage| {
        let mut times = Times::of("eight detachments in a row, until the mount serves");
        while_served(stage, |daemon| {
            let mut used = Used::begin(stage, daemon)?;
            for round in 0..ROUNDS {
                let start = Instant::now();
                for turn in 0..8 {
                    // It may be away at this very moment, or be dead already.
                    if (round + turn) % 3 == 0 {
                        drop(detach::abort(stage, daemon));
                    } else {
                        drop(detach::umount(stage, &["-l"], &daemon.mountpoint)?);
                    }
                }
                times.add(used.holder.serves_after(start)?)?;
                taken(&mut used.client)?;
                let mounts = holdfast_tests::mounts::fuse()?;
                ensure!(mounts.len() == 1, "{mounts:?}");
            }
            used.holder.finish()?.success()?;
            drop(used.sandbox);
            stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
            Ok(())
        })?;
        times.print();
        Ok(())
    });
}

/// Nobody who waits for a dead connection is kept waiting.
#[test]
fn what_waits_for_an_ended_connection_goes_on() {
    as_root(NEEDS, |stage| {
        while_served(stage, |daemon| {
            stage.holdfast().args(["session", "open", "main"]).output()?;
            for _ in 0..ROUNDS {
                // It asks for names that aren't cached, until that fails.
                let script = r#"
                    cd "$TMPDIR" && echo ready
                    while i=$((${i:-0} + 1)); error=$(stat "$i" 2>&1) || :
                        [[ $error == *'No such file'* ]]; do :; done
                    echo "$error"
                "#;
                let mut busy = stage.run_in("main", script).start()?;
                busy.line()?;
                detach::abort(stage, daemon)?;
                let printed = busy.finish()?.success()?;
                let dead = ["not connected", "connection abort"];
                ensure!(dead.iter().any(|error| printed.contains(error)), "{printed}");
            }
            Ok(())
        })
    });
}
