//! Many files in a daemon with few descriptors and little memory, and sessions with little room.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_tests::command::Program;
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::need::Need;
use holdfast_tests::report;
use holdfast_tests::stage::{Stage, as_each_user};
use holdfast_tests::status;

/// Resident memory of the daemon's processes at their peak, in KiB, of which no more is allowed.
const MOST_MEMORY: u64 = 100 << 10;

/// Makes, lists, reads and removes 200,000 files, and says how long each took.
const FILES: &str = r#"
import os, sys, time
root = os.environ["TMPDIR"]
def timed(what, call):
    start = time.monotonic(); call()
    print(f"{what}: {time.monotonic() - start:.1f} s", flush=True)
def make():
    for d in range(200):
        os.mkdir(f"{root}/{d}")
        for f in range(1000):
            fd = os.open(f"{root}/{d}/{f}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            os.write(fd, b"%d %d" % (d, f)); os.close(fd)
def names():
    found = sum(len(files) for _, _, files in os.walk(root))
    assert found == 200_000, found
def stat():
    for d in range(200):
        for entry in os.scandir(f"{root}/{d}"):
            assert entry.stat(follow_symlinks=False).st_size == len(f"{d} {entry.name}")
def read():
    for d in range(200):
        for f in range(1000):
            fd = os.open(f"{root}/{d}/{f}", os.O_RDONLY)
            assert os.read(fd, 20) == b"%d %d" % (d, f); os.close(fd)
def hold():
    held = [os.open(f"{root}/{f % 200}/{f}", os.O_RDONLY) for f in range(500)]
    for f in range(500): os.unlink(f"{root}/{f % 200}/{f}")
    for f, fd in enumerate(held):
        assert os.read(fd, 20) == b"%d %d" % (f % 200, f); os.close(fd)
def remove():
    for d in range(200):
        for entry in list(os.scandir(f"{root}/{d}")): os.unlink(entry.path)
        os.rmdir(f"{root}/{d}")
    assert os.listdir(root) == []
for call in make, names, stat, read, hold, remove: timed(call.__name__, call)
"#;

#[test]
fn a_daemon_with_a_thousand_descriptors_holds_two_hundred_thousand_files() {
    as_each_user(&[Need::Fuse, Need::Program("python3"), Need::Program("prlimit")], |stage| {
        let limited = Program::new("prlimit")
            .args(["--nofile=1024:1024", "--"])
            .arg(stage.path("bin/holdfast"))
            .args(["serve", "--json"])
            .log(stage.path("daemon.log"));
        let daemon = Daemon::of(stage.program(limited))?;
        let script = r#"exec /usr/bin/python3 -c "$FILES""#;
        let program = stage.run(script).env("FILES", FILES).deadline(Duration::from_secs(280));
        let printed = program.output();
        let peaks = peaks(&daemon)?;
        report::print(format_args!("{}{peaks:?} KiB at the peak", printed.context(log(stage))?));
        ensure!(peaks.iter().all(|(_, most)| *most < MOST_MEMORY), "{peaks:?}");
        daemon.stop(stage)
    });
}

/// Fills the lease with bytes, then with files, and says what it was told.
const FILL: &str = r#"
    cd "$TMPDIR"; NO_SPACE='No space left on device'
    fails() { ! "$@" 2>"$SCRATCH/said"; cat "$SCRATCH/said"; }
    room() { df -B1 --output="$1" . | tail -n1 | tr -d ' '; }
    [[ $(room size) == 4194304 && $(room avail) == 4194304 && $(room iavail) == 50 ]]
    fails dd if=/dev/zero of=large bs=64K count=128 conv=fsync status=none | grep -q "$NO_SPACE"
    size=$(stat -c %s large); ((size > 3 << 20 && size <= 4 << 20))
    [[ $(room avail) == 0 ]]
    rm large
    dd if=/dev/zero of=large bs=64K count=32 conv=fsync status=none
    made=0
    while touch "file$made" 2>"$SCRATCH/said"; do made=$((made + 1)); done
    grep -q "$NO_SPACE" "$SCRATCH/said"
    [[ $made == 49 && $(room iavail) == 0 ]]
    fails mkdir directory | grep -q "$NO_SPACE"
    fails ln -s x link | grep -q "$NO_SPACE"
    fails dd if=/dev/zero of=large bs=64K count=128 conv=fsync status=none | grep -q "$NO_SPACE"
    echo full
"#;

#[test]
fn a_full_session_is_full_alone_and_can_be_given_more_room() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let scratch = stage.path("work");
            let within = |session, script: &str| {
                stage.run_in(session, script).env("SCRATCH", &scratch).output()
            };
            let session = |words: &[&str]| stage.holdfast().arg("session").args(words).output();
            session(&["open", "small", "--size", "4M", "--inodes", "50"])?;
            session(&["open", "other"])?;
            ensure!(within("small", FILL)?.ends_with("full\n"));

            // Nobody else is affected, and the session itself can still be asked and used.
            let room = r#"
                cd "$TMPDIR"
                dd if=/dev/zero of=large bs=64K count=256 conv=fsync status=none
                for i in $(seq 200); do echo "$i" > "file$i"; done
                echo room
            "#;
            ensure!(within("other", room)? == "room\n");
            ensure!(status::counts(stage)?["sessions"] == 2);
            session(&["show", "small", "--json"])?;
            stage.holdfast().args(["check", "small"]).output()?;
            let still = r#"[[ $(df --output=iavail "$TMPDIR" | tail -n1 | tr -d ' ') == 0 ]]"#;
            within("small", still)?;

            session(&["resize", "small", "--size", "32M", "--inodes", "400"])?;
            let told = r#"
                read -r size inodes <<< "$(df -B1 --output=size,iavail "$TMPDIR" | tail -n1)"
                echo "$size $inodes"
            "#;
            ensure!(within("small", told)? == format!("{} 350\n", 32 << 20));
            ensure!(within("small", room)? == "room\n");

            // Full once more, it can be closed.
            let again = r#"! dd if=/dev/zero of="$TMPDIR/rest" bs=64K status=none 2>/dev/null"#;
            within("small", again)?;
            session(&["close", "small"])?;
            session(&["close", "other"])?;
            let gone = [("sessions", 0), ("generations", 0)];
            status::becomes(stage, &gone, Duration::from_secs(10))
        })
    });
}

