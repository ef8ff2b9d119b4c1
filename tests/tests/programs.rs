//! Real programs with their temporary files, or all of their files, in a lease.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_tests::daemon::while_served;
use holdfast_tests::need::{self, Need};
use holdfast_tests::stage::{Stage, as_each_user};
use holdfast_tests::user::is_root;
use rustix::mount::mount_bind;

/// All that a tree is, but for the sizes of directories: names, types, modes, owners, times, links
/// and contents.
const HASH: &str = r#"
    hash() (
        cd "$1"
        {
            find . -mindepth 1 -type d -printf '%P %y %m %U:%G %T@\n' | sort
            find . -mindepth 1 ! -type d -printf '%P %y %m %U:%G %T@ %n %s %l\n' | sort
            find . -type f -print0 | sort -z | xargs -0 sha256sum
        } | sha256sum
    )
"#;

/// Runs a script in a lease of its own.
fn works(needs: &[Need], script: &str) {
    as_each_user(&[&[Need::Fuse], needs].concat(), |stage| {
        while_served(stage, |_| succeeds(stage, script))
    });
}

fn succeeds(stage: &Stage, script: &str) -> anyhow::Result<()> {
    let program = stage.run(script).deadline(Duration::from_secs(240));
    let printed = program.env("SCRATCH", stage.path("work")).output()?;
    let last = printed.lines().last();
    ensure!(last == Some("good"), "it stopped after {last:?}");
    Ok(())
}

