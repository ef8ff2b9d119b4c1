//! What happened can be read afterwards and watched live: who tried to take a directory away, and
//! that nobody is told what is another user's.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_tests::command::{Program, Running};
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::mounts;
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_each_user, as_root};
use holdfast_tests::user::User;
use serde_json::{Value, json};

/// How long a page may take; it tells a hang from a wait.
const PAGE: Duration = Duration::from_secs(60);

/// A session with a private lease that somebody holds, so that there is something to take away.
struct Session {
    id: String,
    lease: String,
    directory: String,
    _running: Running,
}

impl Session {
    fn begin(stage: &Stage) -> anyhow::Result<Self> {
        stage.holdfast().args(["session", "open", "main"]).output()?;
        let shown = stage.holdfast().args(["session", "show", "main", "--json"]).output()?;
        let shown: Value = serde_json::from_str(&shown)?;
        let id = shown["session"]["id"].as_str().context("an id")?.to_owned();
        let run = stage.holdfast().args(["run", "--session", "main", "--lease", "private", "--"]);
        let mut running = run.args(["bash", "-c", r#"echo "$TMPDIR"; read -r _"#]).start()?;
        let directory = running.line()?;
        let lease = directory.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Self { id, lease, directory, _running: running })
    }

    /// The directory as events name it.
    fn path(&self) -> String {
        format!("{}/1/{}", self.id, self.lease)
    }
}

/// Runs a command that must fail, with the directory as `$1`; the id that its process had.
fn attempt(stage: &Stage, user: &User, command: &str, directory: &str) -> anyhow::Result<u32> {
    let script = format!(r#"{command} 2> /dev/null & echo $!; if wait $!; then exit 9; fi"#);
    let program = Program::bash(&script).arg("bash").arg(directory);
    Ok(stage.program_as(user, program).output()?.trim().parse()?)
}

/// The next event of a program that watches.
fn event(watching: &mut Running) -> anyhow::Result<Value> {
    let line = watching.line()?;
    serde_json::from_str(&line).with_context(|| line)
}

/// A client that speaks to the socket by hand.
struct Client(UnixStream);

impl Client {
    fn new(user: &User, daemon: &Daemon) -> anyhow::Result<Self> {
        // Whose it is, is decided when it connects.
        let stream = user.act(|| Ok(UnixStream::connect(&daemon.socket)?))?;
        stream.set_read_timeout(Some(PAGE))?;
        Ok(Self(stream))
    }

    fn ask(&mut self, parameters: &Value, more: bool) -> anyhow::Result<()> {
        let method = "org.holdfast.Namespace.Watch";
        let call = json!({ "method": method, "parameters": parameters, "more": more });
        Ok(self.0.write_all(format!("{call}\0").as_bytes())?)
    }

    /// The next message; `None` at the end of the connection.
    fn message(&mut self) -> anyhow::Result<Option<Value>> {
        let (mut bytes, mut byte) = (Vec::new(), [0]);
        loop {
            match self.0.read(&mut byte) {
                Ok(0) => break,
                Ok(_) if byte == [0] => return Ok(Some(serde_json::from_slice(&bytes)?)),
                Ok(_) => bytes.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error.into()),
            }
        }
        ensure!(bytes.is_empty(), "the connection ended within a message");
        Ok(None)
    }

    /// Everything that the daemon still knows and this user may see.
    fn all(user: &User, daemon: &Daemon) -> anyhow::Result<Value> {
        let mut client = Self::new(user, daemon)?;
        client.ask(&json!({ "after": 0 }), false)?;
        let mut answer = client.message()?.context("no answer")?;
        ensure!(answer.get("error").is_none(), "{answer}");
        Ok(answer["parameters"].take())
    }
}

#[test]
fn a_refused_removal_is_told_with_process_user_program_and_path() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let session = Session::begin(stage)?;
            let (user, directory) = (&stage.user, session.directory.as_str());
            let mountpoint = daemon.mountpoint.to_str().context("a name")?;
            let rename = "mv -T \"$1\" \"$1\"-other";
            let replace = "mkdir \"$1\"-mine; exec mv -T \"$1\"-mine \"$1\"";
            let replace = format!("({replace})");
            let mut wanted = Vec::new();
            for (attempted, program, command, place) in [
                ("remove", "rm", "rm -rf \"$1\"", mountpoint),
                ("remove", "rmdir", "rmdir \"$1\"", directory),
                ("rename", "mv", rename, directory),
                ("replace", "mv", &replace, directory),
            ] {
                let pid = attempt(stage, user, command, place)?;
                wanted.push((attempted, program, pid));
            }
            // It is all over when somebody asks for the first time.
            let mut late = stage.holdfast().args(["watch", "--all", "--json"]).start()?;
            let first = event(&mut late)?;
            ensure!(first["number"] == 1 && first["kind"] == "mounted", "{first}");
            for ((attempted, program, pid), number) in wanted.into_iter().zip(2..) {
                let told = event(&mut late)?;
                let at = told["at_ms"].as_u64().context("a time")?;
                ensure!(first["at_ms"].as_u64().is_some_and(|first| first <= at), "{told}");
                let message =
                    format!("{program} was refused to {attempted} a directory of the session");
                let wanted = json!({
                    "number": number,
                    "at_ms": at,
                    "kind": "removal_refused",
                    "message": message,
                    "session": session.id,
                    "lease": session.lease,
                    "attempt": attempted,
                    "uid": user.uid,
                    "pid": pid,
                    "executable": program,
                    "path": session.path(),
                    "count": 1,
                });
                ensure!(told == wanted, "{told} is not {wanted}");
            }
            Ok(())
        })
    });
}

