//! Whether a directory is usable, as told from outside, from inside a lease and from inside a
//! sandbox; and where that record stays.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::command::{Finished, Program};
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::need::Need;
use holdfast_tests::processes::Process;
use holdfast_tests::stage::{Stage, as_each_user, as_ordinary_user, as_root};
use rustix::process::Signal;
use serde_json::Value;

/// The limit for one examination is 10 s, and all around it takes no time that matters.
const GENEROUS: Duration = Duration::from_secs(40);

/// What a command in a lease gets, so that it can call the program under test.
const PROGRAM: &str = "PROGRAM";

fn json(text: &str) -> anyhow::Result<Value> {
    serde_json::from_str(text).with_context(|| text.to_owned())
}

/// The record, and that the exit status says the same.
fn record(finished: &Finished) -> anyhow::Result<Value> {
    let record = json(finished.stdout.trim()).with_context(|| format!("{finished:?}"))?;
    let expected = if record["verdict"] == "qualified" { 0 } else { 1 };
    ensure!(finished.code() == Some(expected), "{finished:?}");
    Ok(record)
}

fn qualify(stage: &Stage, path: &std::path::Path) -> anyhow::Result<Value> {
    record(&stage.holdfast().args(["qualify", "--json"]).arg(path).run()?)
}

/// A script in a lease; the records that it prints, a line each.
fn in_lease(stage: &Stage, policy: &[&str], script: &str) -> anyhow::Result<Vec<Value>> {
    let run = stage.holdfast().arg("run").args(policy).args(["--", "bash", "-eu", "-c", script]);
    let printed = run.env(PROGRAM, stage.path("bin/holdfast")).output()?;
    printed.lines().map(json).collect()
}

#[test]
fn a_lease_is_qualified_from_inside_and_keeps_the_record() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let script = r#"
                "$PROGRAM" qualify "$TMPDIR" --json
                "$PROGRAM" qualify / --json || :
                "$PROGRAM" lease release "${HOLDFAST_MEMBER#*:}" --json
            "#;
            let told = in_lease(stage, &[], script)?;
            let [record, other, released] = told.as_slice() else { anyhow::bail!("{told:?}") };
            ensure!(record["verdict"] == "qualified", "{record}");
            ensure!(record["mount"]["holdfast"] == true, "{record}");
            ensure!(record["mount"]["path"].as_str() == daemon.mountpoint.to_str(), "{record}");
            ensure!(record["asker"]["uid"] == stage.user.uid, "{record}");
            ensure!(record["view"]["member"].as_str().is_some(), "{record}");
            ensure!(record["object"]["mode"] == "0700", "{record}");
            ensure!(other["path"] == "/" && other["mount"]["holdfast"] == false, "{other}");
            let kept = &released["receipt"]["qualification"];
            ensure!(kept == record, "what isn't the lease's directory is none of its: {released}");
            Ok(())
        })
    });
}

#[test]
fn a_sandbox_has_facts_of_its_own() {
    as_each_user(&[Need::Fuse, Need::Program("bwrap")], |stage| {
        while_served(stage, |_| {
            let script = r#"
                "$PROGRAM" qualify "$TMPDIR" --json
                bwrap --ro-bind / / --dev /dev --proc /proc "$PROGRAM" qualify "$TMPDIR" --json || :
                "$PROGRAM" lease release "${HOLDFAST_MEMBER#*:}" --json
            "#;
            let told = in_lease(stage, &[], script)?;
            let [outside, inside, released] = told.as_slice() else { anyhow::bail!("{told:?}") };
            ensure!(outside["verdict"] == "qualified", "{outside}");
            ensure!(inside["verdict"] == "disqualified", "{inside}");
            ensure!(inside["first"] == "read-only", "{inside}");
            ensure!(inside["access"]["writable"] == false, "{inside}");
            ensure!(inside["access"]["error"]["number"] == 30, "{inside}");
            ensure!(inside["probe"]["failed"] == "create", "{inside}");
            ensure!(inside["fault"].is_null(), "it wasn't refused: {inside}");
            ensure!(inside["object"] == outside["object"], "{inside}");
            let namespace = |record: &Value| record["view"]["mount_namespace"].as_u64();
            ensure!(namespace(inside).is_some() && namespace(inside) != namespace(outside));
            ensure!(released["receipt"]["qualification"] == *inside, "{released}");
            Ok(())
        })
    });
}

