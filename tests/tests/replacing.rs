//! Something is put where the mount was, on which it must not go. Whatever it is stays as it is, who
//! wants a lease is told at once, and service goes on by itself once it is gone.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::client::Client;
use holdfast_tests::daemon::Daemon;
use holdfast_tests::detach::{self, Silent};
use holdfast_tests::holder::Holder;
use holdfast_tests::need::Need;
use holdfast_tests::replacement::{Place, Replacement};
use holdfast_tests::stage::{Stage, as_each_user, as_root};
use holdfast_tests::times::Times;
use rustix::process::Signal;
use serde_json::{Value, json};

const ROUNDS: usize = 20;
/// Of so many rounds one waits until service is back by itself, and in the others somebody asks.
const BY_ITSELF: usize = 5;

const NEEDS: &[Need] = &[Need::Fuse, Need::Root, Need::Program("python3")];

/// A session in use, and what is measured of it.
struct Scene<'a> {
    stage: &'a Stage,
    daemon: &'a Daemon,
    holder: Holder,
    set: Value,
    refused: Times,
    by_itself: Times,
    at_request: Times,
}

impl<'a> Scene<'a> {
    fn begin(stage: &'a Stage, daemon: &'a Daemon, what: &str) -> anyhow::Result<Self> {
        stage.holdfast().args(["session", "open", "main"]).output()?;
        let mut holder = Holder::start(stage, "main")?;
        let set = holder.ask("hold")?;
        Ok(Self {
            stage,
            daemon,
            holder,
            set,
            refused: Times::of(format_args!("{what}, until the next lease is refused")),
            by_itself: Times::of(format_args!("{what}, until service is back by itself")),
            at_request: Times::of(format_args!("{what}, until a request is granted afterwards")),
        })
    }

    fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.stage.user, &self.daemon.socket)
    }

    /// What was leased before is as good as ever.
    fn held_things_work(&mut self) -> anyhow::Result<()> {
        let used = self.holder.ask(&format!("use {} alone", self.set))?;
        ensure!(used["read back"] == true && used["read"] == "read----", "{used}");
        ensure!(used["working directory"] == "read----", "{used}");
        ensure!(used["make in working directory"] == 8, "{used}");
        Ok(())
    }

    /// Nobody gets a lease, and everybody is told why, at once.
    fn is_refused(&mut self, code: &str) -> anyhow::Result<()> {
        let mut client = self.client()?;
        let main = json!({ "session": "main" });
        for method in ["Check", "AcquireLease"] {
            let start = Instant::now();
            let refusal = client.refusal(method, &main)?;
            ensure!(refusal.as_deref() == Some(code), "{method}: {refusal:?}");
            self.refused.add(start.elapsed())?;
        }
        let status = client.get("Status", &json!({}))?;
        ensure!(status["fault"]["code"] == code, "{status}");
        let check = self.stage.holdfast().args(["check", "main"]).run()?;
        ensure!(!check.status.success() && check.fault() == Some(code), "{check:?}");
        let marker = self.stage.path("work/started");
        let start = Instant::now();
        let script = format!("echo started > {}", marker.display());
        for run in [self.stage.run_in("main", &script), self.stage.run(&script)] {
            let run = run.run()?;
            ensure!(run.code() == Some(125) && run.fault() == Some(code), "{run:?}");
            ensure!(run.stdout.is_empty() && !marker.exists(), "it was started: {run:?}");
        }
        self.refused.add(start.elapsed())
    }

    /// Service is back: for a client that was made during the fault too.
    fn is_granted(&mut self, client: &mut Client, start: Instant, ask: bool) -> anyhow::Result<()> {
        let main = json!({ "session": "main" });
        if ask {
            let refusal = client.refusal("Check", &main)?;
            ensure!(refusal.is_none(), "{refusal:?} after it was gone");
            self.at_request.add(start.elapsed())?;
        }
        let served = self.holder.serves_after(start)?;
        if !ask {
            self.by_itself.add(served)?;
        }
        let acquire = json!({ "session": "main", "hold": "connection" });
        let acquired = client.get("AcquireLease", &acquire)?;
        let lease = json!({ "lease": acquired["lease"]["id"] });
        ensure!(client.get("CheckLease", &lease)?["lease"]["stale"] == false);
        client.get("ReleaseLease", &lease)?;
        let status = client.get("Status", &json!({}))?;
        ensure!(status.get("fault").is_none_or(Value::is_null), "{status}");
        self.held_things_work()?;
        let read = self.stage.run_in("main", r#"cat "$TMPDIR/deep/below/read""#).output()?;
        ensure!(read == "read----", "{read}");
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        self.holder.finish()?.success()?;
        self.stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
        for times in [self.refused, self.by_itself, self.at_request] {
            times.print();
        }
        Ok(())
    }
}

