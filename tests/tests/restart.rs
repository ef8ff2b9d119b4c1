//! A daemon that starts again over a directory: what was there before is there again, and what it
//! can't read it leaves alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::command::{Program, Running};
use holdfast_tests::daemon::Daemon;
use holdfast_tests::need::Need;
use holdfast_tests::processes::Process;
use holdfast_tests::stage::{Stage, as_each_user, as_root};
use holdfast_tests::{report, status};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use serde_json::Value;

/// A generous time for what nobody uses to go, and for a daemon to end.
const GOES: Duration = Duration::from_secs(10);
/// How often a daemon is killed in a row.
const ROUNDS: u32 = 20;

fn store(stage: &Stage) -> PathBuf {
    stage.path("work/store")
}

fn word(stage: &Stage) -> String {
    format!("dir:{}", store(stage).display())
}

fn serve(stage: &Stage) -> anyhow::Result<Daemon> {
    Daemon::start(stage, &stage.user, &["--store", &word(stage)])
        .with_context(|| format!("its log: {}", log(stage)))
}

fn log(stage: &Stage) -> String {
    let log = stage.path(&format!("daemon-{}.log", stage.user.uid));
    fs::read_to_string(log).unwrap_or_default()
}

/// The daemon is gone at once, and leaves what a crash leaves.
fn kill(daemon: Daemon) -> anyhow::Result<()> {
    let keeper = daemon.id();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
    let worker = children.split_whitespace().next().context("the daemon has no worker")?;
    let worker = Process::of(worker.parse()?)?;
    ensure!(daemon.end(Signal::KILL)?.signal() == Some(9));
    ensure!(worker.has_ended(GOES), "the worker outlives its keeper");
    Ok(())
}

/// A process that lives until it is dropped.
fn sleeper(stage: &Stage) -> anyhow::Result<Running> {
    let mut sleeper = stage.program(Program::bash("echo ready; read -r _ || :")).start()?;
    sleeper.line()?;
    Ok(sleeper)
}

fn ask(stage: &Stage, words: &[&str]) -> anyhow::Result<Value> {
    let answer = stage.holdfast().args(words).arg("--json").output()?;
    serde_json::from_str(&answer).with_context(|| answer.clone())
}

/// The fault that something is refused with.
fn refused(stage: &Stage, words: &[&str]) -> anyhow::Result<String> {
    let refused = stage.holdfast().args(words).arg("--json").run()?;
    ensure!(!refused.status.success(), "{refused:?}");
    let answer: Value = serde_json::from_str(refused.stdout.trim())?;
    answer["fault"]["code"].as_str().map(str::to_owned).context("no code")
}

/// All that clients are told, but for what passes with time.
fn told(stage: &Stage) -> anyhow::Result<(Value, Value)> {
    let mut sessions = ask(stage, &["session", "list"])?;
    let mut leases = ask(stage, &["lease", "list"])?;
    let all = [(&mut sessions, "sessions"), (&mut leases, "leases")];
    for (answer, name) in all {
        for one in answer[name].as_array_mut().context("no list")? {
            let one = one.as_object_mut().context("no object")?;
            // The mount is another one.
            let passes = ["age_ms", "idle_ms", "expires_in_ms", "device", "epoch", "stale"];
            passes.iter().for_each(|name| drop(one.remove(*name)));
            let owners = one.get_mut("owners").and_then(Value::as_array_mut);
            for owner in owners.into_iter().flatten() {
                owner.as_object_mut().context("no object")?.remove("age_ms");
            }
        }
    }
    Ok((sessions, leases))
}

/// Every file of every session, with all that `stat` tells of it but for the device and the times
/// of reading; what is in it; and its attributes.
const LOOK: &str = r#"
    cd "$1"
    stat -c '%n %F %i %a %u %g' . *
    for session in *; do
        find "$session" -mindepth 1 -printf '%p %y %i %m %U %G %n %s %T@ %l\n' | sort
        find "$session" -type f -exec sha256sum {} + | sort
    done
    /usr/bin/python3 - <<'END'
