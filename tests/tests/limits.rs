//! Whoever is full is full alone, no rotation gives fresh room, and all sessions together keep to
//! the daemon's total.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::command::Running;
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::need::Need;
use holdfast_tests::report;
use holdfast_tests::stage::{Stage, as_each_user};
use holdfast_tests::status;
use serde_json::Value;

/// A generous time for what nobody uses to go.
const GOES: Duration = Duration::from_secs(20);
/// Everything is looked at once a second where anything is written.
const LOOKED_AT: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

/// What the scripts here begin with.
const WORDS: &str = r#"
    cd "$TMPDIR"
    fails() { ! "$@" 2>"$SCRATCH/said-$$" && grep -q 'No space left on device' "$SCRATCH/said-$$"; }
    write() { dd if=/dev/zero of="$1" bs=64K count="$2" conv=fsync status=none; }
    room() { df -B1 --output="$1" . | tail -n1 | tr -d ' '; }
"#;

fn session(stage: &Stage, words: &[&str]) -> anyhow::Result<String> {
    stage.holdfast().arg("session").args(words).output()
}

fn within(stage: &Stage, session: &str, script: &str) -> anyhow::Result<String> {
    let script = format!("{WORDS}{script}");
    stage.run_in(session, &script).env("SCRATCH", stage.path("work")).output()
}

/// A script that does a step for each line that it reads, and says so.
fn steps(stage: &Stage, session: &str, script: &str) -> anyhow::Result<Running> {
    let script = format!("{WORDS}{script}");
    let mut running = stage.run_in(session, &script).env("SCRATCH", stage.path("work")).start()?;
    ensure!(running.line()? == "ready");
    Ok(running)
}

fn step(running: &mut Running, expected: &str) -> anyhow::Result<()> {
    running.say("go on")?;
    let line = running.line()?;
    ensure!(line == expected, "{line} instead of {expected}");
    Ok(())
}

/// The fault that something is refused with: its code and its message.
fn refused(stage: &Stage, words: &[&str]) -> anyhow::Result<(String, String)> {
    let refused = stage.holdfast().args(words).arg("--json").run()?;
    ensure!(!refused.status.success(), "{refused:?}");
    let answer: Value = serde_json::from_str(refused.stdout.trim())?;
    let text = |name: &str| answer["fault"][name].as_str().map(str::to_owned).context("no fault");
    Ok((text("code")?, text("message")?))
}

#[test]
fn whoever_is_full_is_full_alone() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            session(stage, &["open", "bytes", "--size", "4M"])?;
            session(stage, &["open", "inodes", "--inodes", "20"])?;
            session(stage, &["open", "third", "--size", "8M", "--inodes", "100"])?;
            let numbers = |name| within(stage, name, r#"echo "$(room size) $(room iavail)""#);
            ensure!(within(stage, "bytes", "fails write large 128; room avail")? == "0\n");
            let files = r#"
                made=0
                while touch "file$made" 2>/dev/null; do made=$((made + 1)); done
                fails mkdir directory; echo "$made"
            "#;
            ensure!(within(stage, "inodes", files)? == "20\n");

            ensure!(numbers("bytes")?.starts_with(&format!("{} ", 4 * MIB)));
            ensure!(numbers("inodes")?.ends_with(" 0\n"));
            ensure!(numbers("third")? == format!("{} 100\n", 8 * MIB));
            ensure!(
                within(stage, "third", "write large 64; mkdir directory; echo room")? == "room\n"
            );

            // Who is full has leases still, though none of its own where that needs an inode.
            stage.holdfast().args(["check", "bytes"]).output()?;
            let acquire = ["lease", "acquire", "inodes", "--kind", "private"];
            let (code, message) = refused(stage, &acquire)?;
            let shown: Value =
                serde_json::from_str(&session(stage, &["show", "inodes", "--json"])?)?;
            let id = shown["session"]["id"].as_str().context("no id")?;
            ensure!(code == "store-out-of-inodes", "{code}");
            ensure!(message.contains(id) && message.contains("20"), "{message}");
            ensure!(status::counts(stage)?["sessions"] == 3);
            session(stage, &["resize", "bytes", "--size", "6M"])?;
            ensure!(within(stage, "bytes", "write more 16; echo more")? == "more\n");
            for name in ["bytes", "inodes", "third"] {
                session(stage, &["close", name])?;
            }
            status::becomes(stage, &[("sessions", 0), ("generations", 0)], GOES)
        })
    });
}

#[test]
fn rotating_a_full_session_gives_no_fresh_room() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            session(stage, &["open", "main", "--size", "4M"])?;
            let script = r#"
                fails write large 128; exec 3<large; echo ready
                read -r _; fails write other 1; echo full
                read -r _
            "#;
            let mut writer = steps(stage, "main", script)?;
            session(stage, &["rotate", "main"])?;
            for words in [["check", "main"].as_slice(), &["lease", "acquire", "main"]] {
                let (code, message) = refused(stage, words)?;
                ensure!(code == "store-full", "{code}");
                ensure!(message.contains(&(4 * MIB).to_string()), "{message}");
            }
            step(&mut writer, "full")?;
            writer.say("end")?;
            writer.finish()?.success()?;
            status::becomes(stage, &[("generations", 0)], GOES)?;
            let all = format!("{}\n", 4 * MIB);
            ensure!(within(stage, "main", "write large 48; room size")? == all);
            session(stage, &["close", "main"])?;
            status::becomes(stage, &[("sessions", 0)], GOES)
        })
    });
}

