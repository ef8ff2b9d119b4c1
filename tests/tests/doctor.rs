//! What is said of the host: nothing that is fine is a problem, each problem has its code and its
//! remedy, and nothing is changed by looking.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::command::{Finished, Program};
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::mounts;
use holdfast_tests::need::Need;
use holdfast_tests::processes::Process;
use holdfast_tests::stage::{Stage, as_each_user, as_ordinary_user, as_root};
use holdfast_tests::user::User;
use rustix::mount::MountFlags;
use rustix::process::Signal;
use serde_json::Value;

/// The limit for a check is 15 s, they run at the same time, and all around takes no time.
const GENEROUS: Duration = Duration::from_secs(50);

/// What the doctor says.
struct Diagnosis(Value);

impl Diagnosis {
    fn of(program: Program) -> anyhow::Result<Self> {
        let finished: Finished = program.args(["doctor", "--json"]).run()?;
        let said: Value = serde_json::from_str(finished.stdout.trim())
            .with_context(|| format!("{finished:?}"))?;
        let expected = if said["problems"] == 0 { 0 } else { 1 };
        ensure!(finished.code() == Some(expected), "{finished:?}");
        for check in said["checks"].as_array().context("checks")? {
            let bad = check["verdict"] == "problem" || check["verdict"] == "warning";
            ensure!(!bad || check["remedy"].is_string(), "no remedy: {check}");
            ensure!(check["found"].as_str().is_some_and(|found| !found.is_empty()), "{check}");
        }
        Ok(Self(said))
    }

    fn check(&self, name: &str) -> anyhow::Result<&Value> {
        let checks = self.0["checks"].as_array().context("checks")?;
        checks.iter().find(|check| check["name"] == name).with_context(|| format!("no {name}"))
    }

    fn has(&self, name: &str, verdict: &str) -> anyhow::Result<&Value> {
        let check = self.check(name)?;
        ensure!(check["verdict"] == verdict, "{verdict} is expected: {check}");
        Ok(check)
    }

    fn is_healthy(&self) -> anyhow::Result<()> {
        ensure!(self.0["problems"] == 0, "{}", self.0);
        Ok(())
    }

    /// The one problem that there is.
    fn has_problem(&self, name: &str, code: &str) -> anyhow::Result<()> {
        let check = self.has(name, "problem")?;
        ensure!(check["code"] == code, "{code} is expected: {check}");
        ensure!(self.0["problems"] == 1, "{}", self.0);
        Ok(())
    }
}

fn doctor(stage: &Stage) -> anyhow::Result<Diagnosis> {
    Diagnosis::of(stage.holdfast())
}

#[test]
fn a_host_that_is_fit_has_no_problem_and_stays_as_it_was() {
    as_each_user(&[Need::Fuse], |stage| {
        let before = mounts::list()?;
        let told = doctor(stage)?;
        told.is_healthy()?;
        told.has("fuse-device", "ok")?;
        told.has("mountpoint", "ok")?;
        told.has("store", "ok")?;
        told.has("daemon", "skipped")?;
        let privileges = told.check("privileges")?;
        if stage.user.is_root() {
            ensure!(privileges["verdict"] == "ok" && privileges["costs"].is_null());
            ensure!(told.check("fuse-features")?["verdict"] != "skipped");
        } else {
            told.has("fusermount3", "ok")?;
            told.has("user-namespaces", "ok")?;
            let costs = privileges["costs"].to_string();
            ensure!(costs.contains("same-mount-back") && costs.contains("other-users"), "{costs}");
        }
        ensure!(mounts::list()? == before);
        stage.nothing_is_left(&stage.user)?;
        let words = stage.holdfast().arg("doctor").output()?;
        ensure!(words.lines().count() >= 15, "{words}");
        ensure!(words.lines().last().is_some_and(|line| line.starts_with("no problems, ")));
        Ok(())
    });
}