/// Serves at a place of its own, and shows the daemon's log where the test fails.
fn served_at<'a>(
    stage: &Stage,
    place: &Place<'a>,
    test: impl FnOnce(&Daemon) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let daemon = place.serve()?;
    let log = stage.path(&format!("daemon-{}.log", stage.user.uid));
    test(&daemon).with_context(|| {
        let log = std::fs::read_to_string(log).unwrap_or_default();
        format!("the daemon's log ends: {}", log.lines().rev().take(20).collect::<String>())
    })?;
    daemon.stop(stage)?;
    // One that somebody else has made last is theirs to remove.
    place.clear()
}

/// Detaches the mount, and does something with its place before the daemon can.
fn while_detached<T>(
    stage: &Stage,
    daemon: &Daemon,
    act: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    daemon.pause()?;
    detach::umount(stage, &["-l"], &daemon.mountpoint)?.success()?;
    let result = act();
    daemon.resume()?;
    result
}

fn each_is_left_alone(replacements: &[Replacement]) {
    as_each_user(NEEDS, |stage| {
        let place = Place::new(stage)?;
        for what in replacements {
            served_at(stage, &place, |daemon| {
                let name = format!("{what:?} at uid {}'s", stage.user.uid);
                let mut scene = Scene::begin(stage, daemon, &name)?;
                for round in 0..ROUNDS {
                    let round_of = || format!("{what:?}, round {round}");
                    let (remove, before) = while_detached(stage, daemon, || {
                        Ok((place.put(*what)?, place.snapshot()?))
                    })
                    .with_context(round_of)?;
                    scene.is_refused(what.code()).with_context(round_of)?;
                    scene.held_things_work().with_context(round_of)?;
                    let mut during = scene.client()?;
                    let main = json!({ "session": "main" });
                    let code = during.refusal("Check", &main)?;
                    ensure!(code.as_deref() == Some(what.code()), "{what:?}: {code:?}");
                    let after = place.snapshot()?;
                    ensure!(after == before, "{what:?}: it was\n{before}and is\n{after}");
                    remove().with_context(round_of)?;
                    let (start, ask) = (Instant::now(), round % BY_ITSELF != 0);
                    scene.is_granted(&mut during, start, ask).with_context(round_of)?;
                }
                scene.end()
            })
            .with_context(|| format!("{what:?}"))?;
        }
        Ok(())
    });
}

#[test]
fn what_is_no_directory_is_left_alone() {
    use Replacement::{Dangling, Fifo, File, Socket, Symlink};
    each_is_left_alone(&[Symlink, Dangling, File, Fifo, Socket]);
}

#[test]
fn a_directory_that_is_not_as_it_was_is_left_alone() {
    use Replacement::{NotEmpty, WrongMode, WrongOwner};
    each_is_left_alone(&[WrongOwner, WrongMode, NotEmpty]);
}

#[test]
fn what_others_have_mounted_is_left_alone() {
    use Replacement::{OtherDaemon, SilentFuse, Tmpfs};
    each_is_left_alone(&[Tmpfs, SilentFuse, OtherDaemon]);
}

#[test]
fn a_parent_that_is_not_as_it_was_is_left_alone() {
    use Replacement::{ParentMissing, ParentNotDirectory, ParentWritable};
    each_is_left_alone(&[ParentMissing, ParentNotDirectory, ParentWritable]);
}

#[test]
fn every_replacement_is_tried() {
    use Replacement as R;
    let tried = [
        [R::Symlink, R::Dangling, R::File, R::Fifo, R::Socket].as_slice(),
        &[R::WrongOwner, R::WrongMode, R::NotEmpty],
        &[R::Tmpfs, R::SilentFuse, R::OtherDaemon],
        &[R::ParentMissing, R::ParentNotDirectory, R::ParentWritable],
    ]
    .concat();
    assert_eq!(tried, R::ALL);
}

