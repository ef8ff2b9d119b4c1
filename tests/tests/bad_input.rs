//! What is wrong from the start: settings, names, places, messages. Each is refused with a typed
//! error, nothing is lost, and the daemon goes on.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use anyhow::{Context as _, ensure};
use holdfast_tests::client::Client;
use holdfast_tests::command::Program;
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_each_user, as_ordinary_user, as_root};
use serde_json::{Value, json};

/// A command is refused with this fault, in words and as JSON.
fn refused(program: Program, code: &str) -> anyhow::Result<()> {
    let finished = program.arg("--json").run()?;
    ensure!(!finished.status.success() && finished.signal().is_none(), "{finished:?}");
    ensure!(finished.fault() == Some(code), "{code} is expected: {finished:?}");
    ensure!(finished.stderr.contains("remedy: "), "{finished:?}");
    let answer: Value = serde_json::from_str(finished.stdout.trim())?;
    ensure!(answer["fault"]["code"] == code, "{answer}");
    Ok(())
}

fn client(stage: &Stage, daemon: &Daemon) -> anyhow::Result<Client> {
    Client::new(&stage.user, &daemon.socket)
}

/// The daemon still does what it is there for.
fn goes_on(stage: &Stage, daemon: &Daemon) -> anyhow::Result<()> {
    let answer = client(stage, daemon)?.call("Describe", &json!({}))?;
    ensure!(answer.get("error").is_none(), "{answer}");
    ensure!(stage.run(r#"echo good > "$TMPDIR/x"; cat "$TMPDIR/x""#).output()? == "good\n");
    Ok(())
}

#[test]
fn names_that_break_the_rules_are_refused() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let long = "x".repeat(129);
            for name in ["", "a\nb", "bell\u{7}", "\u{9b}", "\u{7f}", &long] {
                refused(stage.holdfast().args(["session", "open", name]), "name-invalid")?;
            }
            let good = ["é".repeat(64), "a/../b".to_owned(), "spaces in it".to_owned()];
            for name in &good {
                stage.holdfast().args(["session", "open", name]).output()?;
                let same = stage.run_in(name, r#"[[ $TMPDIR != *..* ]]; echo same"#).output()?;
                ensure!(same == "same\n");
                stage.holdfast().args(["session", "close", name]).output()?;
            }
            // Not UTF-8, which only the socket can be asked for.
            let mut client = client(stage, daemon)?;
            let call = b"{\"method\":\"org.holdfast.Namespace.OpenSession\",\
                         \"parameters\":{\"name\":\"\xff\xfe\"}}\0";
            client.send(call)?;
            let answer = client.answer()?.context("no answer")?;
            ensure!(answer.get("error").is_some(), "{answer}");
            goes_on(stage, daemon)
        })
    });
}

#[test]
fn what_is_unknown_is_refused() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let session = |verb| stage.holdfast().args(["session", verb, "unknown"]);
            for program in [
                session("show"),
                session("close"),
                session("rotate"),
                session("resize").args(["--size", "1M"]),
                stage.holdfast().args(["check", "unknown"]),
                stage.holdfast().args(["lease", "acquire", "unknown"]),
            ] {
                refused(program, "session-unknown")?;
            }
            refused(stage.holdfast().args(["lease", "release", "aaaaaaaa"]), "lease-unknown")?;
            let bind = Program::new("bash").args(["-c", r#""$0" lease bind aaaaaaaa $$ "$@""#]);
            let bind = stage.program(bind.arg(stage.path("bin/holdfast")));
            refused(bind, "lease-unknown")?;
            // A sealed one takes no lease, and its name is free again.
            stage.holdfast().args(["session", "open", "sealed"]).output()?;
            let shown = stage.holdfast().args(["session", "show", "sealed", "--json"]).output()?;
            let shown: Value = serde_json::from_str(&shown)?;
            let id = shown["session"]["id"].as_str().context("an id")?.to_owned();
            let hold = r#"echo ready; read -r _; touch "$TMPDIR/still" && echo good"#;
            let mut running = stage.run_in("sealed", hold).start()?;
            running.line()?;
            stage.holdfast().args(["session", "close", "sealed"]).output()?;
            refused(stage.holdfast().args(["lease", "acquire", &id]), "session-sealed")?;
            refused(stage.holdfast().args(["check", "sealed"]), "session-unknown")?;
            running.say("go on")?;
            ensure!(running.finish()?.success()?.ends_with("good\n"));
            goes_on(stage, daemon)
        })
    });
}

