//! What has ended is swept away, and never anything that somebody leases or uses.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::command::Running;
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::need::Need;
use holdfast_tests::processes::Process;
use holdfast_tests::stage::{Stage, as_each_user};
use holdfast_tests::status;
use rustix::process::Signal;
use serde_json::Value;

/// A generous time for what nobody uses to go, and for a daemon to end.
const GOES: Duration = Duration::from_secs(20);

fn ask(stage: &Stage, words: &[&str]) -> anyhow::Result<Value> {
    let answer = stage.holdfast().args(words).arg("--json").output()?;
    serde_json::from_str(&answer).with_context(|| answer.clone())
}

fn list(answer: &Value, name: &str) -> anyhow::Result<Vec<Value>> {
    answer[name].as_array().cloned().with_context(|| format!("no {name} in {answer}"))
}

fn sweep(stage: &Stage, words: &[&str]) -> anyhow::Result<Vec<Value>> {
    list(&ask(stage, &[&["sweep"], words].concat())?, "leftovers")
}

fn of_lease<'a>(found: &'a [Value], path: &str) -> Option<&'a Value> {
    found.iter().find(|left| left["path"] == path)
}

/// A command in a private lease that says where it is and goes on until it is told to end.
fn private(stage: &Stage, script: &str) -> anyhow::Result<(Running, PathBuf)> {
    let arguments =
        ["run", "--session", "main", "--lease", "private", "--", "bash", "-euc", script];
    let mut running = stage.holdfast().args(arguments).start()?;
    let lease = PathBuf::from(running.line()?);
    Ok((running, lease))
}

const FILL: &str = r#"
    cd "$TMPDIR"; mkdir -p a/b; head -c 100000 /dev/zero > a/b/file; mkfifo fifo; ln -s / link
    mkdir closed; touch closed/x; chmod 0 closed; [[ ! -e absent && ! -e a/absent ]]
"#;

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("not UTF-8")
}