#[test]
fn a_running_daemon_is_asked() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let told = doctor(stage)?;
            told.is_healthy()?;
            let answer = told.has("daemon", "ok")?;
            let mountpoint = daemon.mountpoint.display().to_string();
            ensure!(answer["found"].as_str().is_some_and(|found| found.contains(&mountpoint)));
            told.has("mountpoint", "ok")?;
            let promises = told.check("promises")?;
            let lost = promises["costs"].to_string();
            let of_its_own = !stage.user.is_root();
            ensure!(lost.contains("same-mount-back") == of_its_own, "{promises}");
            let found = promises["found"].as_str().unwrap_or_default();
            ensure!(found.contains("a new connection over the same store") == of_its_own);
            Ok(())
        })
    });
}

#[test]
fn a_user_whom_the_system_serves_needs_nothing_of_their_own() {
    as_root(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let other = stage.for_user(User::ordinary());
            let told = Diagnosis::of(other.holdfast().env("PATH", "/nowhere"))?;
            told.is_healthy()?;
            for name in ["privileges", "fusermount3", "user-namespaces"] {
                told.has(name, "skipped")?;
            }
            told.has("mountpoint", "ok")?;
            Ok(())
        })
    });
}

#[test]
fn what_stands_at_the_mountpoint_is_named_and_left_alone() {
    as_each_user(&[Need::Fuse], |stage| {
        let place = stage.mountpoint(&stage.user);
        let make = |script: &str| {
            let script = Program::bash(script).env("PLACE", &place);
            stage.program(script).env("PLACE", &place).output()
        };
        // Type, mode, owner, times and the names in it.
        let facts = || make(r#"ls -ldn --time-style=full-iso "$PLACE"; ls -An "$PLACE/" || :"#);
        for (script, code) in [
            (r#"ln -s /nowhere "$PLACE""#, "mountpoint-symlink"),
            (r#"touch "$PLACE""#, "mountpoint-not-directory"),
            (r#"mkfifo "$PLACE""#, "mountpoint-not-directory"),
            (r#"mkdir -m 0777 "$PLACE""#, "mountpoint-wrong-mode"),
            (r#"mkdir -m "$MODE" "$PLACE"; touch "$PLACE/file""#, "mountpoint-not-empty"),
        ] {
            let mode = if stage.user.is_root() { "755" } else { "700" };
            make(&format!("MODE={mode}\n{script}"))?;
            let before = facts()?;
            doctor(stage)?.has_problem("mountpoint", code)?;
            ensure!(facts()? == before, "{code}");
            make(r#"rm -r "$PLACE""#)?;
        }
        doctor(stage)?.is_healthy()
    });
}

#[test]
fn what_replaces_the_mountpoint_of_a_running_daemon_is_named() {
    as_root(&[Need::Fuse], |stage| {
        let daemon = stage.serve()?;
        let place = stage.mountpoint(&stage.user);
        let replace =
            Program::bash(r#"umount -l "$PLACE" && rmdir "$PLACE" && ln -s /nowhere "$PLACE""#);
        // Else it would be quicker than the script, and put its mount back.
        let keeper = Process::of(daemon.id())?;
        keeper.signal(Signal::STOP);
        let replaced = stage.program(replace.env("PLACE", &place)).output();
        keeper.signal(Signal::CONT);
        replaced?;
        let told = doctor(stage)?;
        let check = told.has("mountpoint", "problem")?;
        ensure!(check["code"] == "mountpoint-symlink", "{check}");
        ensure!(fs::read_link(&place)? == Path::new("/nowhere"));
        drop(daemon.end(Signal::TERM)?);
        ensure!(fs::read_link(&place)? == Path::new("/nowhere"));
        Ok(())
    });
}

#[test]
fn somebody_elses_mount_is_named_and_stays() {
    as_root(&[Need::Fuse], |stage| {
        let place = stage.mountpoint(&stage.user);
        fs::create_dir(&place)?;
        rustix::mount::mount("tmpfs", &place, "tmpfs", MountFlags::empty(), None)?;
        let before = mounts::list()?;
        let told = doctor(stage)?;
        told.has_problem("mountpoint", "mountpoint-foreign-mount")?;
        let others = told.has("other-mounts", "warning")?;
        ensure!(others["found"].as_str().is_some_and(|found| found.contains("tmpfs")), "{others}");
        ensure!(mounts::list()? == before);
        Ok(())
    });
}

#[test]
fn a_stale_mount_is_told_and_stays() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = stage.serve()?;
        let worker = worker(&daemon)?;
        drop(daemon.end(Signal::KILL)?);
        ensure!(worker.has_ended(GENEROUS), "the worker outlives its keeper");
        let before = mounts::list()?;
        let told = doctor(stage)?;
        told.is_healthy()?;
        let check = told.has("mountpoint", "warning")?;
        ensure!(check["code"] == "mount-stale", "{check}");
        ensure!(mounts::list()? == before);
        while_served(stage, |_| doctor(stage)?.is_healthy())
    });
}

#[test]
fn a_daemon_that_does_not_answer_holds_up_nobody() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let worker = worker(daemon)?;
            worker.signal(Signal::STOP);
            let began = Instant::now();
            let told = doctor(stage);
            worker.signal(Signal::CONT);
            let told = told?;
            ensure!(began.elapsed() < GENEROUS, "{:?}", began.elapsed());
            let answer = told.has("daemon", "problem")?;
            ensure!(answer["code"] == "daemon-unresponsive", "{answer}");
            told.has("mountpoint", "skipped")?;
            doctor(stage)?.is_healthy()
        })
    });
}

