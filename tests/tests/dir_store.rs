//! A directory as the store: files in it are as in memory, and what goes is gone from it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::daemon::Daemon;
use holdfast_tests::differential::batch::Summary;
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_each_user};
use holdfast_tests::status;
use serde_json::Value;

/// A generous time for what nobody uses to go.
const GOES: Duration = Duration::from_secs(10);

/// Serves from a directory while the test goes on, and stops in good order.
fn while_served_from(
    stage: &Stage,
    test: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let store = stage.path("work/store");
    let daemon = Daemon::start(stage, &stage.user, &["--store", &word(&store)])?;
    let log = stage.path(&format!("daemon-{}.log", stage.user.uid));
    test(&store).with_context(|| {
        format!("the daemon's log: {}", fs::read_to_string(log).unwrap_or_default())
    })?;
    daemon.stop(stage)
}

fn word(store: &Path) -> String {
    format!("dir:{}", store.display())
}

/// Runs a script in a lease of its own, whose files are in a directory.
fn works(needs: &[Need], script: &str) {
    as_each_user(&[&[Need::Fuse], needs].concat(), |stage| {
        while_served_from(stage, |_| {
            let printed = stage.run(script).env("SCRATCH", stage.path("work")).output()?;
            let last = printed.lines().last();
            ensure!(last == Some("good"), "it stopped after {last:?}");
            Ok(())
        })
    });
}

#[test]
fn programs_work_in_a_directory_store() {
    let script = r#"
        cd "$TMPDIR"
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        export GIT_CONFIG_NOSYSTEM=1
        git init -q -b main repository; cd repository
        for i in $(seq 200); do mkdir -p "d$((i % 9))"; echo "$i" > "d$((i % 9))/f$i"; done
        git add .; git commit -q -m first
        [[ -z $(git status --porcelain) && $(git ls-files | wc -l) == 200 ]]
        git mv d1 moved; git commit -q -a -m second
        git gc -q; git fsck --strict --no-progress
        cd ..

        sqlite3 data.db 'PRAGMA journal_mode=WAL; CREATE TABLE t(v TEXT);'
        exec {input}> >(exec sqlite3 -cmd '.timeout 20000' data.db > kept); kept=$!
        echo "BEGIN; SELECT count(*) FROM t;" >&$input
        for i in $(seq 20); do sqlite3 -cmd '.timeout 20000' data.db "INSERT INTO t VALUES('$i');"; done
        [[ -e data.db-wal && -e data.db-shm ]]
        echo "COMMIT; SELECT count(*) FROM t;" >&$input
        exec {input}>&-; wait "$kept"
        [[ $(tail -n1 kept) == 20 && $(sqlite3 data.db 'PRAGMA integrity_check;') == ok ]]

        hash() (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
        want=$(hash repository)
        tar -cf "$SCRATCH/out.tar" repository
        rm -rf repository; [[ ! -e repository ]]
        tar -xf "$SCRATCH/out.tar"; [[ $(hash repository) == "$want" ]]
        [[ -z $(git -C repository status --porcelain) ]]
        rm -rf -- *; [[ -z $(ls -A) ]]
        echo good
    "#;
    works(&["git", "sqlite3", "tar"].map(Need::Program), script);
}

#[test]
fn names_links_and_attributes_work_in_a_directory_store() {
    let script = r#"
        cd "$TMPDIR"
        mkdir -p a/b c; echo one > a/b/file; echo two > c/file
        inode=$(stat -c %i a/b/file)
        mv a/b/file c/moved; [[ $(cat c/moved) == one && $(stat -c %i c/moved) == "$inode" ]]
        mv c/moved c/file; [[ $(cat c/file) == one && $(stat -c %i c/file) == "$inode" ]]
        ln c/file a/link; [[ $(stat -c '%h %i' a/link) == "2 $inode" ]]
        mv a renamed; [[ $(stat -c %i renamed/link) == "$inode" && -d renamed/b ]]
        ln -s ../c/file renamed/soft; [[ $(cat renamed/soft) == one ]]
        (! mv renamed renamed/b 2>/dev/null); (! rmdir renamed 2>/dev/null)
        rm c/file; [[ $(stat -c %h renamed/link) == 1 ]]
        exec 3<>renamed/link; rm renamed/link; echo more >&3
        [[ $(stat -L -c %h /proc/self/fd/3) == 0 && $(cat /proc/self/fd/3) == more ]]
        mkfifo fifo; chmod 0400 fifo; [[ $(stat -c '%a %F' fifo) == '400 fifo' ]]
        truncate -s 1M sparse; [[ $(stat -c '%s' sparse) == 1048576 ]]
        touch -d '2001-02-03 04:05:06.789 UTC' c; [[ $(stat -c %.9Y c) == 981173106.789000000 ]]
        setfattr -n user.a -v value sparse; [[ $(getfattr --only-values -n user.a sparse) == value ]]
        # A daemon of one's own knows no other id.
        other=$(id -u); [[ $other != 0 ]] || other=2
        setfacl -m "u:$other:r" sparse; [[ $(getfacl -cnp sparse) == *user:$other:r--* ]]
        mkdir $'\xff'; touch $'\xff/\n'; [[ -e $'\xff/\n' ]]
        cd $'\xff'; rm -r ../$'\xff'; (! touch x 2>/dev/null)
        echo good
    "#;
    works(&["setfattr", "getfattr", "setfacl", "getfacl"].map(Need::Program), script);
}

#[test]
fn what_goes_is_gone_from_the_directory() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served_from(stage, |store| {
            let session = |verb: &str| stage.holdfast().args(["session", verb, "main"]).output();
            session("open")?;
            let fill = r#"
                cd "$TMPDIR"; mkdir -p a/b/c $'\xff'; echo x | tee a/x a/b/x $'\xff/x' >/dev/null
                ln -s / link; mkfifo fifo; chmod 0000 a/b; chmod 0555 a $'\xff'
                echo "$TMPDIR"
            "#;
            let first = stage.run_in("main", fill).output()?;
            ensure!(generations(store)?.len() == 1, "{:?}", generations(store)?);
            session("rotate")?;
            status::becomes(stage, &[("generations", 0)], GOES)?;
            becomes_empty(store)?;
            let second = stage.run_in("main", fill).output()?;
            ensure!(first != second, "it has the same directory after a rotation");
            ensure!(generations(store)?.len() == 1, "{:?}", generations(store)?);
            session("close")?;
            status::becomes(stage, &[("generations", 0), ("sessions", 0)], GOES)?;
            becomes_empty(store)
        })
    });
}