#[test]
fn a_repository_of_thousands_of_files_is_committed() {
    let script = r#"
        cd "$TMPDIR"
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        export GIT_CONFIG_NOSYSTEM=1
        git init -q -b main repository && cd repository
        for directory in $(seq 60); do
            mkdir -p "tree/$directory"
            for file in $(seq 50); do echo "$directory $file" > "tree/$directory/$file"; done
        done
        ln -s tree/1 link && chmod +x tree/1/1
        git add . && git commit -q -m first
        [[ -z $(git status --porcelain) && $(git ls-files | wc -l) == 3001 ]]
        sed -i 's/^/changed /' tree/7/*
        git mv tree/8 tree/eight
        git commit -q -a -m second
        git gc -q && git fsck --strict --no-progress
        git clone -q . ../clone
        diff -r --no-dereference -x .git . ../clone
        git checkout -q HEAD~1 && [[ -z $(git status --porcelain) && -d tree/8 ]]
        git stash list && git worktree add -q ../worktree main && rm -rf ../worktree
        echo good
    "#;
    works(&[Need::Program("git")], script);
}

#[test]
fn sqlite_keeps_a_write_ahead_log() {
    let script = r#"
        cd "$TMPDIR"
        sqlite3 data.db 'PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);'
        writer() {
            for i in $(seq 40); do
                sqlite3 -cmd '.timeout 20000' data.db "INSERT INTO t(v) VALUES('$1 $i');"
            done
        }
        # One connection stays open, so that the log and its shared index stay in use.
        exec {input}> >(exec sqlite3 -cmd '.timeout 20000' data.db > kept); kept=$!
        echo "BEGIN; SELECT count(*) FROM t;" >&$input
        writer a & a=$!; writer b & b=$!; wait "$a"; wait "$b"
        [[ -e data.db-wal && -e data.db-shm ]]
        echo "COMMIT; SELECT count(*) FROM t;" >&$input
        exec {input}>&-; wait "$kept"
        [[ $(tail -n1 kept) == 80 ]]
        [[ $(sqlite3 data.db 'PRAGMA integrity_check; SELECT count(*) FROM t;') == $'ok\n80' ]]
        sqlite3 data.db 'PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode=DELETE; VACUUM;'
        echo good
    "#;
    works(&[Need::Program("sqlite3")], script);
}

#[test]
fn a_tree_copied_or_unpacked_there_is_the_same() {
    let script = r#"
        source_tree() {
            mkdir "$1" && cd "$1"
            for directory in $(seq 20); do
                mkdir -p "d$directory/deeper/still"
                for file in $(seq 15); do
                    head -c $((directory * file * 13)) /dev/urandom > "d$directory/deeper/f$file"
                done
            done
            ln d1/deeper/f1 hard-link && ln d1/deeper/f1 d2/hard-link
            ln -s nowhere dangling && ln -s d1/deeper link && mkfifo fifo
            touch -d '1969-12-31 23:59:58.123456789 UTC' d1/deeper/f2
            touch -d '2042-03-04 05:06:07.987654321 UTC' d1/deeper/f3
            touch -h -d '2001-02-03 04:05:06.5 UTC' link
            chmod 4755 d1/deeper/f4; chmod 2750 d3; chmod 0444 d1/deeper/f5; chmod 0000 d1/deeper/f6
            printf x > $'name\nwith\xff' && truncate -s 1M sparse && printf x >> sparse
            chmod 0555 d4/deeper; touch -d '2010-01-01 UTC' d5 d6/deeper .
            # What its owner can't read can't be copied either.
            [[ $(id -u) == 0 ]] || chmod 0400 d1/deeper/f6
        }
        (source_tree "$SCRATCH/source")
        want=$(hash "$SCRATCH/source")
        cp -a "$SCRATCH/source/." "$TMPDIR"
        [[ $(hash "$TMPDIR") == "$want" ]]
        [[ $(stat -c %Y "$TMPDIR") == $(stat -c %Y "$SCRATCH/source") ]]
        tar -C "$TMPDIR" --format=posix -cf "$SCRATCH/out.tar" .
        find "$TMPDIR" -mindepth 1 -type d -exec chmod u+w {} +
        find "$TMPDIR" -mindepth 1 -delete
        [[ -z $(ls -A "$TMPDIR") ]]
        tar -C "$TMPDIR" -xpf "$SCRATCH/out.tar"
        [[ $(hash "$TMPDIR") == "$want" ]]
        mkdir "$SCRATCH/back" && cp -a "$TMPDIR/." "$SCRATCH/back"
        [[ $(hash "$SCRATCH/back") == "$want" ]]
        cp -a "$TMPDIR" "$TMPDIR.copy" 2>/dev/null && exit 1
        echo good
    "#;
    works(&[Need::Program("tar")], &format!("{HASH}{script}"));
}

#[test]
fn sort_spills_into_the_lease() {
    let script = r#"
        numbers() { seq 300000 | awk '{ print ($1 * 7919) % 300007 }'; }
        spilling() { sort -n -S 500K --parallel=1; }
        want=$(numbers | TMPDIR=/dev/shm spilling | cksum)
        # Without a place to spill to it fails, so this much really spills.
        ! numbers | TMPDIR=/nowhere spilling >/dev/null 2>&1
        [[ $(numbers | spilling | cksum) == "$want" ]]
        [[ -z $(ls -A "$TMPDIR") ]]
        echo good
    "#;
    works(&[], script);
}

#[test]
fn a_shared_mapping_is_seen_by_another_process() {
    let script = r#"
        /usr/bin/python3 - <<'END'
import mmap, os
path = os.environ["TMPDIR"] + "/shared"
with open(path, "wb") as file:
    file.truncate(3 * 4096)
there, back = os.pipe(), os.pipe()
if os.fork() == 0:
    file = open(path, "r+b"); memory = mmap.mmap(file.fileno(), 0)
    os.read(there[0], 1)
    assert memory[4090:4106] == b"from the parent!"
    memory[8000:8005] = b"child"
    os.write(back[1], b"x")
    os.read(there[0], 1)
    assert os.pread(file.fileno(), 4, 100) == b"call"
    os._exit(0)
file = open(path, "r+b"); memory = mmap.mmap(file.fileno(), 0)
memory[4090:4106] = b"from the parent!"
os.write(there[1], b"x"); os.read(back[0], 1)
assert memory[8000:8005] == b"child"
os.pwrite(file.fileno(), b"call", 100)
assert memory[100:104] == b"call", memory[100:104]
memory.flush(); os.write(there[1], b"x")
assert os.wait()[1] == 0
memory.close(); file.close()
data = open(path, "rb").read()
assert len(data) == 3 * 4096 and data[4090:4106] == b"from the parent!" and data[8000:8005] == b"child"
print("good")
END
    "#;
    works(&[Need::Program("python3")], script);
}

#[test]
fn two_processes_exclude_each_other() {
    let script = r#"
        cd "$TMPDIR"
        exec 8>lock; flock 8
        ! flock -n lock true
        mkfifo waits
        (exec 8>&-; exec 9>lock; echo waits > waits; flock 9; echo second >> order) & second=$!
        read -r _ < waits
        echo first >> order
        flock -u 8; wait "$second"
        [[ $(cat order) == $'first\nsecond' ]]
        /usr/bin/python3 - <<'END'
import fcntl, os, struct, sys
one, two = open("lock", "r+"), open("lock", "r+")
def posix(file, kind, start, length):
    try:
        fcntl.fcntl(file, 37, struct.pack("hhqqi4x", kind, 0, start, length, 0))  # F_OFD_SETLK
        return True
    except OSError:
        return False
assert posix(one, fcntl.F_WRLCK, 0, 10) and not posix(two, fcntl.F_WRLCK, 5, 10)
assert posix(two, fcntl.F_WRLCK, 10, 10) and posix(one, fcntl.F_UNLCK, 0, 10)
assert posix(two, fcntl.F_WRLCK, 5, 10)
END
        echo good
    "#;
    works(&[Need::Program("flock"), Need::Program("python3")], script);
}

#[test]
fn access_lists_and_attributes_are_kept() {
    let script = r#"
        cd "$TMPDIR"
        # A daemon of one's own knows no other id.
        other=$(id -u); [[ $other != 0 ]] || other=2
        mkdir d; setfacl -m "u:$other:rwx,g:$other:r-x" d
        setfacl -d -m "u:$other:rwx,g::r-x,o::---" d
        acl() { getfacl -cnpE "$1" | sed '/^$/d'; }
        [[ $(acl d | grep -c '^default:') == 5 && $(acl d) == *"user:$other:rwx"* ]]
        umask 0; touch d/file; mkdir d/below
        want=$(printf '%s\n' user::rw- "user:$other:rwx" group::r-x mask::rw- other::---)
        [[ $(acl d/file) == "$want" ]]
        [[ $(acl d/below | grep '^default:') == "$(acl d | grep '^default:')" ]]
        [[ $(stat -c %a d/file) == 660 ]]
        chmod 640 d/file; [[ $(acl d/file) == *'mask::r--'* ]]
        getfacl -np d d/file d/below > "$SCRATCH/acl"
        setfacl -b -k d d/file d/below; [[ $(acl d | wc -l) == 3 ]]
        setfacl --restore="$SCRATCH/acl"; getfacl -np d d/file d/below | cmp - "$SCRATCH/acl"
        cp -a d copy; [[ $(acl copy/file) == "$(acl d/file)" ]]

        setfattr -n user.text -v 'some text' d/file
        setfattr -n user.bytes -v 0x00ff0a20 d/file; setfattr -n user.empty d/file
        [[ $(getfattr --only-values -n user.text d/file) == 'some text' ]]
        [[ $(getfattr -e hex -n user.bytes d/file | grep bytes) == user.bytes=0x00ff0a20 ]]
        getfattr -d -e hex -m '^user\.' d/file > "$SCRATCH/attributes"
        [[ $(grep -c '^user' "$SCRATCH/attributes") == 3 ]]
        cp -a d/file d/copy
        getfattr -d -e hex -m '^user\.' d/copy | tail -n+2 | cmp - <(tail -n+2 "$SCRATCH/attributes")
        setfattr -x user.text d/file; (! getfattr -n user.text d/file 2>/dev/null)
        setfattr --restore="$SCRATCH/attributes"
        getfattr -d -e hex -m '^user\.' d/file | cmp - "$SCRATCH/attributes"
        echo good
    "#;
    let programs = ["setfacl", "getfacl", "setfattr", "getfattr"].map(Need::Program);
    works(&programs, script);
}

#[test]
fn a_crate_is_built_with_its_target_directory_there() {
    as_each_user(&[Need::Fuse, Need::Cargo, Need::Program("gcc")], |stage| {
        let toolchain = need::toolchain().context("the toolchain is there")?;
        let toolchain = if is_root() {
            // Root's home need not be open to others; a mount of it is.
            let place = stage.make_directory("toolchain", 0o755)?;
            mount_bind(&toolchain, &place)?;
            place
        } else {
            toolchain
        };
        let source = stage.make_directory("work/crate/src", 0o777)?;
        let root = source.parent().context("the crate")?;
        fs::write(root.join("Cargo.toml"), MANIFEST)?;
        fs::write(source.join("lib.rs"), "pub fn answer() -> u32 { 42 }\n#[test] fn t() {}\n")?;
        fs::write(source.join("main.rs"), MAIN)?;
        let script = r#"
            export PATH="$TOOLCHAIN/bin:$PATH" CARGO_HOME="$TMPDIR/cargo"
            export CARGO_TARGET_DIR="$TMPDIR/target" RUSTC="$TOOLCHAIN/bin/rustc"
            unset RUSTFLAGS RUSTC_WRAPPER CARGO_ENCODED_RUSTFLAGS
            cp -r "$SCRATCH/crate" "$TMPDIR/crate" && cd "$TMPDIR/crate"
            cargo build --offline -q
            [[ $("$TMPDIR/target/debug/small") == "the answer is 42" ]]
            sed -i s/42/43/ src/lib.rs
            cargo run --offline -q | grep -qx 'the answer is 43'
            cargo test --offline -q >/dev/null
            cargo clean -q && [[ ! -e $TMPDIR/target/debug ]]
            echo good
        "#;
        while_served(stage, |_| {
            let program = stage.run(script).deadline(Duration::from_secs(240));
            let program = program.env("SCRATCH", stage.path("work")).env("TOOLCHAIN", &toolchain);
            ensure!(program.output()?.ends_with("good\n"));
            Ok(())
        })
    });
}

const MANIFEST: &str = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
const MAIN: &str = "fn main() { println!(\"the answer is {}\", small::answer()); }\n";
