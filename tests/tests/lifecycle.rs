//! How a daemon comes and goes: by hand, by itself, twice, and by accident.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_tests::command::Program;
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::need::Need;
use holdfast_tests::processes::{self, Process};
use holdfast_tests::stage::{Stage, as_each_user, as_root};
use holdfast_tests::user::{User, is_root};
use holdfast_tests::{mounts, need};
use rustix::process::Signal;

/// A generous time for a daemon to leave by itself.
const LEAVES: Duration = Duration::from_secs(60);

#[test]
fn a_stopped_daemon_leaves_nothing() {
    as_each_user(&[Need::Fuse], |stage| {
        for signal in [Signal::TERM, Signal::INT] {
            let daemon = stage.serve()?;
            ensure!(mounts::fuse()?.iter().any(|mount| mount.path == daemon.mountpoint));
            ensure!(daemon.mountpoint == stage.mountpoint(&stage.user), "{daemon:?}");
            ensure!(daemon.socket == stage.socket(&stage.user), "{daemon:?}");
            stage.run(r#"echo x > "$TMPDIR/x""#).output()?;
            daemon.end(signal)?.success()?;
            stage.nothing_is_left(&stage.user)?;
        }
        let daemon = stage.serve()?;
        stage.holdfast().arg("down").output()?;
        daemon.finish()?.success()?;
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn what_was_there_before_stays_when_the_daemon_stops() {
    as_each_user(&[Need::Fuse], |stage| {
        let mode = if stage.user.is_root() { "755" } else { "700" };
        let make = Program::new("mkdir").args(["-m", mode]).arg(stage.mountpoint(&stage.user));
        stage.program(make).output()?;
        let daemon = stage.serve()?;
        daemon.end(Signal::TERM)?.success()?;
        let mountpoint = stage.mountpoint(&stage.user);
        let empty = stage.program(Program::new("rmdir").arg(&mountpoint));
        empty.output().context("a directory that was there before is gone, or not empty")?;
        Ok(())
    });
}

#[test]
fn a_second_daemon_says_that_one_serves() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let before = mounts::list()?;
            for _ in 0..3 {
                let second = stage.holdfast().args(["serve", "--json"]).output()?;
                let second: serde_json::Value = serde_json::from_str(&second)?;
                ensure!(second["already"] == true, "{second}");
                ensure!(second["mountpoint"].as_str() == daemon.mountpoint.to_str(), "{second}");
            }
            ensure!(mounts::list()? == before);
            stage.run("true").output()?;
            Ok(())
        })
    });
}