/// What is in the store by the name of a generation's key.
fn generations(store: &Path) -> anyhow::Result<Vec<OsString>> {
    let names = fs::read_dir(store)?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<anyhow::Result<Vec<_>>>()?;
    let is_key = |name: &OsString| name.to_string_lossy().parse::<u32>().is_ok();
    Ok(names.into_iter().filter(is_key).collect())
}

fn becomes_empty(store: &Path) -> anyhow::Result<()> {
    let until = Instant::now() + GOES;
    while let left = generations(store)?
        && !left.is_empty()
    {
        ensure!(Instant::now() < until, "{left:?} stay in the store");
    }
    Ok(())
}

#[test]
fn a_directory_is_the_store_of_one_daemon() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served_from(stage, |store| {
            let place = |name: &str| -> PathBuf { stage.path("work").join(name) };
            let second = stage.holdfast().arg("serve").arg("--socket").arg(place("socket/control"));
            let second = second.arg("--mountpoint").arg(place("second"));
            let refused = second.args(["--store", &word(store), "--json"]).run()?;
            ensure!(refused.code() == Some(1), "{refused:?}");
            let answer: Value = serde_json::from_str(refused.stdout.trim())?;
            ensure!(answer["fault"]["code"] == "store-locked", "{answer}");
            for name in ["second", "socket"] {
                ensure!(place(name).symlink_metadata().is_err(), "{name} is left");
            }
            ensure!(
                stage.run(r#"echo still > "$TMPDIR/x"; cat "$TMPDIR/x""#).output()? == "still\n"
            );
            Ok(())
        })
    });
}

#[test]
fn a_program_can_tell_no_difference_from_memory() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served_from(stage, |_| {
            let seed = fastrand::u64(..1 << 40);
            let word = if stage.user.is_root() { "cast=alone" } else { "unprivileged=true" };
            // Everybody is to act in it.
            let script = r#"chmod 1777 "$TMPDIR"; exec "$0" subject="$TMPDIR" "$@""#;
            let shell = ["run", "--mode", "shared", "--", "bash", "-c", script];
            let program = stage.holdfast().args(shell).arg(stage.path("bin/differential"));
            let program = program.arg(format!("reference={}", stage.tmpfs("reference")?.display()));
            let program = program.arg(format!("seed={seed}")).args(["sequences=20", word]);
            let finished = program.run()?;
            let summary: Summary =
                serde_json::from_str(&finished.stdout).with_context(|| format!("{finished:?}"))?;
            if let Some(failure) = summary.failure {
                anyhow::bail!("from seed {seed}: {failure}");
            }
            ensure!(summary.sequences == 20, "only {} were run", summary.sequences);
            Ok(())
        })
    });
}