#[test]
fn a_watch_tells_live_and_says_that_the_daemon_ends() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = stage.serve()?;
        let session = Session::begin(stage)?;
        let watch = |more: &[&str]| stage.holdfast().args(["watch", "--all"]).args(more).start();
        let (mut lines, mut words) = (watch(&["--json"])?, watch(&[])?);
        ensure!(event(&mut lines)?["kind"] == "mounted");
        ensure!(words.line()?.contains(" 1 the namespace is served"));
        for number in 2..5 {
            let pid = attempt(stage, &stage.user, "rmdir \"$1\"", &session.directory)?;
            let told = event(&mut lines)?;
            ensure!(told["number"] == number && told["pid"] == pid, "{told}");
            let line = words.line()?;
            let wanted = format!(
                " {number} rmdir was refused to remove a directory of the session: {} \
                 (pid {pid}, uid {})",
                session.path(),
                stage.user.uid,
            );
            ensure!(line.ends_with(&wanted), "{line:?} is not {wanted:?}");
            // A moment in UTC, as RFC 3339 writes it.
            let moment = line.split(' ').next().context("a moment")?;
            ensure!(moment.len() == 24 && moment.ends_with('Z'), "{line:?}");
        }
        stage.holdfast().args(["down", "--force"]).output()?;
        daemon.finish()?.success()?;
        let last = event(&mut lines)?;
        ensure!(last["fault"]["code"] == "stopping", "{last}");
        for watch in [lines, words] {
            let finished = watch.finish()?;
            ensure!(finished.code() == Some(1), "{finished:?}");
            ensure!(finished.fault() == Some("stopping"), "{finished:?}");
        }
        drop(session);
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn what_becomes_of_the_mount_is_told_and_which_leases_lose_their_handles() {
    as_each_user(&[Need::Fuse, Need::Root], |stage| {
        while_served(stage, |daemon| {
            let session = Session::begin(stage)?;
            let mut watching = stage.holdfast().args(["watch", "--all", "--json"]).start()?;
            let mut next = |kinds: &[&str]| -> anyhow::Result<Value> {
                let told = event(&mut watching)?;
                let kind = told["kind"].as_str().unwrap_or_default();
                ensure!(kinds.contains(&kind), "{told} is none of {kinds:?}");
                Ok(told)
            };
            let first = next(&["mounted"])?;
            mounts::abort_fuse_connections();
            let mut wanted = BTreeSet::from(["aborted", "remounted", "handles_dead"]);
            while !wanted.is_empty() {
                let told = next(&Vec::from_iter(wanted.iter().copied()))?;
                wanted.retain(|kind| told["kind"] != **kind);
                match told["kind"].as_str() {
                    Some("remounted") => {
                        ensure!(told["epoch"].as_u64() > first["epoch"].as_u64(), "{told}");
                    }
                    Some("handles_dead") => {
                        ensure!(told["lease"] == session.lease.as_str(), "{told}");
                        ensure!(told["session"] == session.id.as_str(), "{told}");
                    }
                    _ => ensure!(told["epoch"] == first["epoch"], "{told}"),
                }
            }
            let detach = Program::new("umount").arg("-l").arg(&daemon.mountpoint);
            stage.program_as(&User::same(), detach).output()?;
            next(&["detached"])?;
            // Who has a daemon of their own gets a new mount: the same one can't come back there.
            let back = if stage.user.is_root() { "reattached" } else { "remounted" };
            ensure!(next(&[back])?["took_ms"].is_u64());
            Ok(())
        })
    });
}

