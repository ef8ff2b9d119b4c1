//! The incident, step by step: what agents notice of it, prompt by prompt.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::agents::{Agent, BASH, Call, READ, Shell, Tool, complain};
use holdfast_tests::command::Program;
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::damage::{Elder, detach, while_stopped};
use holdfast_tests::mounts::Table;
use holdfast_tests::need::Need;
use holdfast_tests::report::{Times, print};
use holdfast_tests::stage::{Stage, as_each_user};
use holdfast_tests::user::is_root;

/// How often each incident happens in a row.
const ROUNDS: u32 = 20;
/// The time that tells a wait from a hang.
const GENEROUS: Duration = Duration::from_secs(10);

/// A command that goes on through it all: it holds a file open, and has its working directory in
/// its lease.
const LONG: &str = r#"
    cd "$TMPDIR"
    exec 3<>"open-$$"
    echo one >&3
    echo open
    read -r word && [[ $word == settle ]]
    mkdir deep && cd deep
    echo kept > kept
    echo two >&3
    echo settled
    read -r word && [[ $word == go ]]
    echo three >&3
    [[ $(cat /proc/self/fd/3) == $'one\ntwo\nthree' ]]
    [[ $(cat kept) == kept ]]
    echo later > later
    echo "$TMPDIR"
    read -r word && [[ $word == end ]]
"#;

