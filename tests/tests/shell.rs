//! Real Bash in a lease: what a shell does with a temporary directory, and that the command is in
//! nobody's hands but the caller's.

use std::path::Path;

use anyhow::{Context as _, ensure};
use holdfast_tests::command::{Finished, Program};
use holdfast_tests::daemon::while_served;
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_each_user};

/// Runs a script in a lease of its own; it must print this.
fn prints(needs: &[Need], script: &str, expected: &str) {
    as_each_user(&[&[Need::Fuse], needs].concat(), |stage| {
        while_served(stage, |_| {
            let printed = stage.run(script).output()?;
            ensure!(printed == expected, "{printed:?} instead of {expected:?}");
            Ok(())
        })
    });
}

#[test]
fn here_documents_and_process_substitution_work() {
    let script = r#"
        cd "$TMPDIR"
        cat > poem <<END
one $((1 + 1))
END
        cat <<<"three" >> poem
        diff <(sort poem) <(printf 'one 2\nthree\n')
        while read -r line; do echo "read $line"; done < <(tee copy < poem)
        cmp poem copy
    "#;
    prints(&[], script, "read one 2\nread three\n");
}

#[test]
fn a_large_here_document_goes_through_the_lease() {
    // Bash writes one that doesn't fit into a pipe to a file in TMPDIR.
    let script = r#"
        text=$(head --bytes=300000 /dev/zero | tr '\0' x)
        sum=$(cat <<END | cksum
$text
END
        )
        [[ $sum == "$(printf '%s\n' "$text" | cksum)" ]]
        ls -A "$TMPDIR" | wc -l
    "#;
    prints(&[], script, "0\n");
}