import os
for place, _, files in sorted(os.walk("."), key=str):
    for name in sorted(files):
        path = os.path.join(place, name)
        for attribute in os.listxattr(path, follow_symlinks=False):
            print(ascii(path), attribute, os.getxattr(path, attribute, follow_symlinks=False))
END
"#;

fn look(stage: &Stage) -> anyhow::Result<String> {
    let look = Program::bash(LOOK).arg("look").arg(stage.mountpoint(&stage.user));
    stage.program(look).output()
}

const FILL: &str = r#"
    cd "$1"
    mkdir -p a/b; echo one > a/b/file; ln a/b/file a/second; ln -s b/file a/soft
    mkfifo -m 0640 fifo; truncate -s 1M sparse; head -c 100000 /dev/urandom > noise
    chmod 0400 noise; /usr/bin/python3 -c 'import os; os.setxattr("a/b/file", "user.kept", b"yes")'; touch -d 2001-02-03 a
    mkdir -m 0700 $'\xff'; echo two > $'\xff/\n'
"#;

fn fill(stage: &Stage, directory: &str) -> anyhow::Result<()> {
    stage.program(Program::bash(FILL).arg("fill").arg(directory)).output().map(drop)
}

fn text(answer: &Value, name: &str) -> anyhow::Result<String> {
    answer[name].as_str().map(str::to_owned).with_context(|| format!("no {name} in {answer}"))
}

/// Takes a lease on a process; its id and path.
fn acquire(
    stage: &Stage,
    session: &str,
    kind: &str,
    on: &Running,
) -> anyhow::Result<(String, String)> {
    let pid = on.id().to_string();
    let words = ["lease", "acquire", session, "--kind", kind, "--pid", &pid];
    let lease = ask(stage, &words)?["lease"].take();
    Ok((text(&lease, "id")?, text(&lease, "path")?))
}

fn leases(stage: &Stage) -> anyhow::Result<Vec<String>> {
    let answer = ask(stage, &["lease", "list"])?;
    let leases = answer["leases"].as_array().context("no list")?;
    leases.iter().map(|lease| text(lease, "id")).collect()
}

