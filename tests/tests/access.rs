//! Who may do what: other users, set-id bits, and the borders between sessions.

use anyhow::{Context as _, ensure};
use holdfast_tests::command::Program;
use holdfast_tests::daemon::while_served;
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_each_user, as_root};
use holdfast_tests::user::User;

#[test]
fn another_user_is_refused_at_the_sessions_directory() {
    as_root(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let owner = stage.for_user(User::ordinary());
            let other = User::other().context("root runs this")?;
            // Everything below is open to all, and used by its owner all the time.
            let script = r#"
                umask 0; mkdir "$TMPDIR/open"; echo secret > "$TMPDIR/open/file"
                exec 3<>"$TMPDIR/open/file"
                cat "$TMPDIR/open/file" >/dev/null; ls -lR "$TMPDIR" >/dev/null
                echo "$TMPDIR"
                while read -r _; do stat "$TMPDIR/open/file" >/dev/null; cat <&3; echo; done
            "#;
            let mut running = owner.run(script).start()?;
            let lease = running.line()?;
            let session = lease.rsplit_once('/').context("a lease is below its session")?.0;
            for command in [
                format!("cat {lease}/open/file"),
                format!("stat {lease}/open/file"),
                format!("ls {lease}/open"),
                format!("stat {lease}"),
                format!("ls {session}"),
                format!("cd {session}"),
                format!("touch {lease}/open/new"),
                format!("rm -r {lease}/open"),
                format!("mkdir {session}/new"),
            ] {
                running.say("use it")?;
                running.line()?;
                let program = Program::new("bash").args(["-c", &format!("{command} || exit 9")]);
                let finished = stage.program_as(&other, program).run()?;
                ensure!(finished.code() == Some(9), "{command}: {finished:?}");
                ensure!(finished.stderr.contains("Permission denied"), "{command}: {finished:?}");
            }
            // Root's way in is no other than on any file system.
            let root = Program::new("cat").arg(format!("{lease}/open/file"));
            ensure!(stage.program(root).output()? == "secret\n");
            running.finish()?.success()?;
            Ok(())
        })
    });
}

#[test]
fn another_users_session_is_unknown_to_the_command_line() {
    as_root(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let owner = stage.for_user(User::ordinary());
            let other = stage.for_user(User::other().context("root runs this")?);
            let opened = owner.holdfast().args(["session", "open", "mine", "--json"]).output()?;
            let opened: serde_json::Value = serde_json::from_str(&opened)?;
            let id = opened.pointer("/session/id").or_else(|| opened.get("id"));
            let id = id.and_then(|id| id.as_str()).with_context(|| opened.to_string())?;
            for command in [
                &["session", "show", id][..],
                &["session", "close", id],
                &["session", "rotate", id],
                &["lease", "acquire", id],
                &["run", "--session", id, "--", "true"],
            ] {
                let finished = other.holdfast().args(command).run()?;
                let code = finished.fault();
                let refused = matches!(code, Some("session-not-yours" | "session-unknown"));
                ensure!(!finished.status.success() && refused, "{finished:?}");
            }
            ensure!(!other.holdfast().args(["session", "list"]).output()?.contains(id));
            ensure!(owner.holdfast().args(["session", "list"]).output()?.contains(id));
            ensure!(stage.holdfast().args(["session", "list"]).output()?.contains(id));
            owner.holdfast().args(["session", "close", id]).output()?;
            Ok(())
        })
    });
}

/// Prints the mode of a set-id program after each kind of change, by somebody who may not keep it.
const CHANGES: &str = r#"
import ctypes, mmap, os, sys
path, uid = sys.argv[1], int(sys.argv[2])
def mode(): return oct(os.stat(path).st_mode & 0o7777)
def fresh(bits):
    if os.path.exists(path): os.unlink(path)
    with open(path, "wb") as file: file.write(b"x" * 5000)
    os.chmod(path, bits)
def as_user(change):
    pid = os.fork()
    if pid == 0:
        if os.getuid() == 0:
            os.setgroups([]); os.setgid(uid); os.setuid(uid)
        change(); os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
def append():
    with open(path, "ab") as file: file.write(b"more")
def write_at():
    fd = os.open(path, os.O_RDWR); os.pwrite(fd, b"more", 10); os.close(fd)
def truncate(): os.truncate(path, 10)
def copy():
    fd = os.open(path, os.O_RDWR); os.copy_file_range(fd, fd, 100, 0, 4000); os.close(fd)
def allocate():
    fd = os.open(path, os.O_RDWR); os.posix_fallocate(fd, 0, 9000); os.close(fd)
def splice():
    there = os.pipe(); os.write(there[1], b"spliced")
    fd = os.open(path, os.O_WRONLY); os.splice(there[0], fd, 7, offset_dst=0); os.close(fd)
for change in append, write_at, truncate, copy, allocate, splice:
    for bits in 0o4777, 0o2777, 0o6777, 0o2767:
        fresh(bits); assert mode() == oct(bits), mode()
        held = os.open(path, os.O_RDONLY)
        as_user(change)
        assert oct(os.fstat(held).st_mode & 0o7777) == mode()
        os.close(held)
        print(change.__name__, oct(bits), mode())