#[test]
fn a_directory_keeps_the_files_of_one_daemon() {
    as_each_user(&[Need::Fuse], |stage| {
        let store = stage.tmpfs("disk")?.join("store");
        let argument = format!("dir:{}", store.display());
        let daemon = Daemon::start(stage, &stage.user, &["--store", &argument])?;
        let script = r#"
            for i in $(seq 200); do mkdir "$TMPDIR/$i" && echo "$i" > "$TMPDIR/$i/file"; done
            [[ $(cat "$TMPDIR"/*/file | sort -n | tail -n1) == 200 ]]
            exec 3<"$TMPDIR/7/file" && rm -r "$TMPDIR/7" && [[ $(cat <&3) == 7 ]]
            mv "$TMPDIR/8" "$TMPDIR/eight" && ln "$TMPDIR/9/file" "$TMPDIR/eight/link"
            [[ $(stat -c %h "$TMPDIR/9/file") == 2 && ! -e $TMPDIR/8 ]]
            echo good
        "#;
        ensure!(stage.run(script).output()?.ends_with("good\n"));

        let mode = fs::metadata(&store)?.permissions().mode() & 0o7777;
        ensure!(mode == 0o700, "the store is open to others: {mode:o}");
        let other = ["--mountpoint", "other", "--socket", "other-socket", "--store", &argument];
        let work = stage.path("work");
        let second = stage.holdfast().directory(&work).arg("serve").args(other);
        let second = second.without_env("HOLDFAST_MOUNTPOINT").run()?;
        ensure!(second.fault() == Some("store-locked"), "{second:?}");
        ensure!(!work.join("other").exists() && !work.join("other-socket").exists());
        daemon.stop(stage)
    });
}

fn log(stage: &Stage) -> String {
    fs::read_to_string(stage.path("daemon.log")).unwrap_or_default()
}

/// The processes of the daemon, each with the most memory that it ever had.
fn peaks(daemon: &Daemon) -> anyhow::Result<Vec<(u32, u64)>> {
    let keeper = daemon.id();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
    let children = children.split_whitespace().map(|id| Ok(id.parse()?));
    let ids: Vec<u32> = children.collect::<anyhow::Result<_>>()?;
    ensure!(!ids.is_empty(), "the daemon has no worker");
    ids.into_iter()
        .chain([keeper])
        .map(|id| {
            let status = fs::read_to_string(format!("/proc/{id}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = line.context("no peak")?.trim().trim_end_matches(" kB").parse()?;
            Ok((id, peak))
        })
        .collect()
}