#[test]
fn everything_is_back_after_the_daemon_was_killed() {
    as_each_user(&[Need::Fuse, Need::Program("python3")], |stage| {
        let mut daemon = serve(stage)?;
        let (owner, dying) = (sleeper(stage)?, sleeper(stage)?);
        let open = |name: &str, on: &Running| {
            let pid = on.id().to_string();
            ask(stage, &["session", "open", name, "--owner-pid", &pid])
        };
        open("main", &owner)?;
        let sealed = text(&open("sealed", &owner)?["session"], "id")?;
        open("dies", &dying)?;
        ask(stage, &["session", "open", "idle", "--linger", "1h"])?;
        let (old, directory) = acquire(stage, "main", "shared", &owner)?;
        fill(stage, &directory)?;
        ask(stage, &["session", "rotate", "main"])?;
        let (private, directory) = acquire(stage, "main", "private", &owner)?;
        fill(stage, &directory)?;
        let (of_dying, _) = acquire(stage, "main", "private", &dying)?;
        let (of_sealed, directory) = acquire(stage, "sealed", "shared", &owner)?;
        fill(stage, &directory)?;
        ask(stage, &["session", "close", "sealed"])?;
        let (_, directory) = acquire(stage, "idle", "shared", &dying)?;
        fill(stage, &directory)?;
        acquire(stage, "dies", "private", &dying)?;

        // The first time, a process dies while nobody serves.
        kill(daemon)?;
        drop(dying);
        daemon = serve(stage)?;
        status::becomes(stage, &[("sessions", 3), ("generations", 4)], GOES)?;
        let mut kept = [old.clone(), private.clone(), of_sealed.clone()];
        let mut there = leases(stage)?;
        kept.sort();
        there.sort();
        ensure!(there == kept, "{there:?} instead of {kept:?}");
        let answer = ask(stage, &["lease", "list"])?;
        let all = answer["leases"].as_array().context("no list")?;
        // They were taken on the first connection, and its handles are dead.
        ensure!(all.iter().all(|lease| lease["stale"] == true && lease["epoch"] == 1), "{answer}");
        ensure!(ask(stage, &["status"])?["epoch"] == 2);
        let ended = ask(stage, &["lease", "release", &of_dying])?;
        ensure!(ended["receipt"]["end"] == "process_gone", "{ended}");

        let (before, files) = (told(stage)?, look(stage)?);
        ensure!(files.contains("user.kept b'yes'"), "{files}");
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            kill(daemon)?;
            let begun = Instant::now();
            daemon = serve(stage)?;
            times.push(begun.elapsed());
            let after = told(stage)?;
            ensure!(after == before, "round {round}: {after:#?} instead of {before:#?}");
            let now = look(stage)?;
            ensure!(now == files, "round {round}: {now} instead of {files}");
        }
        times.sort();
        let (middle, last) = (times[times.len() / 2], times[times.len() - 1]);
        report::print(format!(
            "killed {ROUNDS} times: it serves again after {middle:?}, at most {last:?}"
        ));

        // It all goes on.
        ensure!(refused(stage, &["lease", "acquire", &sealed])? == "session-sealed");
        ensure!(refused(stage, &["session", "rotate", &sealed])? == "session-sealed");
        let reads = stage.run_in("main", r#"cat "$TMPDIR"/*/a/second; echo new > "$TMPDIR/new""#);
        ensure!(reads.output()? == "one\n");
        let idle = stage.run_in("idle", r#"cat "$TMPDIR/a/soft"; rm -r "$TMPDIR"/*"#);
        ensure!(idle.output()? == "one\n");
        ask(stage, &["session", "rotate", "main"])?;
        let fresh = stage.run_in("main", r#"ls -A "$TMPDIR"; basename "$TMPDIR""#).output()?;
        ensure!(fresh == "3\n", "{fresh}");
        ask(stage, &["lease", "release", &old])?;
        ask(stage, &["lease", "release", &private])?;
        // An owner that lives is watched again: with it goes what it held.
        drop(owner);
        status::becomes(stage, &[("sessions", 1), ("generations", 1)], GOES)?;
        ask(stage, &["session", "close", "idle"])?;
        status::becomes(stage, &[("sessions", 0), ("generations", 0)], GOES)
            .with_context(|| format!("its log: {}", log(stage)))?;
        let left: Vec<_> = files_in(&store(stage))?.into_keys().collect();
        ensure!(left == [Path::new("registry/header")], "{left:?}");
        stage.holdfast().arg("down").output()?;
        daemon.finish()?.success()?;
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn sessions_outlive_a_daemon_that_is_ended_in_good_order() {
    as_each_user(&[Need::Fuse], |stage| {
        let mut daemon = serve(stage)?;
        ask(stage, &["session", "open", "main"])?;
        stage.run_in("main", r#"echo kept > "$TMPDIR/file""#).output()?;
        ensure!(refused(stage, &["down"])? == "sessions-alive");
        for by_force in [true, false] {
            if by_force {
                stage.holdfast().args(["down", "--force"]).output()?;
                daemon.finish()?.success()?;
            } else {
                daemon.end(Signal::TERM)?.success()?;
            }
            stage.nothing_is_left(&stage.user)?;
            daemon = serve(stage)?;
            let read = stage.run_in("main", r#"cat "$TMPDIR/file""#).output()?;
            ensure!(read == "kept\n", "{read}");
        }
        ask(stage, &["session", "close", "main"])?;
        daemon.stop(stage)
    });
}

#[test]
fn after_a_reboot_sessions_that_linger_are_back_and_nobody_is_taken_for_alive() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = serve(stage)?;
        let owner = sleeper(stage)?;
        let pid = owner.id().to_string();
        ask(stage, &["session", "open", "owned", "--owner-pid", &pid])?;
        acquire(stage, "owned", "private", &owner)?;
        ask(stage, &["session", "open", "idle", "--linger", "1h"])?;
        acquire(stage, "idle", "private", &owner)?;
        stage.run_in("idle", r#"echo kept > "$TMPDIR/file""#).output()?;
        kill(daemon)?;
        // So is what another boot left.
        let header = store(stage).join("registry/header");
        let mut saved: Value = serde_json::from_slice(&fs::read(&header)?)?;
        saved["boot"] = "another one".into();
        fs::write(&header, saved.to_string())?;

        let daemon = serve(stage)?;
        status::becomes(stage, &[("sessions", 1), ("generations", 1), ("leases", 0)], GOES)?;
        let shown = ask(stage, &["session", "show", "idle"])?;
        let expires = shown["session"]["expires_in_ms"].as_u64().context("it doesn't linger")?;
        ensure!((3_500_000..=3_600_000).contains(&expires), "{expires}");
        let read = stage.run_in("idle", r#"cat "$TMPDIR/file""#).output()?;
        ensure!(read == "kept\n", "{read}");
        ask(stage, &["session", "close", "idle"])?;
        drop(owner);
        daemon.stop(stage)
    });
}

#[test]
fn what_can_t_be_read_is_refused_and_left_byte_for_byte() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = serve(stage)?;
        let opened = ask(stage, &["session", "open", "main"])?;
        let id = text(&opened["session"], "id")?;
        stage.run_in("main", r#"echo kept > "$TMPDIR/file""#).output()?;
        daemon.stop(stage)?;
        let good = files_in(&store(stage))?;
        let (header, session) = ("registry/header".to_owned(), format!("registry/{id}"));
        let newer = |text: &str| text.replace(r#""version":1"#, r#""version":2"#);
        type Change<'a> = &'a dyn Fn(&str) -> String;
        let cases: [(&str, &str, Change<'_>); 5] = [
            ("saved-version-unknown", &header, &newer),
            ("saved-version-unknown", &session, &newer),
            ("saved-unreadable", &header, &|_| "garbled".to_owned()),
            ("saved-unreadable", &session, &|text| text[..text.len() / 2].to_owned()),
            ("saved-unreadable", &session, &|text| text.replace("sealed\":false", "sealed\":true")),
        ];
        for (code, name, change) in cases {
            let path = store(stage).join(name);
            let text = fs::read_to_string(&path)?;
            fs::write(&path, change(&text))?;
            let before = files_in(&store(stage))?;
            let fault = refused(stage, &["serve", "--store", &word(stage)])?;
            ensure!(fault == code, "{name}: {fault} instead of {code}");
            ensure!(files_in(&store(stage))? == before, "{name}: something has changed");
            stage.nothing_is_left(&stage.user)?;
            fs::write(&path, text)?;
        }
        // As it was, it is good.
        let daemon = serve(stage)?;
        let read = stage.run_in("main", r#"cat "$TMPDIR/file""#).output()?;
        ensure!(read == "kept\n", "{read}");
        ensure!(files_in(&store(stage))?.len() == good.len());
        ask(stage, &["session", "close", "main"])?;
        daemon.stop(stage)
    });
}

#[test]
fn a_generation_that_is_gone_is_told_and_not_made_up_for() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = serve(stage)?;
        let owner = sleeper(stage)?;
        ask(stage, &["session", "open", "main"])?;
        let (lease, _) = acquire(stage, "main", "private", &owner)?;
        kill(daemon)?;
        let generation = store(stage).join("1");
        ensure!(generation.is_dir(), "the first generation has another name");
        fs::rename(&generation, store(stage).join("elsewhere"))?;
        // What no session has is left alone.
        fs::rename(store(stage).join("elsewhere"), store(stage).join("77"))?;

        let daemon = serve(stage)?;
        ensure!(log(stage).contains("a generation is lost"), "{}", log(stage));
        ensure!(log(stage).contains("belong to no session"), "{}", log(stage));
        ensure!(leases(stage)?.is_empty());
        let answer = ask(stage, &["lease", "release", &lease])?;
        ensure!(answer["receipt"]["end"] == "directory_gone", "{answer}");
        ensure!(ask(stage, &["session", "show", "main"])?["session"]["current"].is_null());
        let fresh = stage.run_in("main", r#"ls -A "$TMPDIR"; basename "$TMPDIR""#).output()?;
        ensure!(fresh == "2\n", "{fresh}");
        ensure!(store(stage).join("77/tree").is_dir() && store(stage).join("78").is_dir());
        ask(stage, &["session", "close", "main"])?;
        drop(owner);
        daemon.stop(stage)
    });
}

#[test]
fn on_a_full_disk_nothing_is_given_that_a_restart_would_not_bring_back() {
    as_root(&[Need::Fuse], |stage| {
        let work = stage.path("work");
        let options = Some(c"size=1m,mode=1777");
        rustix::mount::mount("tmpfs", &work, "tmpfs", MountFlags::NOSUID, options)?;
        let daemon = serve(stage)?;
        let owner = sleeper(stage)?;
        ask(stage, &["session", "open", "main"])?;
        let (lease, directory) = acquire(stage, "main", "shared", &owner)?;
        let (other, _) = acquire(stage, "main", "private", &owner)?;
        let fill = Program::bash(r#"! cat /dev/zero > "$1/file" 2>/dev/null"#).arg("fill");
        stage.program(fill.arg(&directory)).output()?;
        let before = told(stage)?;
        let pid = owner.id().to_string();
        for refused_now in [
            &["session", "open", "second"] as &[&str],
            &["session", "open", "main", "--owner-pid", &pid],
            &["lease", "acquire", "main", "--pid", &pid],
            &["lease", "acquire", "main", "--kind", "private", "--pid", &pid],
        ] {
            ensure!(refused(stage, refused_now)? == "store-full", "{refused_now:?}");
        }
        ensure!(told(stage)? == before, "what was refused has left something");
        let ended = ask(stage, &["lease", "release", &other])?;
        ensure!(ended["receipt"]["end"] == "released", "{ended}");
        // The lease is there still, and with it the way to make room.
        stage.program(Program::new("rm").arg(format!("{directory}/file"))).output()?;
        acquire(stage, "main", "private", &owner)?;
        ask(stage, &["session", "open", "second"])?;
        let before = told(stage)?;
        kill(daemon)?;

        let daemon = serve(stage)?;
        ensure!(told(stage)? == before, "{:#?} instead of {before:#?}", told(stage)?);
        ask(stage, &["lease", "release", &lease])?;
        stage.holdfast().args(["down", "--force"]).output()?;
        daemon.finish()?.success()?;
        drop(owner);
        stage.nothing_is_left(&stage.user)?;
        rustix::mount::unmount(&work, UnmountFlags::DETACH)?;
        Ok(())
    });
}

/// Every file below a directory, with its mode and what is in it.
fn files_in(directory: &Path) -> anyhow::Result<BTreeMap<PathBuf, (u32, Vec<u8>)>> {
    let mut files = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            let metadata = path.symlink_metadata()?;
            if metadata.is_dir() {
                left.push(path);
            } else if metadata.is_file() {
                let within = path.strip_prefix(directory)?.to_owned();
                files.insert(within, (metadata.permissions().mode(), fs::read(&path)?));
            }
        }
    }
    Ok(files)
}