#[test]
fn a_sandbox_without_a_way_to_the_daemon_is_told_the_facts_too() {
    as_each_user(&[Need::Fuse, Need::Program("bwrap")], |stage| {
        while_served(stage, |_| {
            let script = r#"
                alone() {
                    bwrap --ro-bind "$PROGRAM" /holdfast --ro-bind /usr /usr \
                        --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
                        --bind "$TMPDIR" /scratch "$@" /holdfast qualify /scratch --json
                }
                alone --proc /proc 2>/dev/null
                alone 2>/dev/null
                "$PROGRAM" qualify "$TMPDIR" --json
            "#;
            let told = in_lease(stage, &[], script)?;
            let [inside, bare, outside] = told.as_slice() else { anyhow::bail!("{told:?}") };
            for record in [inside, bare] {
                ensure!(record["verdict"] == "qualified", "{record}");
                ensure!(record["canonical"] == "/scratch", "{record}");
                ensure!(record["object"] == outside["object"], "{record}");
            }
            ensure!(inside["mount"]["holdfast"] == true, "{inside}");
            ensure!(inside["mounts"][0]["path"] == "/scratch", "{inside}");
            ensure!(bare["view"]["mount_namespace"].is_null(), "{bare}");
            Ok(())
        })
    });
}

#[test]
fn a_lease_is_taken_with_its_record() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            stage.holdfast().args(["session", "open", "s"]).output()?;
            let acquire = ["lease", "acquire", "s", "--qualify", "--json"];
            let taken = json(&stage.holdfast().args(acquire).output()?)?;
            let record = &taken["qualification"];
            ensure!(record["verdict"] == "qualified", "{taken}");
            ensure!(record["path"] == taken["lease"]["path"], "{taken}");
            ensure!(record["object"]["inode"] == taken["lease"]["inode"], "{taken}");
            let lease = taken["lease"]["id"].as_str().context("an id")?;
            let release = ["lease", "release", lease, "--json"];
            let released = json(&stage.holdfast().args(release).output()?)?;
            ensure!(released["receipt"]["qualification"] == *record, "{released}");
            Ok(())
        })
    });
}

#[test]
fn a_lease_that_is_refused_has_a_record_that_says_so() {
    as_each_user(&[Need::Fuse], |stage| {
        let refused = |code: &str| {
            let acquire = ["lease", "acquire", "nobodys", "--qualify", "--json"];
            let finished = stage.holdfast().args(acquire).run()?;
            ensure!(finished.code() == Some(1), "{finished:?}");
            ensure!(finished.fault() == Some(code), "{finished:?}");
            let told = json(finished.stdout.trim())?;
            let record = &told["qualification"];
            ensure!(told["fault"]["code"] == code, "{told}");
            ensure!(record["verdict"] == "refused" && record["fault"] == code, "{told}");
            ensure!(record["object"].is_null() && record["first"].is_null(), "{told}");
            ensure!(record["asker"]["uid"] == stage.user.uid, "{told}");
            Ok(())
        };
        refused("daemon-unreachable")?;
        while_served(stage, |_| refused("session-unknown"))
    });
}

#[test]
fn a_mount_that_does_not_answer_is_unresponsive() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let worker = worker(daemon)?;
            // A name that the kernel can't know, so that it has to ask.
            let path = daemon.mountpoint.join("aaaaaaaa/1");
            worker.signal(Signal::STOP);
            let began = Instant::now();
            let record = qualify(stage, &path);
            worker.signal(Signal::CONT);
            let record = record?;
            ensure!(began.elapsed() < GENEROUS, "{:?}", began.elapsed());
            ensure!(record["verdict"] == "disqualified", "{record}");
            ensure!(record["first"] == "unresponsive", "{record}");
            ensure!(record["waits_for"].is_string(), "{record}");
            ensure!(record["mount"]["holdfast"] == true, "the table needs no answer: {record}");
            let record = qualify(stage, &path)?;
            ensure!(record["first"] == "missing", "{record}");
            Ok(())
        })
    });
}

#[test]
fn a_lease_without_room_says_of_what() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let fill = r#"
                head -c 4M /dev/zero 2>/dev/null > "$TMPDIR/fill" || :
                "$PROGRAM" qualify "$TMPDIR" --json || :
            "#;
            let told = in_lease(stage, &["--size", "1M"], fill)?;
            ensure!(told[0]["first"] == "no-space", "{told:?}");
            ensure!(told[0]["probe"]["failed"] == "write", "{told:?}");
            ensure!(told[0]["space"]["bytes_free"] == 0, "{told:?}");
            let fill = r#"
                for name in {1..100}; do true 2>/dev/null > "$TMPDIR/$name" || break; done
                "$PROGRAM" qualify "$TMPDIR" --json || :
            "#;
            let told = in_lease(stage, &["--inodes", "20"], fill)?;
            ensure!(told[0]["first"] == "no-inodes", "{told:?}");
            ensure!(told[0]["probe"]["failed"] == "create", "{told:?}");
            Ok(())
        })
    });
}

