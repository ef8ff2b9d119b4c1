//! The daemon is killed, or its socket is taken away: nobody hangs, and the next one, or the same
//! one, is found again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use holdfast_tests::client::Client;
use holdfast_tests::command::{Program, Running};
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::detach::Older;
use holdfast_tests::holder::Holder;
use holdfast_tests::mounts;
use holdfast_tests::need::Need;
use holdfast_tests::processes::Process;
use holdfast_tests::stage::{Stage, as_each_user};
use holdfast_tests::times::Times;
use rustix::process::Signal;
use serde_json::{Value, json};

const ROUNDS: usize = 20;
/// What tells a hang from a wait.
const BOUND: Duration = Duration::from_secs(10);

/// The process that answers for the files.
fn worker(daemon: &Daemon) -> anyhow::Result<Process> {
    let keeper = daemon.id();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
    let worker = children.split_whitespace().next().context("the daemon has no worker")?;
    Process::of(worker.parse()?)
}

/// Kills a daemon in use; its mount is left, and nobody serves it.
fn killed(stage: &Stage) -> anyhow::Result<()> {
    let daemon = stage.serve()?;
    stage.holdfast().args(["session", "open", "main"]).output()?;
    let command = r#"cd "$TMPDIR" && exec 3> file && echo ready && read -r _ || :"#;
    let mut running = stage.run_in("main", command).start()?;
    running.line()?;
    let (worker, mountpoint) = (worker(&daemon)?, daemon.mountpoint.clone());
    let killed = daemon.end(Signal::KILL)?;
    ensure!(killed.signal() == Some(9), "{killed:?}");
    // While its worker goes, and afterwards.
    looked_at(stage)?;
    ensure!(worker.has_ended(BOUND), "the worker outlives its keeper");
    ensure!(mounts::fuse()?.iter().any(|mount| mount.path == mountpoint), "no mount is left");
    looked_at(stage)
}

/// What anybody does who knows nothing of it.
fn looked_at(stage: &Stage) -> anyhow::Result<()> {
    for program in [Program::new("df"), Program::new("ls").args(["-la", "/tmp"])] {
        // What they say of a dead mount is theirs; here it counts that they end.
        let finished = stage.program(program.deadline(BOUND)).run()?;
        ensure!(finished.signal().is_none(), "{finished:?}");
    }
    Ok(())
}