#[test]
fn what_is_left_is_shared_with_commands_of_before_the_rotation() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            session(stage, &["open", "main", "--size", "8M"])?;
            let script = r#"
                write first 64; echo ready
                read -r _; write second 16; echo more
                read -r _; fails write third 128; echo full
                read -r _
            "#;
            let mut writer = steps(stage, "main", script)?;
            session(stage, &["rotate", "main"])?;
            // Of the 4 MiB that are left each has 2.
            let size = || within(stage, "main", "room size");
            ensure!(size()? == format!("{}\n", 2 * MIB));
            step(&mut writer, "more")?;
            step(&mut writer, "full")?;
            // Together they hold no more than the session may.
            let both = within(stage, "main", "fails write large 128; stat -c %b large")?;
            let blocks: u64 = both.trim().parse()?;
            ensure!(blocks * 512 <= 2 * MIB, "{blocks}");
            writer.say("end")?;
            writer.finish()?.success()?;
            // Once the one of before is gone, all of it is the present one's.
            let until = Instant::now() + GOES;
            while size()? != format!("{}\n", 8 * MIB) {
                ensure!(Instant::now() < until, "{}", size()?);
            }
            session(stage, &["close", "main"])?;
            status::becomes(stage, &[("sessions", 0), ("generations", 0)], GOES)
        })
    });
}

/// What `status` says of the daemon's total.
fn total(stage: &Stage) -> anyhow::Result<(u64, u64)> {
    let answer: Value =
        serde_json::from_str(&stage.holdfast().args(["status", "--json"]).output()?)?;
    let number = |name: &str| answer[name].as_u64().with_context(|| format!("{name} in {answer}"));
    Ok((number("total")?, number("used")?))
}

#[test]
fn all_sessions_together_keep_to_the_total() {
    as_each_user(&[Need::Fuse], |stage| {
        let all = 64 * MIB;
        let daemon = Daemon::start(stage, &stage.user, &["--total", "64M"])?;
        let test = || {
            ensure!(total(stage)? == (all, 0));
            for name in ["one", "two", "small"] {
                session(stage, &["open", name])?;
            }
            session(stage, &["resize", "small", "--size", "1M"])?;
            ensure!(within(stage, "small", "write file 8; room size")? == format!("{MIB}\n"));
            // Both write as much as they can at the same time, for as long as it takes until the
            // total is known to be reached.
            let script = r#"
                number=0; echo ready; read -r _
                while ! fails write "large$((number++))" 16; do :; done
                echo full; read -r _
            "#;
            let mut writers = [steps(stage, "one", script)?, steps(stage, "two", script)?];
            for writer in &mut writers {
                writer.say("go on")?;
            }
            for writer in &mut writers {
                ensure!(writer.line()? == "full");
            }
            let (_, used) = total(stage)?;
            let over = used.saturating_sub(all);
            report::print(format_args!("{over} bytes over a total of {all} with two writers"));
            ensure!(used > all / 2 && used <= all + all / 2, "{used} of {all}");

            // What is refused says why, and everything can be asked, given back and closed.
            session(stage, &["open", "late"])?;
            let until = Instant::now() + LOOKED_AT;
            while total(stage)?.1 + 4096 < all {
                // A writer that was stopped short in its share gets what is left.
                let _ = within(stage, "one", "write rest 1024 2>/dev/null || :")?;
                ensure!(Instant::now() < until, "{:?}", total(stage)?);
            }
            let (code, message) = refused(stage, &["check", "late"])?;
            ensure!(code == "store-full" && message.contains("total"), "{code}: {message}");
            let refused = stage.run_in("late", "echo never").run()?;
            ensure!(refused.code() == Some(125), "{refused:?}");
            ensure!(status::counts(stage)?["sessions"] == 4);
            for mut writer in writers {
                writer.say("end")?;
                writer.finish()?.success()?;
            }
            session(stage, &["close", "one"])?;
            session(stage, &["close", "two"])?;
            status::becomes(stage, &[("generations", 1)], GOES)?;
            ensure!(within(stage, "late", "write file 16; echo room")? == "room\n");
            session(stage, &["close", "small"])?;
            session(stage, &["close", "late"])?;
            status::becomes(stage, &[("sessions", 0), ("generations", 0)], GOES)?;
            ensure!(total(stage)? == (all, 0));
            Ok(())
        };
        let log = stage.path(&format!("daemon-{}.log", stage.user.uid));
        test().with_context(|| std::fs::read_to_string(log).unwrap_or_default())?;
        daemon.stop(stage)
    });
}