#[test]
fn what_the_host_lacks_is_named() {
    as_root(&[Need::Fuse], |stage| {
        // A /dev with nothing in it, in the test's own namespace.
        let empty = stage.make_directory("empty", 0o755)?;
        rustix::mount::mount_bind(&empty, "/dev")?;
        let told = doctor(stage);
        rustix::mount::unmount("/dev", rustix::mount::UnmountFlags::DETACH)?;
        let told = told?;
        told.has_problem("fuse-device", "fuse-device-missing")?;
        told.has("fuse-features", "skipped")?;
        Ok(())
    });
    as_ordinary_user(&[Need::Fuse], |stage| {
        let told = Diagnosis::of(stage.holdfast().env("PATH", "/nowhere"))?;
        told.has_problem("fusermount3", "fusermount-missing")?;
        let words = stage.holdfast().arg("doctor").env("PATH", "/nowhere").run()?;
        let mut lines = words.stdout.lines().skip_while(|line| !line.starts_with("PROBLEM"));
        let problem = lines.next().context("no problem")?;
        ensure!(problem.contains("fusermount-missing: "), "{words:?}");
        let remedy = lines.next().context("nothing below it")?;
        ensure!(remedy.trim_start().starts_with("remedy: ") && remedy.contains("fuse3"));
        ensure!(words.code() == Some(1) && words.stdout.contains("\n1 problem, "), "{words:?}");
        Ok(())
    });
}

#[test]
fn a_store_that_will_not_do_is_named() {
    as_each_user(&[Need::Fuse], |stage| {
        let room = stage.path("work");
        let store = |name: &str| format!("dir:{}", room.join(name).display());
        let with = |name: &str| Diagnosis::of(stage.holdfast().env("HOLDFAST_STORE", store(name)));
        let good = with("new")?;
        good.is_healthy()?;
        let costs = good.has("store", "warning")?["costs"].to_string();
        ensure!(costs.contains("session-limits"), "{costs}");
        ensure!(!room.join("new").exists(), "it was made");
        symlink("/", room.join("link"))?;
        with("link")?.has_problem("store", "store-symlink")?;
        let open = stage.make_directory("work/open", 0o755)?;
        std::os::unix::fs::chown(&open, Some(stage.user.uid), Some(stage.user.uid))?;
        with("open")?.has_problem("store", "store-wrong-mode")?;
        ensure!(fs::metadata(&open)?.permissions().mode() & 0o7777 == 0o755);
        with("none/store")?.has_problem("store", "store-parent-missing")?;
        let bad = Diagnosis::of(stage.holdfast().env("HOLDFAST_STORE", "nonsense"))?;
        bad.has("settings", "problem")?;
        ensure!(bad.check("settings")?["code"] == "settings-invalid", "{}", bad.0);
        Ok(())
    });
}

fn worker(daemon: &Daemon) -> anyhow::Result<Process> {
    let keeper = daemon.id();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
    let worker = children.split_whitespace().next().context("the daemon has no worker")?;
    Process::of(worker.parse()?)
}