/// The next command, which finds what was there before, and what the long one has made since.
const NEXT: &str = r#"
    cd "$TMPDIR/deep"
    [[ $(cat kept) == kept && $(cat later) == later ]]
    echo next > next && [[ $(cat next) == next ]]
    file=$(mktemp) && [[ $file == "$TMPDIR"/* ]]
    rm -r "$TMPDIR/deep" "$file"
    echo "$TMPDIR"
"#;

fn all_tools() -> [Tool; 2] {
    [Tool::Ready(READ), Tool::Ready(BASH)]
}

fn tools_without_a_shell(code: &str) -> [Tool; 2] {
    [Tool::Ready(READ), Tool::Faulted(BASH, code.to_owned())]
}

/// Begins a command that goes on, after it was looked whether there is a shell for it.
fn begin_long(agent: &mut Agent<'_>) -> anyhow::Result<Call> {
    let tools = agent.tools();
    ensure!(tools == all_tools(), "{tools:?}");
    agent.bash(r#"echo "a prompt before" > "$TMPDIR/before""#)?;
    let mut call = agent.call(LONG)?.map_err(complain)?;
    hears(&mut call, "open")?;
    Ok(call)
}

fn hears(call: &mut Call, word: &str) -> anyhow::Result<()> {
    let line = call.running.line()?;
    ensure!(line == word, "{line:?} instead of {word:?}");
    Ok(())
}

/// The command that went on still has its file, its directory and its lease, and the next one has
/// all of that too.
fn goes_on(agent: &mut Agent<'_>, mut call: Call) -> anyhow::Result<()> {
    call.running.say("go")?;
    let directory = call.lease.path.clone();
    hears(&mut call, &directory)?;
    let lease = agent.lease(&call)?;
    ensure!(!lease.stale && lease.current, "{lease:?}");
    let tools = agent.tools();
    ensure!(tools == all_tools(), "{tools:?}");
    let next = agent.bash(NEXT)?;
    ensure!(next.trim_end() == directory, "it was at {directory} and is at {next}");
    call.running.say("end")?;
    agent.finish(call).map(drop)
}

/// It has no part in any of it.
fn notices_nothing(quiet: &mut Agent<'_>) -> anyhow::Result<()> {
    let start = Instant::now();
    let tools = quiet.tools();
    ensure!(tools == [Tool::Ready(READ)], "{tools:?}");
    let session = quiet.rebuild()?;
    ensure!(session.leases == 0 && session.generations.is_empty(), "{session:?}");
    ensure!(start.elapsed() < GENEROUS, "it took {:?}", start.elapsed());
    Ok(())
}

/// What somebody types in another shell; it ends with complaints.
fn remove_all(stage: &Stage, mountpoint: &Path) -> anyhow::Result<()> {
    let finished = stage.program(Program::new("rm").arg("-rf").arg(mountpoint)).run()?;
    ensure!(finished.code() == Some(1) && finished.stderr.contains("rm: "), "{finished:?}");
    Ok(())
}

/// Takes the mount away and the directory too, and puts something there, before the daemon can.
fn replace_by_hand(stage: &Stage, daemon: &Daemon, script: &str) -> anyhow::Result<()> {
    while_stopped(daemon.id(), || {
        detach(stage, &daemon.mountpoint)?;
        let script = format!("rmdir -- \"$1\"\n{script}");
        let script = Program::bash(&script).arg("bash").arg(&daemon.mountpoint);
        stage.program(script).output().map(drop)
    })
}

/// A directory as the daemon would have made it.
fn make_directory(stage: &Stage) -> &'static str {
    if stage.user.is_root() { "mkdir -m 755 -- \"$1\"" } else { "mkdir -m 700 -- \"$1\"" }
}

fn served_again(table: &Table, daemon: &Daemon, since: Instant) -> anyhow::Result<Duration> {
    table.wait_for_fuse(&daemon.mountpoint, since + GENEROUS)?;
    Ok(since.elapsed())
}

fn who(stage: &Stage) -> &'static str {
    if stage.user.is_root() { "root" } else { "an ordinary user" }
}

#[test]
fn the_shell_stays_when_the_namespace_is_removed_and_made_again_by_hand() {
    as_each_user(&[Need::Fuse], |stage| {
        let mut elder = is_root().then(|| Elder::start(stage, &stage.user)).transpose()?;
        let (mut served, mut prompted) = (Times::default(), Times::default());
        while_served(stage, |daemon| {
            let begin = |name: &str, shell| {
                Agent::begin(stage, &daemon.socket, name, shell)?.map_err(complain)
            };
            let mut main = begin("main", Shell::Needed)?;
            let mut quiet = begin("quiet", Shell::Unwanted)?;
            let table = Table::watch()?;
            for round in 0..ROUNDS {
                let mut child = begin("child", Shell::Needed)?;
                let mut calls = [begin_long(&mut main)?, begin_long(&mut child)?];
                remove_all(stage, &daemon.mountpoint)?;
                for call in &mut calls {
                    call.running.say("settle")?;
                    hears(call, "settled")?;
                }
                notices_nothing(&mut quiet)?;
                let since = match &mut elder {
                    // It goes with its directory, and the daemon may be quicker to make a new one.
                    Some(elder) if round % 2 == 1 => {
                        let path = daemon.mountpoint.display();
                        let mode = if stage.user.is_root() { 755 } else { 700 };
                        let since = Instant::now();
                        let line = format!("rmdir {path} && mkdir -p -m {mode} {path}");
                        ensure!(elder.run(&line)?, "it can't be removed from an older namespace");
                        since
                    }
                    _ => {
                        replace_by_hand(stage, daemon, make_directory(stage))?;
                        Instant::now()
                    }
                };
                served.add(served_again(&table, daemon, since)?);
                let prompt = Instant::now();
                for (agent, call) in [&mut main, &mut child].into_iter().zip(calls) {
                    goes_on(agent, call).with_context(|| format!("round {round}"))?;
                }
                prompted.add(prompt.elapsed());
                notices_nothing(&mut quiet)?;
                child.end()?;
            }
            // The directory that is there now was made by hand, and would stay.
            replace_by_hand(stage, daemon, "")?;
            served_again(&table, daemon, Instant::now())?;
            main.end()?;
            quiet.end()
        })?;
        ensure!(prompted.worst() < GENEROUS, "{prompted}");
        print(format_args!("{}: removed and made again: served {served}", who(stage)));
        print(format_args!("{}: the next prompt of both: {prompted}", who(stage)));
        Ok(())
    });
}

#[test]
fn with_a_link_in_its_place_who_needs_a_shell_does_not_begin() {
    const CODE: &str = "mountpoint-symlink";
    as_each_user(&[Need::Fuse], |stage| {
        let (mut failed, mut served) = (Times::default(), Times::default());
        let elsewhere = stage.make_directory("elsewhere", 0o777)?;
        while_served(stage, |daemon| {
            let begin = |name: &str, shell| Agent::begin(stage, &daemon.socket, name, shell);
            let mut main = begin("main", Shell::Needed)?.map_err(complain)?;
            let mut quiet = begin("quiet", Shell::Unwanted)?.map_err(complain)?;
            let table = Table::watch()?;
            for round in 0..ROUNDS {
                let mut call = begin_long(&mut main)?;
                let link = format!("ln -s {} \"$1\"", elsewhere.display());
                replace_by_hand(stage, daemon, &link)?;
                let since = Instant::now();

                // The tool is in the list, with the reason; a call of it starts nothing.
                let tools = main.tools();
                ensure!(tools == tools_without_a_shell(CODE), "round {round}: {tools:?}");
                let refused = main.call("true")?.err().context("a lease without a namespace")?;
                ensure!(refused.code == CODE && !refused.message.contains('/'), "{refused:?}");
                // A child that can do nothing without a shell fails before it begins.
                let child = begin("child", Shell::Needed)?.err().context("it began")?;
                ensure!(child.code == CODE, "{child:?}");
                // One that can begins, and is told what it lacks.
                let mut patient = begin("patient", Shell::Wanted)?.map_err(complain)?;
                let tools = patient.tools();
                ensure!(tools == tools_without_a_shell(CODE), "round {round}: {tools:?}");
                ensure!(patient.call("true")?.is_err_and(|report| report.code == CODE));
                failed.add(since.elapsed());
                notices_nothing(&mut quiet)?;
                // What was leased before goes on.
                call.running.say("settle")?;
                hears(&mut call, "settled")?;

                ensure!(fs::read_link(&daemon.mountpoint)? == elsewhere, "the link is another");
                ensure!(fs::read_dir(&elsewhere)?.next().is_none(), "something was put elsewhere");
                ensure!(fs::metadata(&elsewhere)?.permissions().mode() & 0o7777 == 0o777);
                fs::remove_file(&daemon.mountpoint)?;
                served.add(served_again(&table, daemon, Instant::now())?);
                goes_on(&mut main, call).with_context(|| format!("round {round}"))?;
                // The same child, over the same connection.
                let tools = patient.tools();
                ensure!(tools == all_tools(), "round {round}: {tools:?}");
                let ran = patient.bash(r#"echo late > "$TMPDIR/file" && cat "$TMPDIR/file""#)?;
                ensure!(ran == "late\n", "{ran:?}");
                patient.end()?;
                begin("child", Shell::Needed)?.map_err(complain)?.end()?;
                notices_nothing(&mut quiet)?;
            }
            main.end()?;
            quiet.end()
        })?;
        ensure!(failed.worst() < GENEROUS, "{failed}");
        print(format_args!("{}: a link in its place: refused {failed}", who(stage)));
        print(format_args!("{}: the link taken away: served {served}", who(stage)));
        Ok(())
    });
}