/// A mount that looks like one of ours, and whose daemon doesn't answer: it may still be alive.
#[test]
fn a_silent_mount_like_ours_is_left_alone() {
    as_root(NEEDS, |stage| {
        let place = Place::new(stage)?;
        served_at(stage, &place, |daemon| {
            let mut scene = Scene::begin(stage, daemon, "a silent mount like ours")?;
            for round in 0..ROUNDS {
                let (mount, before) = while_detached(stage, daemon, || {
                    let mount = Silent::mount("fuse.holdfast", "holdfast", &place.path)?;
                    Ok((mount, place.snapshot()?))
                })?;
                scene.is_refused("mountpoint-in-use")?;
                scene.held_things_work()?;
                ensure!(place.snapshot()? == before);
                let mut during = scene.client()?;
                // Once its daemon is gone it is one that was left behind, and is replaced.
                mount.end();
                let ask = round % BY_ITSELF != 0;
                scene.is_granted(&mut during, Instant::now(), ask)?;
                ended(daemon)?;
            }
            scene.end()
        })
    });
}

/// Waits until whoever has asked a mount for the keeper is gone, and only the worker is left.
fn ended(daemon: &Daemon) -> anyhow::Result<()> {
    let start = Instant::now();
    let tasks = format!("/proc/{}/task", daemon.id());
    loop {
        let mut children = Vec::new();
        for task in std::fs::read_dir(&tasks)? {
            // A thread may end meanwhile.
            let of = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            children.extend(of.split_whitespace().map(str::to_owned));
        }
        if children.len() == 1 {
            return Ok(());
        }
        ensure!(start.elapsed() < Duration::from_secs(10), "left: {children:?}");
        std::thread::yield_now();
    }
}

/// Somebody moves the directory with the mount in it.
#[test]
fn a_mount_that_is_moved_with_its_parent_is_found_again() {
    as_root(NEEDS, |stage| {
        let place = Place::new(stage)?;
        served_at(stage, &place, |daemon| {
            let mut scene = Scene::begin(stage, daemon, "moved with its parent")?;
            for _ in 0..ROUNDS {
                let moved = stage.path("elsewhere");
                let parent = place.path.parent().map(Path::to_owned).context("a parent")?;
                std::fs::rename(&parent, &moved)?;
                scene.is_refused("mountpoint-parent-missing")?;
                scene.held_things_work()?;
                let mut during = scene.client()?;
                std::fs::rename(&moved, &parent)?;
                scene.is_granted(&mut during, Instant::now(), true)?;
                ensure!(holdfast_tests::mounts::fuse()?.len() == 1);
            }
            scene.end()
        })
    });
}

/// How a foreign mount comes to be on the path.
#[derive(Clone, Copy, Debug)]
enum Foreign {
    OnTop,
    SilentOnTop,
    Instead,
}

#[test]
fn down_never_unmounts_what_others_have_mounted() {
    as_each_user(NEEDS, |stage| {
        let place = Place::new(stage)?;
        for round in 0..ROUNDS {
            for how in [Foreign::OnTop, Foreign::SilentOnTop, Foreign::Instead] {
                let round_of = || format!("{how:?}, round {round}");
                let daemon = place.serve().with_context(round_of)?;
                let tmpfs = || place.put_on_top();
                let remove = match how {
                    Foreign::OnTop => tmpfs()?,
                    Foreign::SilentOnTop => {
                        let mount = Silent::mount("fuse.other", "other", &place.path)?;
                        let path = &place.path;
                        Box::new(move || mount.unmount(path))
                    }
                    Foreign::Instead => {
                        while_detached(stage, &daemon, || place.put(Replacement::Tmpfs))?
                    }
                };
                let foreign = || -> anyhow::Result<Vec<_>> {
                    let mounts = holdfast_tests::mounts::list()?;
                    Ok(mounts.into_iter().filter(|mount| mount.kind != "fuse.holdfast").collect())
                };
                let before = foreign()?;
                let down =
                    stage.holdfast().args(["down", "--force"]).run().with_context(round_of)?;
                let finished = daemon.finish().with_context(round_of)?;
                ensure!(finished.signal().is_none(), "{how:?}: {down:?}, {finished:?}");
                ensure!(foreign()? == before, "{how:?}: {before:?}");
                if !matches!(how, Foreign::SilentOnTop) {
                    let kept = std::fs::read_to_string(place.path.join("file"))?;
                    ensure!(kept == "to be kept\n", "{kept:?}");
                }
                remove().with_context(round_of)?;
            }
        }
        // Nor does one that is told by a signal, and the next one cleans up what was ours.
        let daemon = place.serve()?;
        let remove = place.put_on_top()?;
        drop(daemon.end(Signal::TERM)?);
        ensure!(place.path.join("file").exists(), "it was unmounted");
        remove()?;
        let daemon = place.serve()?;
        daemon.stop(stage)
    });
}
