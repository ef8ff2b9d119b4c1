//! One daemon for many users, and many users without one.

use anyhow::{Context as _, ensure};
use holdfast::control::client::Client;
use holdfast::control::wire;
use holdfast_tests::daemon::while_served;
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_ordinary_user, as_root};
use holdfast_tests::status;
use holdfast_tests::user::User;
use serde_json::Value;

/// A generous time for what nobody uses to go.
const GOES: std::time::Duration = std::time::Duration::from_secs(20);

fn users(stage: &Stage) -> anyhow::Result<[Stage; 3]> {
    let other = User::other().context("root runs this")?;
    Ok([
        stage.for_user(stage.user.clone()),
        stage.for_user(User::ordinary()),
        stage.for_user(other),
    ])
}

fn json(text: &str) -> anyhow::Result<Value> {
    serde_json::from_str(text).with_context(|| text.to_owned())
}

#[test]
fn one_daemon_serves_many_users_at_once() {
    as_root(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let users = users(stage)?;
            let open = |stage: &Stage| stage.holdfast().args(["session", "open", "main"]).output();
            users.iter().try_for_each(|stage| open(stage).map(drop))?;
            // All of them under one name, several commands each, at the same time.
            let script = r#"
                echo "$(id -u)" > "$TMPDIR/mine"; echo ready; read -r _
                [[ $(cat "$TMPDIR/mine") == "$(id -u)" && $(stat -c %u "$TMPDIR") == "$(id -u)" ]]
                ls "$TMPDIR" | wc -l
            "#;
            let start = |stage: &Stage| {
                let kind = ["--lease", "private"];
                let run = stage.holdfast().args(["run", "--session", "main"]).args(kind);
                run.args(["--", "bash", "-euc", script]).start()
            };
            let mut running = Vec::new();
            for _ in 0..5 {
                for stage in &users {
                    running.push(start(stage)?);
                }
            }
            for command in &mut running {
                ensure!(command.line()? == "ready");
            }
            for (stage, seen) in users.iter().zip([15, 5, 5]) {
                let listed = json(&stage.holdfast().args(["lease", "list", "--json"]).output()?)?;
                let leases = listed["leases"].as_array().context("a list")?;
                ensure!(leases.len() == seen, "{listed}");
                let own = |lease: &Value| lease["uid"] == stage.user.uid;
                ensure!(stage.user.is_root() || leases.iter().all(own), "{listed}");
            }
            for mut command in running {
                command.say("go on")?;
                ensure!(command.line()? == "1");
                command.finish()?.success()?;
            }
            let close =
                |stage: &Stage| stage.holdfast().args(["session", "close", "main"]).output();
            users.iter().try_for_each(|stage| close(stage).map(drop))?;
            status::becomes(stage, &[("sessions", 0)], GOES)
        })
    });
}

#[test]
fn root_opens_a_session_for_another_user_and_nobody_else_does() {
    as_root(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let [root, owner, other] = users(stage)?;
            let uid = owner.user.uid.to_string();
            let open = |stage: &Stage, name: &str, uid: &str| {
                let open = ["session", "open", name, "--uid", uid, "--json"];
                stage.holdfast().args(open).run()
            };
            let opened = json(&open(&root, "theirs", &uid)?.success()?)?;
            ensure!(opened["session"]["uid"] == owner.user.uid && opened["attached"] == false);
            // It is one of their own: they attach to it by its name, use it and close it.
            let again = owner.holdfast().args(["session", "open", "theirs", "--json"]).output()?;
            let again = json(&again)?;
            ensure!(again["attached"] == true && again["session"]["id"] == opened["session"]["id"]);
            let script = r#"echo mine > "$TMPDIR/file"; stat -c %u "$TMPDIR" "$TMPDIR/file""#;
            ensure!(owner.run_in("theirs", script).output()? == format!("{uid}\n{uid}\n"));
            ensure!(!other.holdfast().args(["session", "list"]).output()?.contains("theirs"));
            ensure!(other.run_in("theirs", "true").run()?.fault() == Some("session-unknown"));
            // Root means it by its name as long as root has none of that name.
            root.holdfast().args(["session", "rotate", "theirs"]).output()?;
            ensure!(open(&root, "theirs", &uid)?.success().is_ok());

            let refused = open(&other, "for-them", &uid)?;
            ensure!(refused.fault() == Some("session-not-yours"), "{refused:?}");
            ensure!(refused.stderr.contains("remedy: "), "{refused:?}");
            let own = open(&other, "own", &other.user.uid.to_string())?;
            ensure!(json(&own.success()?)?["session"]["uid"] == other.user.uid);
            owner.holdfast().args(["session", "close", "theirs"]).output()?;
            other.holdfast().args(["session", "close", "own"]).output()?;
            status::becomes(stage, &[("sessions", 0)], GOES)
        })
    });
}