#[test]
fn places_that_are_not_there_or_not_ours_are_refused() {
    as_each_user(&[Need::Fuse], |stage| {
        let own = stage.make_directory("own", 0o755)?;
        chown(&own, Some(stage.user.uid), Some(stage.user.uid))?;
        let serve = |name: &str, value: &str| refused_serve(stage, &[name, value]);
        let path = |name: &str| own.join(name).display().to_string();
        serve("--mountpoint", &path("nowhere/m"))?.with("mountpoint-parent-missing")?;
        fs::write(own.join("file"), "x")?;
        serve("--mountpoint", &path("file"))?.with("mountpoint-not-directory")?;
        serve("--mountpoint", &path("file/m"))?.with("mountpoint-parent-not-directory")?;
        symlink("/tmp", own.join("link"))?;
        serve("--mountpoint", &path("link"))?.with("mountpoint-symlink")?;
        let full = own.join("full");
        stage.program(Program::new("mkdir").args(["-p", "-m", mode(stage)]).arg(&full)).output()?;
        fs::write(full.join("x"), "x")?;
        serve("--mountpoint", &path("full"))?.with("mountpoint-not-empty")?;
        fs::remove_file(full.join("x"))?;
        fs::set_permissions(&full, fs::Permissions::from_mode(0o777))?;
        serve("--mountpoint", &path("full"))?.with("mountpoint-wrong-mode")?;
        ensure!(fs::metadata(&full)?.permissions().mode() & 0o7777 == 0o777, "it was changed");

        serve("--store", &format!("dir:{}", path("nowhere/s")))?.with("store-parent-missing")?;
        serve("--store", &format!("dir:{}", path("link")))?.with("store-symlink")?;
        serve("--store", &format!("dir:{}", path("file")))?.with("store-not-directory")?;
        ensure!(fs::read_link(own.join("link"))? == Path::new("/tmp"));
        ensure!(fs::read_to_string(own.join("file"))? == "x");
        serve("--store", "somewhere")?.of_usage()?;
        serve("--idle-exit", "soon")?.of_usage()?;
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn someone_elses_places_are_refused() {
    as_root(&[Need::Fuse], |stage| {
        let theirs = stage.make_directory("theirs", 0o700)?;
        chown(&theirs, Some(2), Some(2))?;
        let theirs = theirs.display().to_string();
        for user in [stage.user.clone(), holdfast_tests::user::User::ordinary()] {
            let stage = stage.for_user(user);
            refused_serve(&stage, &["--store", &format!("dir:{theirs}")])?
                .with("store-wrong-owner")?;
            refused_serve(&stage, &["--mountpoint", &theirs])?.with("mountpoint-wrong-owner")?;
        }
        ensure!(fs::read_dir(theirs)?.next().is_none(), "something was put there");
        Ok(())
    });
}

#[test]
fn a_missing_device_is_named() {
    as_root(&[Need::Fuse], |stage| {
        // A /dev that has everything else.
        let script = r#"
            mkdir "$1/dev"; mount -t tmpfs none "$1/dev"
            mknod -m 666 "$1/dev/null" c 1 3; mknod -m 666 "$1/dev/urandom" c 1 9
            mount --move "$1/dev" /dev
            shift; exec "$@"
        "#;
        let alone = |program: Program| {
            program.args(["-m", "--propagation", "private", "bash", "-ec", script, "bash"])
        };
        let program = alone(Program::new("unshare")).arg(stage.path("work"));
        let serve = program.arg(stage.path("bin/holdfast")).arg("serve");
        refused(stage.program(serve), "fuse-device-missing")?;
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn a_missing_helper_is_named() {
    as_ordinary_user(&[Need::Fuse], |stage| {
        let empty = stage.make_directory("empty", 0o755)?;
        let serve = || stage.holdfast().arg("serve").env("PATH", &empty);
        refused(serve(), "fusermount-missing")?;
        let finished = serve().run()?;
        let remedy = finished.stderr.lines().find(|line| line.contains("remedy: "));
        ensure!(remedy.is_some_and(|line| line.contains("fuse3")), "{finished:?}");
        stage.nothing_is_left(&stage.user)
    });
}

#[test]
fn malformed_messages_are_refused() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let messages: &[&[u8]] = &[
                b"\0",
                b"not json\0",
                b"[]\0",
                b"{}\0",
                b"{\"method\":17}\0",
                b"{\"method\":\"org.holdfast.Namespace.OpenSession\",\"parameters\":[]}\0",
                b"{\"method\":\"org.holdfast.Namespace.OpenSession\",\"parameters\":{\"name\":5}}\0",
                b"{\"method\":\"org.holdfast.Namespace.Nothing\",\"parameters\":{}}\0",
                b"{\"method\":\"somewhere.Else\",\"parameters\":{}}\0",
                b"{\"method\":\"\"}\0",
                &[b"[".repeat(3000), b"\0".to_vec()].concat(),
            ];
            for message in messages {
                let mut client = client(stage, daemon)?;
                client.send(message)?;
                let text = message.escape_ascii();
                let answer = client.answer().with_context(|| text.to_string())?;
                let answer = answer.with_context(|| format!("no answer to {text}"))?;
                ensure!(answer["error"].is_string(), "{text}: {answer}");
            }
            goes_on(stage, daemon)
        })
    });
}

#[test]
fn too_large_a_message_is_refused() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            for end in ["\"}}\0", ""] {
                let mut client = client(stage, daemon)?;
                let start = "{\"method\":\"org.holdfast.Namespace.OpenSession\",\
                             \"parameters\":{\"name\":\"";
                client.send(format!("{start}{}{end}", "x".repeat(70 << 10)).as_bytes())?;
                let answer = client.answer()?.context("no answer")?;
                ensure!(answer["error"] == "org.holdfast.Namespace.RequestTooLarge", "{answer}");
                ensure!(answer["parameters"]["code"] == "request-too-large", "{answer}");
                ensure!(client.answer()?.is_none(), "the connection goes on");
            }
            goes_on(stage, daemon)
        })
    });
}