#[test]
fn directories_of_ended_leases_go_unless_somebody_uses_them() {
    as_each_user(&[Need::Fuse, Need::Program("setsid")], |stage| {
        while_served(stage, |_| {
            stage.holdfast().args(["session", "open", "main"]).output()?;
            let lives = format!(r#"{FILL} echo "$TMPDIR"; read -r _; cat a/b/file | wc -c"#);
            let (mut live, living) = private(stage, &lives)?;
            let (ended, end) = private(stage, &format!(r#"{FILL} echo "$TMPDIR""#))?;
            ended.finish()?.success()?;
            // The leased process ends; its child has a working directory there, and nothing open.
            let leaves = format!(
                r#"{FILL} exec 3<&0; setsid bash -c 'cd a; echo "$TMPDIR"; read -r _ <&3
                   echo more > b/more; cat b/more; cd /; echo out; read -r _ <&3' &"#
            );
            let (mut child, used) = private(stage, &leaves)?;
            status::becomes(stage, &[("leases", 1)], GOES)?;

            let plan = sweep(stage, &["--dry-run"])?;
            let left = of_lease(&plan, text(&end)?).context("not in the plan")?;
            ensure!(left["kind"] == "ended_lease" && left["busy"] == false, "{left}");
            ensure!(left["bytes"].as_u64() >= Some(100_000) && left["inodes"] == 8, "{left}");
            ensure!(left["age_ms"].is_u64() && left["swept"] == false, "{left}");
            let left = of_lease(&plan, text(&used)?).context("not shown")?;
            ensure!(left["busy"] == true, "{left}");
            ensure!(
                of_lease(&plan, text(&living)?).is_none(),
                "what is leased is in a plan: {plan:?}"
            );
            let is_there = |path: &Path, yes: bool| {
                let test = format!(
                    r#"[[ -e {0} && {yes} == true || ! -e {0} && {yes} == false ]]"#,
                    path.display()
                );
                stage.run_in("main", &test).output().map(drop)
            };
            is_there(&end, true)?;

            let swept = sweep(stage, &[])?;
            let is_swept = |path: &Path| {
                Ok::<_, anyhow::Error>(
                    of_lease(&swept, text(path)?).is_some_and(|left| left["swept"] == true),
                )
            };
            // The look of before may be remembered by the kernel; nobody uses it.
            ensure!(is_swept(&end)? && !is_swept(&used)?, "{swept:?}");
            is_there(&end, false)?;
            is_there(&used, true)?;
            is_there(&living, true)?;

            // What was in use is whole, and goes when it is let go.
            child.say("go on")?;
            ensure!(child.line()? == "more" && child.line()? == "out");
            let until = Instant::now() + GOES;
            while !sweep(stage, &[])?.is_empty() {
                ensure!(Instant::now() < until, "{:?}", sweep(stage, &["--dry-run"])?);
            }
            is_there(&used, false)?;
            is_there(&living, true)?;
            live.say("end")?;
            ensure!(live.line()? == "100000");
            for mut running in [live, child] {
                let _ = running.say("end");
                running.finish()?.success()?;
            }
            stage.holdfast().args(["session", "close", "main"]).output()?;
            status::becomes(stage, &[("sessions", 0), ("generations", 0)], GOES)
        })
    });
}

#[test]
fn what_waits_is_shown_and_told_and_never_swept() {
    as_each_user(&[Need::Fuse, Need::Program("setsid")], |stage| {
        while_served(stage, |_| {
            stage.holdfast().args(["session", "open", "main"]).output()?;
            let mut watching = stage.holdfast().args(["watch", "--all", "--json"]).start()?;
            let script = r#"
                echo data > "$TMPDIR/file"; exec 3<&0
                setsid bash -c 'exec 4<"$TMPDIR/file"; echo held; read -r _ <&3; cat <&4' &
            "#;
            let mut holder = stage.run_in("main", script).start()?;
            ensure!(holder.line()? == "held");
            status::becomes(stage, &[("leases", 0)], GOES)?;
            stage.holdfast().args(["session", "rotate", "main"]).output()?;
            // Whoever waits for it is told, without asking.
            let mut next = |kind: &str| loop {
                let event: Value = serde_json::from_str(&watching.line()?)?;
                if event["kind"] == kind {
                    return Ok::<_, anyhow::Error>(event);
                }
            };
            let blocked = next("discard_blocked")?;
            let place = blocked["path"].as_str().context("no path")?.to_owned();
            let found = sweep(stage, &[])?;
            ensure!(found.len() == 1, "{found:?}");
            let left = &found[0];
            ensure!(left["kind"] == "retired_generation" && left["busy"] == true, "{left}");
            ensure!(left["path"].as_str().is_some_and(|path| path.ends_with(&place)), "{left}");
            ensure!(left["bytes"] == 4096 && left["swept"] == false, "{left}");
            holder.say("end")?;
            ensure!(holder.line()? == "data");
            holder.finish()?.success()?;
            ensure!(next("discarded")?["path"] == place.as_str());
            ensure!(sweep(stage, &[])?.is_empty());
            stage.holdfast().args(["session", "close", "main"]).output()?;
            status::becomes(stage, &[("sessions", 0)], GOES)?;
            drop(watching);
            Ok(())
        })
    });
}

#[test]
fn generations_that_no_session_has_are_swept_from_a_directory() {
    as_each_user(&[Need::Fuse], |stage| {
        let store = stage.path("work/store");
        let word = format!("dir:{}", store.display());
        let serve = || Daemon::start(stage, &stage.user, &["--store", &word]);
        let daemon = serve()?;
        stage.holdfast().args(["session", "open", "kept"]).output()?;
        let fill = |name| stage.run_in(name, &format!(r#"{FILL} echo "$TMPDIR""#)).output();
        let kept = fill("kept")?;
        let generations = || -> anyhow::Result<Vec<u32>> {
            let names = fs::read_dir(&store)?.map(|entry| Ok(entry?.file_name()));
            let names = names.collect::<anyhow::Result<Vec<_>>>()?;
            let mut keys: Vec<u32> =
                names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
            keys.sort_unstable();
            Ok(keys)
        };
        let claimed = generations()?;
        ensure!(claimed.len() == 1);
        stage.holdfast().args(["down", "--force"]).output()?;
        daemon.finish()?.success()?;
        // What a daemon leaves that was ended while it discarded.
        let left = claimed[0] + 7;
        let owner = stage.user.uid;
        for path in [store.join(left.to_string()), store.join(format!("{left}/tree"))] {
            fs::create_dir(&path)?;
            std::os::unix::fs::chown(&path, Some(owner), None)?;
        }
        fs::write(store.join(format!("{left}/tree/file")), [0; 10_000])?;
        let daemon = serve()?;
        let plan = sweep(stage, &["--dry-run"])?;
        ensure!(plan.len() == 1, "{plan:?}");
        ensure!(plan[0]["kind"] == "unclaimed_generation" && plan[0]["key"] == left, "{plan:?}");
        ensure!(plan[0]["bytes"].as_u64() >= Some(10_000) && plan[0]["uid"] == owner, "{plan:?}");
        ensure!(generations()? == [claimed[0], left]);
        ensure!(sweep(stage, &[])?[0]["swept"] == true);
        ensure!(generations()? == claimed && sweep(stage, &[])?.is_empty());
        let whole = r#"[[ $(wc -c < "$TMPDIR/a/b/file") == 100000 ]]; echo "$TMPDIR""#;
        ensure!(stage.run_in("kept", whole).output()? == kept);
        stage.holdfast().args(["session", "close", "kept"]).output()?;
        status::becomes(stage, &[("sessions", 0)], GOES)?;
        daemon.stop(stage)
    });
}

#[test]
fn what_a_killed_daemon_leaves_at_its_place_goes_without_a_daemon() {
    as_each_user(&[Need::Fuse], |stage| {
        let remnants = |words: &[&str]| -> anyhow::Result<Vec<Value>> {
            list(&ask(stage, &[&["sweep"], words].concat())?, "remnants")
        };
        let daemon = stage.serve()?;
        ensure!(remnants(&[])?.is_empty(), "what is served is left alone");
        let keeper = daemon.id();
        let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
        let worker = children.split_whitespace().next().context("the daemon has no worker")?;
        let worker = Process::of(worker.parse()?)?;
        let (mountpoint, socket) = (daemon.mountpoint.clone(), daemon.socket.clone());
        ensure!(daemon.end(Signal::KILL)?.signal() == Some(9));
        ensure!(worker.has_ended(GOES), "the worker outlives its keeper");

        let plan = remnants(&["--dry-run"])?;
        let kinds: Vec<_> = plan.iter().map(|left| (&left["kind"], &left["path"])).collect();
        let (mount, place) = (Value::from("stale_mount"), Value::from(text(&mountpoint)?));
        let (listens, at) = (Value::from("stale_socket"), Value::from(text(&socket)?));
        ensure!(kinds == [(&mount, &place), (&listens, &at)], "{plan:?}");
        ensure!(socket.symlink_metadata().is_ok(), "a look has changed something");
        let swept = remnants(&[])?;
        ensure!(swept.len() == 2 && swept.iter().all(|left| left["swept"] == true), "{swept:?}");
        ensure!(remnants(&[])?.is_empty());
        stage.nothing_is_left(&stage.user)
    });
}