#[test]
fn what_is_wrong_with_a_path_is_named() {
    as_each_user(&[], |stage| {
        let room = stage.path("work");
        let own = |name: &str| {
            stage.program(Program::new("mkdir").arg(room.join(name))).output().map(drop)
        };
        own("good")?;
        symlink(room.join("good"), room.join("link"))?;
        fs::write(room.join("file"), "")?;
        let first = |name: &str| qualify(stage, &room.join(name));
        let good = first("good")?;
        ensure!(good["verdict"] == "qualified" && good["first"].is_null(), "{good}");
        let link = first("link")?;
        ensure!(link["first"] == "symlink-in-path", "{link}");
        ensure!(link["links"][0]["component"].as_str() == room.join("link").to_str(), "{link}");
        ensure!(link["links"][0]["target"].as_str() == room.join("good").to_str(), "{link}");
        ensure!(first("file")?["first"] == "not-a-directory");
        ensure!(first("none")?["first"] == "missing");
        // Relative to where the caller stands.
        let here = stage.holdfast().args(["qualify", "--json", "good"]).directory(&room).run()?;
        ensure!(record(&here)?["canonical"] == good["canonical"]);
        let words = stage.holdfast().arg("qualify").arg(room.join("link")).run()?;
        ensure!(words.stdout.contains("disqualified: symlink-in-path"), "{words:?}");
        ensure!(fs::read_dir(room.join("good"))?.count() == 0, "a probe is left");
        Ok(())
    });
}

#[test]
fn a_directory_that_may_not_be_written_is_not_writable() {
    as_ordinary_user(&[], |stage| {
        let path = stage.make_directory("work/closed", 0o755)?;
        let close = Program::new("chmod").arg("0555").arg(&path);
        close.output()?;
        let told = qualify(stage, &path)?;
        ensure!(told["first"] == "not-writable", "{told}");
        ensure!(told["access"]["error"]["number"] == 13, "{told}");
        ensure!(told["probe"]["failed"] == "create", "{told}");
        Ok(())
    });
}

/// The calling user's repository with two directories of which one is ignored.
const REPOSITORY: &str = r#"
    git init -q repository && cd repository
    echo /ignored/ > .gitignore
    mkdir ignored shown
"#;

#[test]
fn git_is_asked_and_its_words_are_kept() {
    as_each_user(&[Need::Program("git")], |stage| {
        let room = stage.path("work");
        let make = Program::bash(REPOSITORY).directory(&room).env("HOME", stage.path("home"));
        stage.program(make).directory(&room).output()?;
        let git = |path: &std::path::Path, meaning: &str, status: i32| {
            // Surroundings that would answer for it.
            let ask = stage.holdfast().args(["qualify", "--json"]).arg(path);
            let ask = ask.env("GIT_DIR", "/nowhere").env("GIT_WORK_TREE", "/");
            let told = record(&ask.run()?)?;
            ensure!(told["git"]["meaning"] == meaning, "{meaning}: {told}");
            ensure!(told["git"]["status"] == status, "{told}");
            ensure!(told["git"]["command"].as_str().is_some_and(|git| git.starts_with("git ")));
            ensure!(told["git"]["stderr"].as_str().is_some_and(str::is_empty) == (status < 128));
            Ok(told)
        };
        let ignored = git(&room.join("repository/ignored"), "ignored", 0)?;
        ensure!(ignored["verdict"] == "qualified", "{ignored}");
        let shown = git(&room.join("repository/shown"), "not-ignored", 1)?;
        ensure!(shown["first"] == "not-ignored-by-git", "{shown}");
        let outside = git(&stage.path("work"), "not-in-repository", 128)?;
        ensure!(outside["verdict"] == "qualified", "{outside}");
        git(&room.join("repository/.git"), "not-in-work-tree", 128)?;
        fs::write(room.join("repository/.git/config"), "[nonsense")?;
        let broken = git(&room.join("repository/shown"), "error", 128)?;
        ensure!(broken["verdict"] == "qualified", "git's trouble isn't the directory's: {broken}");
        let ask = stage.holdfast().args(["qualify", "--json"]).arg(&room).env("PATH", "/nowhere");
        let told = record(&ask.run()?)?;
        ensure!(told["git"]["meaning"] == "git-missing", "{told}");
        Ok(())
    });
}

#[test]
fn a_repository_that_git_does_not_trust_is_told_apart() {
    as_root(&[Need::Program("git")], |stage| {
        let room = stage.path("work");
        let make = Program::bash(REPOSITORY).directory(&room).env("HOME", stage.path("home"));
        make.output()?;
        let other = stage.for_user(holdfast_tests::user::User::ordinary());
        let told = qualify(&other, &room.join("repository/shown"))?;
        ensure!(told["git"]["meaning"] == "repository-not-trusted", "{told}");
        ensure!(told["git"]["status"] == 128, "{told}");
        ensure!(told["first"] == "not-writable", "{told}");
        Ok(())
    });
}

fn worker(daemon: &Daemon) -> anyhow::Result<Process> {
    let keeper = daemon.id();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
    let worker = children.split_whitespace().next().context("the daemon has no worker")?;
    Process::of(worker.parse()?)
}