#[test]
fn silent_and_hasty_clients_harm_nobody() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            // Some say nothing, and some stop in the middle of a word, while others are served.
            let mut silent = Vec::new();
            for number in 0..20 {
                let mut client = client(stage, daemon)?;
                if number % 2 == 0 {
                    client.send(b"{\"method\":\"org.holdfast")?;
                }
                silent.push(client);
            }
            goes_on(stage, daemon)?;
            // Some leave before the answer, and some before the end of the question.
            for number in 0..50 {
                let mut client = client(stage, daemon)?;
                let call: &[u8] = match number % 3 {
                    0 => b"{\"method\":\"org.holdfast.Namespace.OpenSession\",\"parameters\":{}}\0",
                    1 => b"{\"method\":\"org.holdfast.Namespace.OpenSession\",\"param",
                    _ => b"",
                };
                client.send(call)?;
            }
            // One asks a hundred times and doesn't listen.
            let mut deaf = client(stage, daemon)?;
            for _ in 0..100 {
                deaf.send(b"{\"method\":\"org.holdfast.Namespace.Describe\"}\0")?;
            }
            goes_on(stage, daemon)?;
            drop((silent, deaf));
            let sessions = client(stage, daemon)?.call("ListSessions", &json!({}))?;
            let sessions = sessions["parameters"]["sessions"].as_array().context("sessions")?;
            // What the hasty ones opened hangs on this process, which is still there. That of a
            // command that has just ended goes by itself.
            for session in sessions {
                let name = session["id"].as_str().context("an id")?;
                let close = stage.holdfast().args(["session", "close", name, "--force"]).run()?;
                let gone = close.stderr.contains("session-unknown");
                ensure!(close.status.success() || gone, "{close:?}");
            }
            goes_on(stage, daemon)
        })
    });
}

#[test]
fn an_error_never_has_a_path() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let mut client = client(stage, daemon)?;
            let nobody = json!({ "session": "aaaaaaaa" });
            for (method, parameters) in [
                ("AcquireLease", &nobody),
                ("ShowSession", &nobody),
                ("ReleaseLease", &json!({ "lease": "aaaaaaaa" })),
                ("OpenSession", &json!({ "name": "" })),
                ("Unknown", &json!({})),
            ] {
                let answer = client.call(method, parameters)?;
                ensure!(answer["error"].is_string(), "{answer}");
                let message = answer["parameters"]["message"].as_str().unwrap_or_default();
                ensure!(!message.contains("/tmp") && !message.contains("/run"), "{answer}");
            }
            goes_on(stage, daemon)
        })
    });
}

/// How `serve` was refused.
struct Refusal(holdfast_tests::command::Finished);

fn refused_serve(stage: &Stage, arguments: &[&str]) -> anyhow::Result<Refusal> {
    let finished = stage.holdfast().args(["serve", "--json"]).args(arguments).run()?;
    ensure!(!finished.status.success() && finished.signal().is_none(), "{finished:?}");
    Ok(Refusal(finished))
}

impl Refusal {
    fn with(self, code: &str) -> anyhow::Result<()> {
        let finished = self.0;
        ensure!(finished.fault() == Some(code), "{code} is expected: {finished:?}");
        let answer: Value = serde_json::from_str(finished.stdout.trim())?;
        ensure!(answer["fault"]["code"] == code && answer["fault"]["remedy"].is_string());
        Ok(())
    }

    fn of_usage(self) -> anyhow::Result<()> {
        ensure!(self.0.code() == Some(2) || self.0.fault() == Some("settings-invalid"));
        Ok(())
    }
}

fn mode(stage: &Stage) -> &'static str {
    if stage.user.is_root() { "755" } else { "700" }
}