#[test]
fn temporary_files_and_fifos_work() {
    let script = r#"
        file=$(mktemp) directory=$(mktemp -d) fifo=$(mktemp -u)
        for path in "$file" "$directory" "$fifo"; do [[ $path == "$TMPDIR"/* ]]; done
        stat -c '%a %F' "$file" "$directory"
        mkfifo "$fifo"
        (for i in 1 2 3; do echo "line $i"; done > "$fifo") &
        cat < "$fifo"
        wait
        rm "$file" "$fifo"; rmdir "$directory"
        ls -A "$TMPDIR" | wc -l
    "#;
    let expected = "600 regular empty file\n700 directory\nline 1\nline 2\nline 3\n0\n";
    prints(&[], script, expected);
}

#[test]
fn a_unix_socket_in_the_lease_works() {
    let script = r#"
        /usr/bin/python3 - <<'END'
import os, socket
path = os.environ["TMPDIR"] + "/a-socket-with-a-name-of-some-length"
assert len(path) < 108, len(path)
server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
if os.fork() == 0:
    client = socket.socket(socket.AF_UNIX); client.connect(path); client.sendall(b"hello"); os._exit(0)
connection, _ = server.accept()
print(connection.recv(100).decode(), oct(os.stat(path).st_mode >> 12))
assert os.wait()[1] == 0
os.unlink(path)
END
        ((${#TMPDIR} < 60)) && echo short
    "#;
    prints(&[Need::Program("python3")], script, "hello 0o14\nshort\n");
}

#[test]
fn a_script_written_there_is_executed() {
    let script = r#"
        cd "$TMPDIR"
        printf '#!/bin/bash\necho "script got $1"\n' > script
        chmod +x script
        ./script argument
        cp /bin/echo program && ./program binary
        exec ./script last
    "#;
    prints(&[], script, "script got argument\nbinary\nscript got last\n");
}

#[test]
fn every_name_of_the_temporary_directory_is_the_lease() {
    let script = r#"
        [[ $TMPDIR == "$TMP" && $TMPDIR == "$TEMP" && -S $HOLDFAST_SOCKET ]]
        stat -f -c %T "$TMPDIR" >/dev/null
        [[ $(stat -c %u "$TMPDIR") == "$(id -u)" && -w $TMPDIR && -x $TMPDIR ]]
        echo "${TMPDIR//[a-z0-9]/x}"
    "#;
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let printed = stage.run(script).output()?;
            let at = daemon.mountpoint.display().to_string();
            let shape = format!("{at}/kkkkkkkk/1\n").replace(|c: char| c.is_alphanumeric(), "x");
            ensure!(printed == shape, "{printed:?} instead of {shape:?}");
            Ok(())
        })
    });
}

/// Runs a program directly and in a lease; gives both ends.
fn both(stage: &Stage, script: &str) -> anyhow::Result<[Finished; 2]> {
    let direct = Program::new("bash").args(["-c", script]);
    let leased = stage.holdfast().args(["run", "--", "bash", "-c", script]);
    Ok([stage.program(direct).run()?, leased.run()?])
}

#[test]
fn the_exit_status_is_the_commands_own() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            for code in [0, 1, 7, 125, 126, 127, 200, 255] {
                let [direct, leased] = both(stage, &format!("exit {code}"))?;
                ensure!(
                    leased.code() == Some(code) && leased.status == direct.status,
                    "{leased:?}"
                );
                ensure!(leased.stderr.is_empty(), "{leased:?}");
            }
            let missing = stage.holdfast().args(["run", "--", "/nowhere/program"]).run()?;
            ensure!(missing.code() == Some(127), "{missing:?}");
            let refused = stage.holdfast().args(["run", "--", "/etc/passwd"]).run()?;
            ensure!(refused.code() == Some(126), "{refused:?}");
            Ok(())
        })
    });
}

#[test]
fn a_signal_ends_the_command_itself() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            for signal in [1, 2, 3, 6, 9, 10, 13, 15] {
                // Bash ignores some of them; what it becomes doesn't.
                let script = format!("exec sh -c 'kill -{signal} $$; exec sleep 60'");
                let [direct, leased] = both(stage, &script)?;
                ensure!(leased.signal() == Some(signal), "signal {signal}: {leased:?}");
                ensure!(leased.signal() == direct.signal());
            }
            Ok(())
        })
    });
}

#[test]
fn the_command_takes_the_place_of_run() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let script = "echo $$ $PPID; read -r line; echo $line; exit 3";
            let program = stage.holdfast().args(["run", "--", "bash", "-c", script]);
            let mut running = program.start()?;
            let own = format!("{} {}", running.id(), std::process::id());
            let line = running.line()?;
            ensure!(line == own, "{line} instead of {own}");
            running.say("a word")?;
            ensure!(running.line()? == "a word");
            ensure!(running.finish()?.code() == Some(3));
            Ok(())
        })
    });
}

#[test]
fn the_surroundings_are_the_callers_own() {
    // Signals that are ignored or blocked, limits, descriptors, directory, umask.
    let script = r"
        grep -E '^(SigBlk|ShdPnd|Cap|NoNewPrivs|Umask|Groups|[UG]id)' /proc/self/status
        # The first two real-time signals are the C library's own.
        ignored=$(grep -oP '^SigIgn:\s*\K.*' /proc/self/status); echo $((16#$ignored & ~(3 << 31)))
        ls /proc/self/fd
        ulimit -a
        pwd; nice; yes | head -n1; echo ${PIPESTATUS[0]}
        ls -l /proc/self/fd/0 /proc/self/fd/2 | grep -o pipe
    ";
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let [direct, leased] = both(stage, script)?;
            ensure!(direct.stdout == leased.stdout, "{}\n{}", direct.stdout, leased.stdout);
            ensure!(leased.stdout.contains("\ny\n141\n"), "{}", leased.stdout);

            let script = r#"
                trap '' PIPE HUP; umask 027; cd "$HOME"; exec 5<<<"through a descriptor"
                "$@" bash -c 'umask; pwd; cat <&5; grep SigIgn /proc/self/status'
            "#;
            let bash = || Program::bash(script).arg("bash");
            let direct = stage.program(bash()).output()?;
            let holdfast = stage.path("bin/holdfast");
            let leased = stage.program(bash().arg(holdfast).args(["run", "--"])).output()?;
            ensure!(direct == leased, "{direct}\n{leased}");
            Ok(())
        })
    });
}

#[test]
fn the_terminal_is_the_commands_own() {
    let driver = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
said = b""
while b"ready" not in said:
    said += os.read(terminal, 1000)
os.write(terminal, b"\x03")
while True:
    try:
        if not os.read(terminal, 1000):
            break
    except OSError:
        break
status = os.waitpid(pid, 0)[1]
print(said.decode().split(), os.WIFSIGNALED(status) and os.WTERMSIG(status))
"#;
    let script = "test -t 0 && test -t 1 && test -t 2 && : </dev/tty && ps -o tpgid= -p $$ | \
                  tr -d ' ' | sed s/^$$\\$/foreground/; echo ready; exec sleep 60";
    as_each_user(&[Need::Fuse, Need::Program("python3"), Need::Program("ps")], |stage| {
        while_served(stage, |_| {
            let python = Program::new("/usr/bin/python3").args(["-c", driver]);
            let holdfast = stage.path("bin/holdfast");
            let program = python.arg(holdfast).args(["run", "--", "bash", "-c", script]);
            let printed = stage.program(program).output()?;
            ensure!(printed == "['foreground', 'ready'] 2\n", "{printed:?}");
            Ok(())
        })
    });
}

/// Nothing was started, and the fault is told: on standard error, and as JSON where it's asked for.
fn is_refused(program: Program, mark: &Path, code: &str) -> anyhow::Result<()> {
    let touch = format!("touch {}", mark.display());
    let finished = program.args(["--", "bash", "-c", &touch]).run()?;
    ensure!(finished.code() == Some(125), "{finished:?}");
    ensure!(finished.fault() == Some(code), "{finished:?}");
    ensure!(finished.stderr.contains("remedy: "), "{finished:?}");
    let line = finished.stdout.lines().last().context("no JSON")?;
    let json: serde_json::Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
    let told = json["code"].as_str().or_else(|| json["fault"]["code"].as_str());
    ensure!(told == Some(code), "{json}");
    ensure!(!mark.exists(), "the command was started");
    Ok(())
}

#[test]
fn without_storage_nothing_is_started() {
    as_each_user(&[Need::Fuse], |stage| {
        let mark = stage.path("work/mark");
        let run = || stage.holdfast().args(["run", "--status-fd", "1"]);
        // From inside a lease no daemon is started: that it's gone is the truth.
        let inside = run().env("HOLDFAST_MEMBER", "x");
        is_refused(inside, &mark, "daemon-unreachable")?;
        // The fault of the daemon that is started is what is told.
        let nowhere = run().env("HOLDFAST_MOUNTPOINT", "/nowhere/at/all");
        is_refused(nowhere, &mark, "mountpoint-parent-missing")?;
        while_served(stage, |_| {
            let unknown = run().args(["--session", "unknown"]);
            is_refused(unknown, &mark, "session-unknown")
        })
    });
}

#[test]
fn where_the_mount_is_hidden_nothing_is_started() {
    as_each_user(&[Need::Fuse, Need::Program("unshare")], |stage| {
        while_served(stage, |daemon| {
            let mark = stage.path("work/mark");
            // An ordinary user needs a user namespace to have mounts of its own.
            let flags = if stage.user.is_root() { "-m" } else { "-rm" };
            let script = r#"mount -t tmpfs none "$1"; shift; exec "$@""#;
            let program = Program::new("unshare")
                .args([flags, "--propagation", "private", "bash", "-ec", script, "bash"])
                .arg(&daemon.mountpoint)
                .arg(stage.path("bin/holdfast"))
                .arg("--socket")
                .arg(&daemon.socket)
                .args(["run", "--status-fd", "1"]);
            is_refused(stage.program(program), &mark, "mountpoint-not-visible")
        })
    });
}