#[test]
fn a_watch_ends_when_nobody_reads_it_any_more() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            // Nothing happens after the first line.
            let script = r#""$1" watch --all | head -n 1; echo "${PIPESTATUS[0]}""#;
            let watch = Program::bash(script).arg("bash").arg(stage.path("bin/holdfast"));
            let printed = stage.program(watch).output()?;
            ensure!(
                printed.ends_with(" 1 the namespace is served (connection 1)\n0\n"),
                "{printed}"
            );
            Ok(())
        })
    });
}

#[test]
fn nobody_is_told_what_is_done_to_another_users_session() {
    as_root(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let root = stage.user.clone();
            let owner = stage.for_user(User::ordinary());
            let other = User::other().context("root runs this")?;
            let session = Session::begin(&owner)?;
            let pid = attempt(stage, &root, "rmdir \"$1\"", &session.directory)?;
            // Live for the owner, so that it is noted when the others ask.
            let mut live = owner.holdfast().args(["watch", "--after", "1", "--json"]).start()?;
            let told = event(&mut live)?;
            ensure!(told["uid"] == 0 && told["pid"] == pid, "{told}");
            ensure!(told["path"] == session.path(), "{told}");
            for (user, seen) in [(&root, 2), (&owner.user, 2), (&other, 1)] {
                let page = Client::all(user, daemon)?;
                let events = page["events"].as_array().context("events")?;
                ensure!(events.len() == seen, "uid {} sees {page}", user.uid);
                ensure!(events[0]["kind"] == "mounted" && page["last"] == 2, "{page}");
            }
            Ok(())
        })
    });
}

#[test]
fn a_client_in_any_language_can_watch() {
    as_each_user(&[Need::Fuse], |stage| {
        let daemon = stage.serve()?;
        let session = Session::begin(stage)?;
        let mut client = Client::new(&stage.user, &daemon)?;
        client.ask(&json!({ "after": 0 }), true)?;
        let first = client.message()?.context("a page")?;
        ensure!(first["continues"] == true, "{first}");
        ensure!(first["parameters"]["events"][0]["kind"] == "mounted", "{first}");
        let pid = attempt(stage, &stage.user, "rmdir \"$1\"", &session.directory)?;
        let page = client.message()?.context("a page")?;
        ensure!(page["continues"] == true, "{page}");
        ensure!(page["parameters"]["events"][0]["pid"] == pid, "{page}");
        ensure!(page["parameters"]["missed"] == 0 && page["parameters"]["last"] == 2, "{page}");
        stage.holdfast().args(["down", "--force"]).output()?;
        let last = client.message()?.context("a last page")?;
        ensure!(last["continues"] != true && last["parameters"]["last"] == 2, "{last}");
        ensure!(client.message()?.is_none(), "something follows the last page");
        daemon.finish()?.success()?;
        drop(session);
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn thousands_of_attempts_are_few_events_and_one_line_of_the_log() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let session = Session::begin(stage)?;
            let mut watching =
                stage.holdfast().args(["watch", "--after", "1", "--json"]).start()?;
            // Of one process, and then of one for each.
            let one = r#"mapfile -t all < <(yes "$1" | head -n 3000); exec rmdir "${all[@]}""#;
            let many = r#"for ((i = 0; i < 300; i++)); do rmdir "$1" || :; done; false"#;
            for (script, all, most) in [(one, 3000, 100), (many, 300, 150)] {
                attempt(stage, &stage.user, &format!("({script})"), &session.directory)?;
                let (mut counted, mut lines) = (0, 0);
                while counted < all {
                    let told = event(&mut watching)?;
                    ensure!(told["executable"] == "rmdir", "{told}");
                    ensure!(told["session"] == session.id.as_str(), "{told}");
                    counted += told["count"].as_u64().context("a count")?;
                    lines += 1;
                }
                ensure!(counted == all && lines <= most, "{counted} attempts in {lines} events");
            }
            let log = stage.path(&format!("daemon-{}.log", stage.user.uid));
            let log = std::fs::read_to_string(log)?;
            ensure!(log.matches("a removal was refused").count() == 1, "{log}");
            Ok(())
        })
    });
}
