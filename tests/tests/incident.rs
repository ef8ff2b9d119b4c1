//! Somebody removes the namespace in another shell, while commands are running in it.

use anyhow::{Context as _, ensure};
use holdfast_tests::command::{Program, Running};
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_each_user, as_root};
use holdfast_tests::user::User;

/// A command that holds a file open, has its working directory in the lease, and goes on at a word.
const WORKER: &str = r#"
    cd "$TMPDIR"
    mkdir -p deep/below && cd deep/below
    exec 3<>"$TMPDIR/open"
    echo "written before" >&3
    echo "$TMPDIR"
    read -r word && [[ $word == go ]]
    echo "written after" >&3
    [[ $(cat /proc/self/fd/3) == $'written before\nwritten after' ]]
    [[ $(stat -L -c %s /proc/self/fd/3) == 29 ]]
    ls . >/dev/null
    [[ -d $TMPDIR && -w $TMPDIR ]]
    cd "$TMPDIR"
    echo "a new file" > new && [[ $(cat new) == "a new file" ]]
    mkdir directory && touch directory/file
    echo good
"#;

/// The next command of the session, after the incident.
const NEXT: &str = r#"
    echo "and the next" > "$TMPDIR/next" && [[ $(cat "$TMPDIR/next") == "and the next" ]]
    file=$(mktemp) && [[ $file == "$TMPDIR"/* ]]
    echo "$TMPDIR $(stat -c %d:%i "$TMPDIR")"
"#;

/// A session with a command in it that has reached its middle.
struct Session<'a> {
    stage: &'a Stage,
    running: Running,
    directory: String,
}

impl<'a> Session<'a> {
    fn begin(stage: &'a Stage) -> anyhow::Result<Self> {
        stage.holdfast().args(["session", "open", "main"]).output()?;
        let mut running = stage.run_in("main", WORKER).start()?;
        let directory = running.line()?;
        Ok(Self { stage, running, directory })
    }

    /// Where the lease is, as the next command of the session sees it.
    fn place(&self) -> anyhow::Result<String> {
        self.stage.run_in("main", NEXT).output()
    }

    /// Lets the command go on to its end, and the session's next one follow.
    fn goes_on(mut self, place: &str) -> anyhow::Result<()> {
        self.running.say("go")?;
        let printed = self.running.finish()?.success()?;
        ensure!(printed.ends_with("good\n"), "{printed:?}");
        let next = self.stage.run_in("main", NEXT).output()?;
        ensure!(next == place, "it was at {place:?} and is at {next:?}");
        ensure!(next.starts_with(&self.directory));
        self.stage.holdfast().args(["session", "close", "main", "--force"]).output()?;
        Ok(())
    }
}

/// What somebody types in another shell; it has to end with complaints.
fn remove(stage: &Stage, user: &User, daemon: &Daemon) -> anyhow::Result<()> {
    let remove = Program::new("rm").arg("-rf").arg(&daemon.mountpoint);
    let finished = stage.program_as(user, remove).run()?;
    ensure!(finished.code() == Some(1), "{finished:?}");
    ensure!(finished.stderr.contains("rm: "), "{finished:?}");
    Ok(())
}

#[test]
fn a_session_survives_its_own_users_rm() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            for _ in 0..5 {
                let session = Session::begin(stage)?;
                let place = session.place()?;
                remove(stage, &stage.user, daemon)?;
                session.goes_on(&place)?;
            }
            Ok(())
        })
    });
}

#[test]
fn a_session_survives_roots_rm() {
    as_root(&[Need::Fuse], |stage| {
        let root = stage.user.clone();
        // The session's user is an ordinary one, once with the system's daemon and once with one of
        // their own.
        let user = stage.for_user(User::ordinary());
        for serves in [stage, &user] {
            while_served(serves, |daemon| {
                let session = Session::begin(&user)?;
                let place = session.place()?;
                remove(stage, &root, daemon)?;
                session.goes_on(&place)
            })?;
        }
        Ok(())
    });
}

#[test]
fn a_session_of_another_user_is_not_touched() {
    as_root(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let one = stage.for_user(User::ordinary());
            let other = stage.for_user(User::other().context("root runs this")?);
            other.holdfast().args(["session", "open", "quiet"]).output()?;
            let fill = r#"
                cd "$TMPDIR"
                for i in $(seq 100); do mkdir d$i; echo $i > d$i/f; done
                chmod 777 d1; chmod 666 d1/f
            "#;
            other.run_in("quiet", fill).output()?;
            let hash = r#"
                cd "$TMPDIR" && find . -printf '%P %y %m %s %n %T@\n' | sort | cksum
                find . -type f -print0 | sort -z | xargs -0 cksum | cksum
            "#;
            let before = other.run_in("quiet", hash).output()?;
            remove(&one, &one.user, daemon)?;
            let inside = Program::bash(r#"rm -rf "$1"/*/* "$1"/*/*/*"#).arg("bash");
            drop(one.program(inside.arg(&daemon.mountpoint)).run()?);
            ensure!(other.run_in("quiet", hash).output()? == before, "it was touched");
            other.holdfast().args(["session", "close", "quiet"]).output()?;
            Ok(())
        })
    });
}

#[test]
fn a_directory_that_is_removed_by_its_own_name_stays() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let script = r#"
                session=${TMPDIR%/*}
                refused() { ! "$@" 2>"$TMPDIR/said"; cat "$TMPDIR/said"; }
                for path in "$TMPDIR" "$session"; do
                    refused rmdir "$path" | grep -q 'Device or resource busy'
                    refused mv -T "$path" "${path%/*}/other" | grep -q 'Device or resource busy'
                done
                mkdir "$TMPDIR/replacement"
                refused mv -T "$TMPDIR/replacement" "$session/9" | grep -q 'not permitted'
                refused mkdir "$session/new" | grep -q 'Operation not permitted'
                refused touch "$session/new" | grep -q 'not permitted\|Permission denied'
                refused mkdir "${session%/*}/new" | grep -q 'Operation not permitted'
                refused ln -s x "$session/link" | grep -q 'Operation not permitted'
                mode=$(stat -c %a "$TMPDIR")
                chmod 0 "$TMPDIR" && chmod 777 "$TMPDIR" && [[ $(stat -c %a "$TMPDIR") == "$mode" ]]
                refused chmod 700 "${session%/*}" | grep -q 'Operation not permitted'
                touch -d '2001-02-03 UTC' "$TMPDIR" "$session"
                [[ $(stat -c %Y "$TMPDIR") == 981158400 ]]
                echo good
            "#;
            let printed = stage.run(script).output()?;
            ensure!(printed.ends_with("good\n"), "{printed:?}");
            Ok(())
        })
    });
}