#[test]
fn of_several_daemons_that_start_at_once_one_serves() {
    as_each_user(&[Need::Fuse], |stage| {
        for _ in 0..5 {
            let start = || stage.holdfast().args(["serve", "--json"]).start();
            let starting = (0..3).map(|_| start()).collect::<anyhow::Result<Vec<_>>>()?;
            let mut serving = Vec::new();
            for mut daemon in starting {
                let line = daemon.line()?;
                let answer: serde_json::Value = serde_json::from_str(&line)?;
                if answer["already"] == true {
                    daemon.finish()?.success()?;
                } else {
                    ensure!(answer["already"] == false, "{answer}");
                    serving.push(daemon);
                }
            }
            ensure!(serving.len() == 1, "{} of them serve", serving.len());
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

#[test]
fn down_ends_no_live_work() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = stage.serve()?;
        let hold = r#"echo ready; read -r _; echo "$TMPDIR" > "$TMPDIR/file"; cat "$TMPDIR/file""#;
        let mut running = stage.run(hold).start()?;
        running.line()?;
        let refused = stage.holdfast().arg("down").run()?;
        ensure!(!refused.status.success(), "{refused:?}");
        ensure!(refused.fault() == Some("sessions-alive"), "{refused:?}");

        let drain = stage.holdfast().args(["down", "--drain"]).start()?;
        running.say("go on")?;
        running.finish()?.success()?;
        drain.finish()?.success()?;
        daemon.finish()?.success()?;
        stage.nothing_is_left(&stage.user)?;

        let daemon = stage.serve()?;
        let mut running = stage.run(hold).start()?;
        running.line()?;
        stage.holdfast().args(["down", "--force"]).output()?;
        daemon.finish()?.success()?;
        drop(running);
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn run_starts_a_daemon_that_leaves_when_idle() {
    as_each_user(&[Need::Fuse], |stage| {
        let home = stage.make_directory("home", 0o777)?;
        let run = |script: &str| {
            stage.run(script).env("HOLDFAST_IDLE_EXIT", "1s").env("HOME", &home).output()
        };
        let first = run(r#"echo "$TMPDIR"; ps -o sid= -p $$"#)?;
        let at = stage.mountpoint(&stage.user).display().to_string();
        ensure!(first.starts_with(&at), "{first}");
        if is_root() {
            let daemon = processes::in_this_namespace()?;
            ensure!(!daemon.is_empty(), "no daemon was started");
            for process in &daemon {
                ensure!(process.has_ended(LEAVES), "{} doesn't leave", process.name);
            }
        } else {
            stage.holdfast().args(["down", "--force"]).output()?;
        }
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn a_daemon_in_use_does_not_leave() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = Daemon::start(stage, &stage.user, &["--idle-exit", "300ms"])?;
        // Longer than the idle time, by the clock that the daemon has too.
        let script = r#"
            exec 3> "$TMPDIR/file"
            end=$((SECONDS + 3))
            while ((SECONDS < end)); do echo "still here" >&3; read -r -t 0.2 _ <> <(:) || :; done
            stat "$TMPDIR/file" >/dev/null && echo good
        "#;
        ensure!(stage.run(script).output()?.ends_with("good\n"));
        daemon.finish()?.success()?;
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn a_command_outlives_the_shell_that_started_the_daemon() {
    as_root(&[Need::Fuse, Need::Program("setsid")], |stage| {
        // The daemon is in a session of its own: the end of the caller's doesn't reach it.
        let script = r#""$0" run -- true; kill -HUP 0; sleep 60"#;
        let caller = Program::new("setsid").args(["--wait", "bash", "-c", script]);
        drop(stage.program(caller.arg(stage.path("bin/holdfast"))).run()?);
        let status = stage.holdfast().args(["status", "--json"]).env("HOLDFAST_MEMBER", "x");
        status.output().context("the daemon went with its caller")?;
        stage.holdfast().arg("down").output()?;
        for process in processes::in_this_namespace()? {
            ensure!(process.has_ended(LEAVES), "{} is left", process.name);
        }
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn a_dead_workers_mount_is_taken_away() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = stage.serve()?;
        stage.run("true").output()?;
        worker(&daemon)?.kill();
        let finished = daemon.finish()?;
        ensure!(!finished.status.success(), "{finished:?}");
        stage.nothing_is_left(&stage.user)?;
        while_served(stage, |_| stage.run("true").output().map(drop))
    });
}

#[test]
fn a_stale_mount_of_our_own_is_replaced() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = stage.serve()?;
        let worker = worker(&daemon)?;
        let killed = daemon.end(Signal::KILL)?;
        ensure!(killed.signal() == Some(9));
        worker.kill();
        ensure!(worker.has_ended(LEAVES), "the worker outlives its keeper");
        let mountpoint = stage.mountpoint(&stage.user);
        ensure!(mounts::fuse()?.iter().any(|mount| mount.path == mountpoint));
        while_served(stage, |_| stage.run("true").output().map(drop))
    });
}

#[test]
fn two_users_have_a_daemon_each() {
    as_root(&[Need::Fuse], |stage| {
        if need::find("fusermount3").is_none() {
            need::skip("fusermount3 is missing (Debian's package fuse3)");
            return Ok(());
        }
        let one = stage.for_user(User::ordinary());
        let other = stage.for_user(User::other().context("root runs this")?);
        while_served(&one, |first| {
            while_served(&other, |second| {
                ensure!(first.mountpoint != second.mountpoint);
                for stage in [&one, &other] {
                    let printed = stage.run(r#"stat -c %u "$TMPDIR""#).output()?;
                    ensure!(printed.trim() == stage.user.uid.to_string());
                }
                Ok(())
            })
        })
    });
}

fn worker(daemon: &Daemon) -> anyhow::Result<Process> {
    Process::of(daemon.worker()?)
}

/// Everything that a daemon of an earlier state left is gone before a stage is used.
#[test]
fn a_stage_begins_empty() {
    as_each_user(&[], |stage: &Stage| {
        stage.nothing_is_left(&stage.user)?;
        ensure!(!is_root() || mounts::fuse()?.is_empty());
        Ok(())
    });
}

#[test]
fn a_daemon_outlives_whoever_reads_its_log() {
    as_each_user(&[Need::Fuse], |stage| {
        // Its reader takes the first line and leaves; the second pipe is never read.
        for reader in ["head -n 1 > /dev/null", "sleep 60"] {
            let script = format!(
                r#"
                mkfifo "$HOME/log"; {reader} < "$HOME/log" & reader=$!
                "$1" serve --json 2> "$HOME/log" > "$HOME/served" & daemon=$!
                until "$1" status > /dev/null 2>&1; do kill -0 "$daemon"; done
                "$1" session open chat > /dev/null
                for i in {{1..40}}; do
                  "$1" run --session chat -- sh -c 'rmdir "$TMPDIR"' 2> /dev/null && exit 1
                done
                "$1" check chat > /dev/null
                "$1" down --force && wait "$daemon"
                kill "$reader" 2> /dev/null || true; wait "$reader" || true
                rm "$HOME/log"
                "#
            );
            let holdfast = stage.path("bin/holdfast");
            let program = Program::new("bash").args(["-euc", &script, "bash"]).arg(holdfast);
            let program = program.env("HOLDFAST_LOG", "trace");
            stage.program(program).output()?;
            stage.nothing_is_left(&stage.user)?;
        }
        Ok(())
    });
}