#[test]
fn after_a_kill_the_next_daemon_replaces_the_stale_mount() {
    as_each_user(&[Need::Fuse], |stage| {
        let what = format!("a stale mount of uid {}, until the next daemon serves", stage.user.uid);
        let mut times = Times::of(what);
        for _ in 0..ROUNDS {
            killed(stage)?;
            let start = Instant::now();
            while_served(stage, |daemon| {
                times.add(start.elapsed())?;
                ensure!(mounts::fuse()?.len() == 1 || !holdfast_tests::user::is_root());
                looked_at(stage)?;
                let good = stage.run(r#"echo good > "$TMPDIR/x"; cat "$TMPDIR/x""#).output()?;
                ensure!(good == "good\n" && daemon.mountpoint == stage.mountpoint(&stage.user));
                Ok(())
            })?;
        }
        times.print();
        Ok(())
    });
}

#[test]
fn of_two_daemons_at_a_stale_mount_one_serves() {
    as_each_user(&[Need::Fuse], |stage| {
        for _ in 0..10 {
            killed(stage)?;
            let start = || stage.holdfast().args(["serve", "--json"]).start();
            let mut both = [start()?, start()?];
            let said = both.each_mut().map(Running::line);
            let (mut serving, mut others) = (Vec::new(), 0);
            for (daemon, line) in both.into_iter().zip(said) {
                let answer: Value = serde_json::from_str(&line?)?;
                match answer["already"].as_bool() {
                    Some(false) => serving.push(daemon),
                    Some(true) => {
                        ensure!(daemon.finish()?.code() == Some(0));
                        others += 1;
                    }
                    None => bail!("{answer}"),
                }
            }
            ensure!(serving.len() == 1 && others == 1, "{} of them serve", serving.len());
            stage.run("true").output()?;
            stage.holdfast().args(["down", "--force"]).output()?;
            for daemon in serving {
                daemon.finish()?.success()?;
            }
            stage.nothing_is_left(&stage.user)?;
        }
        Ok(())
    });
}

/// Waits until clients find the daemon again.
fn found_again(stage: &Stage) -> anyhow::Result<Duration> {
    let start = Instant::now();
    loop {
        // Each question takes a process, which is pause enough.
        let status = stage.holdfast().args(["status", "--json"]).run()?;
        if status.status.success() {
            return Ok(start.elapsed());
        }
        ensure!(status.fault() == Some("daemon-unreachable"), "{status:?}");
        ensure!(start.elapsed() < BOUND, "after {BOUND:?}: {status:?}");
    }
}

/// The socket is lost so often in this way; it is bound anew each time.
fn is_bound_anew(what: &str, lose: fn(&Path, &Path) -> std::io::Result<()>) {
    as_each_user(&[Need::Fuse], |stage| {
        let mut times = Times::of(format_args!("{what}, until uid {} is let in", stage.user.uid));
        while_served(stage, |daemon| {
            stage.holdfast().args(["session", "open", "main"]).output()?;
            let directory = daemon.socket.parent().context("a directory")?.to_owned();
            let facts = |path: &Path| -> anyhow::Result<_> {
                use std::os::unix::fs::MetadataExt as _;
                let facts = path.symlink_metadata().with_context(|| path.display().to_string())?;
                Ok((facts.mode(), facts.uid(), facts.gid()))
            };
            let lock = lock_beside(&daemon.socket);
            let paths: [&Path; 3] = [&directory, &daemon.socket, &lock];
            let before = paths.map(facts).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
            let mut client = Client::new(&stage.user, &daemon.socket)?;
            for round in 0..ROUNDS {
                lose(&daemon.socket, &lock)?;
                times.add(found_again(stage)?)?;
                // As it was, for those who call anew and for those who called before.
                client.get("Check", &json!({ "session": "main" }))?;
                let mut anew = Client::new(&stage.user, &daemon.socket)?;
                anew.get("AcquireLease", &json!({ "session": "main", "hold": "connection" }))?;
                let good = stage.run_in("main", r#"echo good > "$TMPDIR/x"; cat "$TMPDIR/x""#);
                ensure!(good.output()? == "good\n");
                is_whole(stage, &paths)?;
                let after = paths.map(facts).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
                ensure!(after == before, "round {round}: {before:?}, {after:?}");
                let second = stage.holdfast().args(["serve", "--json"]).output()?;
                let second: Value = serde_json::from_str(&second)?;
                ensure!(second["already"] == true, "{second}");
            }
            stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
            Ok(())
        })?;
        times.print();
        Ok(())
    });
}

/// Waits until socket and lock are there.
fn is_whole(stage: &Stage, paths: &[&Path]) -> anyhow::Result<()> {
    let start = Instant::now();
    while !paths.iter().all(|path| path.exists()) {
        ensure!(start.elapsed() < BOUND, "missing: {paths:?}");
        found_again(stage)?;
    }
    Ok(())
}

fn lock_beside(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

#[test]
fn a_lost_socket_is_bound_anew() {
    is_bound_anew("socket removed", |socket, _| fs::remove_file(socket));
}

#[test]
fn a_moved_socket_is_bound_anew() {
    is_bound_anew("socket moved", |socket, _| {
        let moved = socket.with_file_name("moved");
        fs::rename(socket, &moved)?;
        fs::remove_file(moved)
    });
}

#[test]
fn a_lost_lock_is_made_anew() {
    is_bound_anew("lock removed", |_, lock| fs::remove_file(lock));
}

#[test]
fn a_lost_directory_of_the_socket_is_made_anew() {
    is_bound_anew("directory of the socket removed", |socket, _| {
        // At once: one that is emptied first is filled again meanwhile.
        let directory = socket.parent().unwrap_or(socket);
        let moved = directory.with_extension("moved");
        fs::rename(directory, &moved)?;
        fs::remove_dir_all(moved)
    });
}

#[test]
fn a_missing_mountpoint_is_made_again_as_it_was() {
    as_each_user(&[Need::Fuse, Need::Root, Need::Program("python3")], |stage| {
        for umask in ["0777", "0000"] {
            let uid = stage.user.uid;
            let mut times = Times::of(format_args!("mountpoint of uid {uid}, umask {umask}"));
            let mut older = Older::new(stage, &stage.mountpoint(&stage.user))?;
            let serve = Program::new("bash").args(["-c", r#"umask "$1"; exec "$0" serve --json"#]);
            let serve = stage.program(serve.arg(stage.path("bin/holdfast")).arg(umask));
            let daemon = Daemon::of(serve.log(stage.path("umask.log")))?;
            stage.holdfast().args(["session", "open", "main"]).output()?;
            let mut holder = Holder::start(stage, "main")?;
            let mode = if stage.user.is_root() { "755" } else { "700" };
            for round in 0..ROUNDS {
                let facts = older.does("stat -c %u:%g:%a:%F")?;
                ensure!(facts == format!("{uid}:{uid}:{mode}:directory"), "{round}: {facts}");
                let start = Instant::now();
                older.does("rmdir")?;
                times.add(holder.serves_after(start)?)?;
            }
            // The socket's directory is none that a umask changes, either.
            let socket = daemon.socket.parent().context("a directory")?;
            let moved = socket.with_extension("moved");
            fs::rename(socket, &moved)?;
            fs::remove_dir_all(moved)?;
            found_again(stage)?;
            let facts = Program::new("stat").args(["-c", "%u:%g:%a"]).arg(socket).output()?;
            ensure!(facts.trim() == format!("{uid}:{uid}:{mode}"), "{facts}");
            holder.finish()?.success()?;
            stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
            times.print();
            daemon.stop(stage)?;
        }
        Ok(())
    });
}