"#;

#[test]
fn an_unprivileged_change_takes_the_set_id_bits() {
    as_each_user(&[Need::Fuse, Need::Program("python3")], |stage| {
        while_served(stage, |_| {
            let user = User::ordinary().uid.to_string();
            let script = r#"exec /usr/bin/python3 -c "$CHANGES" "$PLACE/file" "$WHO""#;
            let program = |program: Program| program.env("CHANGES", CHANGES).env("WHO", &user);
            let lease = format!("export PLACE=$TMPDIR; {script}");
            let shared = ["run", "--mode", "shared", "--", "bash", "-ec", &lease];
            let on_lease = program(stage.holdfast().args(shared)).output()?;
            let reference = stage.tmpfs("reference")?;
            let plain = program(stage.program(Program::bash(script))).env("PLACE", reference);
            let on_tmpfs = plain.output()?;
            ensure!(on_lease == on_tmpfs, "{on_lease}\n{on_tmpfs}");
            ensure!(on_lease.contains("append 0o4777 0o777\n"), "{on_lease}");
            Ok(())
        })
    });
}

#[test]
fn sessions_and_generations_are_file_systems_of_their_own() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            for session in ["one", "two"] {
                stage.holdfast().args(["session", "open", session]).output()?;
            }
            let fill = r#"echo here > "$TMPDIR/file"; mkdir "$TMPDIR/d"; echo "$TMPDIR""#;
            let other = stage.run_in("one", fill).output()?;
            stage.run_in("two", fill).output()?;
            let script = r#"
                cat > "$TMPDIR/try.py" <<'END'
import errno, os, sys
own, other = os.environ["TMPDIR"], os.environ["OTHER"]
def refused(call, *paths):
    try:
        call(*paths)
    except OSError as error:
        assert error.errno == errno.EXDEV, (call, paths, error)
    else:
        raise AssertionError((call, paths))
for name in "file", "d":
    refused(os.rename, f"{own}/{name}", f"{other}/new")
    refused(os.rename, f"{other}/{name}", f"{own}/new")
refused(os.link, f"{own}/file", f"{other}/new")
refused(os.link, f"{other}/file", f"{own}/new")
END
                /usr/bin/python3 "$TMPDIR/try.py"
                mv "$TMPDIR/file" "$OTHER/moved" && [[ $(cat "$OTHER/moved") == here ]]
                ! cp -l "$OTHER/moved" "$TMPDIR/linked" 2>/dev/null
                echo good
            "#;
            let two = stage.run_in("two", script).env("OTHER", other.trim());
            ensure!(two.output()? == "good\n");
            // A generation of the same session is no nearer.
            stage.holdfast().args(["session", "rotate", "one"]).output()?;
            let held =
                stage.run_in("one", r#"echo here > "$TMPDIR/file"; echo "$TMPDIR"; read -r _"#);
            let mut held = held.start()?;
            let first = held.line()?;
            stage.holdfast().args(["session", "rotate", "one"]).output()?;
            let link = r#"! ln "$OTHER/file" "$TMPDIR/file" 2>"$TMPDIR/said"; cat "$TMPDIR/said""#;
            let said = stage.run_in("one", link).env("OTHER", &first).output()?;
            ensure!(said.contains("Invalid cross-device link"), "{said}");
            held.say("done")?;
            held.finish()?.success()?;
            for session in ["one", "two"] {
                stage.holdfast().args(["session", "close", session]).output()?;
            }
            Ok(())
        })
    });
}

#[test]
fn a_child_that_dropped_its_privileges_needs_a_shared_session() {
    as_root(&[Need::Fuse, Need::Program("setpriv")], |stage| {
        while_served(stage, |_| {
            let child = r#"setpriv --reuid 2 --regid 2 --clear-groups touch "$TMPDIR/mine""#;
            let shared = stage.holdfast().args(["run", "--mode", "shared", "--", "bash", "-c"]);
            let script = format!(r#"{child} && stat -c %u:%g "$TMPDIR/mine""#);
            ensure!(shared.arg(script).output()? == "2:2\n");
            let finished = stage.run(child).run()?;
            ensure!(finished.stderr.contains("Permission denied"), "{finished:?}");
            Ok(())
        })
    });
}

/// Keeps the borders of the test's own helpers: a stage is for one user at a time.
#[test]
fn what_a_user_makes_belongs_to_them() {
    as_root(&[Need::Fuse], |stage: &Stage| {
        while_served(stage, |_| {
            for user in [User::same(), User::ordinary(), User::other().context("root runs this")?] {
                let stage = stage.for_user(user.clone());
                let script = r#"
                    cd "$TMPDIR"; umask 027
                    touch file; mkdir directory; ln -s x link; mkfifo fifo
                    stat -c '%u:%g %a' . file directory link fifo | sort | uniq -c | tr -s ' '
                "#;
                let printed = stage.run(script).output()?;
                let own = format!("{0}:{0}", user.uid);
                let expected = format!(" 2 {own} 640\n 1 {own} 700\n 1 {own} 750\n 1 {own} 777\n");
                ensure!(printed == expected, "{printed}\n{expected}");
            }
            Ok(())
        })
    });
}