#[test]
fn a_user_has_so_many_sessions_and_another_has_theirs_all_the_same() {
    as_root(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let connect = |user: &User| {
                // Whose it is, is decided when it connects.
                let client = user.act(|| Ok(Client::connect(&daemon.socket)));
                client?.map_err(anyhow::Error::from)
            };
            let mut client = connect(&User::ordinary())?;
            let most = client.call(&wire::Describe {})?.limits.sessions_per_uid;
            let open = wire::OpenSession::default();
            for _ in 0..most {
                client.call(&open)?;
            }
            let refused = client.call(&open).err().context("there is no limit")?;
            ensure!(refused.code == "limit-reached", "{refused}");
            ensure!(refused.message.contains(&most.to_string()), "{refused}");
            let mut other = connect(&User::other().context("root runs this")?)?;
            let session = other.call(&open)?.session.id;
            other.call(&wire::CloseSession { session, force: None })?;
            // Root's doing it for the user is no way around it.
            let mut root = connect(&User::same())?;
            let uid = Some(User::ordinary().uid);
            let asked = wire::OpenSession { uid, ..wire::OpenSession::default() };
            let refused = root.call(&asked).err().context("root goes around the limit")?;
            ensure!(refused.code == "limit-reached", "{refused}");
            for session in all(&mut client)? {
                client.call(&wire::CloseSession { session, force: None })?;
            }
            status::becomes(stage, &[("sessions", 0)], GOES)
        })
    });
}

/// The ids of all sessions of a client's user.
fn all(client: &mut Client) -> anyhow::Result<Vec<String>> {
    let (mut all, mut more) = (Vec::new(), true);
    while more {
        let after = all.last().cloned();
        let shown = client.call(&wire::ListSessions { after })?;
        all.extend(shown.sessions.into_iter().map(|session| session.id));
        more = shown.more;
    }
    Ok(all)
}

#[test]
fn whose_mountpoint_it_is_is_said_with_the_remedy() {
    as_root(&[Need::Fuse, Need::Program("fusermount3")], |stage| {
        let [_, one, other] = users(stage)?;
        let place = "/tmp/shared-name";
        let arguments = ["--mountpoint", place];
        let daemon = holdfast_tests::daemon::Daemon::start(&one, &one.user, &arguments)?;
        let refused = other.holdfast().arg("serve").args(arguments).run()?;
        ensure!(refused.fault() == Some("mountpoint-foreign-mount"), "{refused:?}");
        let uid = format!("uid {}", one.user.uid);
        let line = |start: &str| {
            let line = refused.stderr.lines().find(|line| line.trim_start().starts_with(start));
            line.with_context(|| format!("{refused:?}"))
        };
        ensure!(line("holdfast: ")?.contains(&uid), "{refused:?}");
        ensure!(line("remedy: ")?.contains(&uid), "{refused:?}");
        // Neither is harmed: one goes on, and the other has one of their own by default.
        one.run("true").output()?;
        while_served(&other, |second| {
            ensure!(second.mountpoint != daemon.mountpoint);
            other.run("true").output().map(drop)
        })?;
        daemon.end(rustix::process::Signal::TERM)?.success()?;
        // What the first one left, had it left anything, would be theirs by the directory.
        std::fs::create_dir(place)?;
        std::os::unix::fs::chown(place, Some(one.user.uid), None)?;
        let refused = other.holdfast().arg("serve").args(arguments).run()?;
        ensure!(refused.fault() == Some("mountpoint-wrong-owner"), "{refused:?}");
        ensure!(refused.stderr.contains(&uid), "{refused:?}");
        std::fs::remove_dir(place).map_err(Into::into)
    });
}

#[test]
fn a_daemon_of_ones_own_has_no_sessions_of_others() {
    as_ordinary_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let uid = (stage.user.uid + 1).to_string();
            let open = stage.holdfast().args(["session", "open", "--uid", &uid]).run()?;
            ensure!(open.fault() == Some("session-not-yours"), "{open:?}");
            Ok(())
        })
    });
}
