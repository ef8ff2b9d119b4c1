//! Many of everything, coming and going: nothing is left of it, and nobody waits for it.
//!
//! How many there are can be said by variables; CONTRIBUTING.md says which.

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast::control::client::Client;
use holdfast::control::wire;
use holdfast_tests::command::{Program, Running};
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_each_user, as_root};
use holdfast_tests::user::is_root;
use holdfast_tests::{figures, report, status};
use rustix::process::Signal;

/// A generous time for what nobody uses to go.
const GOES: Duration = Duration::from_secs(60);
/// Memory that an allocator may keep for later, in KiB.
const KEPT: u64 = 16 << 10;
/// How many leases are taken on each session.
const LEASES_EACH: u64 = 10;
/// Sessions until what the daemon remembers of ended ones is full, and no round adds to it.
const FIRST_SESSIONS: u64 = 1100;

/// How many there are to be, where the variable doesn't say otherwise.
fn number(variable: &str, otherwise: u64) -> anyhow::Result<u64> {
    match env::var(variable) {
        Ok(number) => number.parse().with_context(|| format!("{variable}={number}")),
        Err(_) => Ok(otherwise),
    }
}

fn connect(stage: &Stage, daemon: &Daemon) -> anyhow::Result<Client> {
    // Whose it is, is decided when it connects.
    let client = stage.user.act(|| Ok(Client::connect(&daemon.socket)))?;
    Ok(client?)
}

/// Median and 99th percentile.
fn summary(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    format!("median {:?}, 99th percentile {:?} of {}", at(50), at(99), times.len())
}

/// Waits for whatever kind of thing the daemon has too many of to become fewer: it discards on a
/// thread of its own, and a client that is faster is told so.
fn acquire(client: &mut Client, asked: &wire::AcquireLease) -> anyhow::Result<(String, Duration)> {
    let until = Instant::now() + GOES;
    loop {
        let start = Instant::now();
        match client.call(asked) {
            Ok(taken) => return Ok((taken.lease.id, start.elapsed())),
            Err(refused) => {
                let full = ["generations-exhausted", "limit-reached"];
                ensure!(full.contains(&refused.code.as_str()), "{refused}");
                ensure!(Instant::now() < until, "{refused}");
            }
        }
    }
}

/// Opens and closes sessions, takes and gives back leases on each, and says how long taking took.
fn come_and_go(client: &mut Client, sessions: u64) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..sessions {
        let session = client.call(&wire::OpenSession::default())?.session.id;
        for number in 0..LEASES_EACH {
            let kind =
                if number % 2 == 0 { wire::LeaseKind::Shared } else { wire::LeaseKind::Private };
            let asked = wire::AcquireLease {
                session: session.clone(),
                kind: Some(kind),
                hold: Some(wire::Hold::Connection),
                pid: None,
            };
            let (lease, time) = acquire(client, &asked)?;
            times.push(time);
            client.call(&wire::ReleaseLease { lease })?;
        }
        client.call(&wire::CloseSession { session, force: None })?;
    }
    Ok(times)
}

#[test]
fn sessions_and_leases_that_come_and_go_leave_nothing() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let sessions = number("HOLDFAST_SESSIONS", 2000)?;
            let mut client = connect(stage, daemon)?;
            let nothing = [("sessions", 0), ("leases", 0), ("generations", 0), ("tokens", 0)];
            come_and_go(&mut client, FIRST_SESSIONS)?;
            status::becomes(stage, &nothing, GOES)?;
            let before = is_root().then(|| figures::worker(daemon)).transpose()?;
            let start = Instant::now();
            let mut times = come_and_go(&mut client, sessions)?;
            let took = start.elapsed();
            status::becomes(stage, &nothing, GOES)?;
            let leases = summary(&mut times);
            report::print(format_args!(
                "{sessions} sessions came and went in {took:?}; AcquireLease: {leases}"
            ));
            let Some(before) = before else { return Ok(()) };
            // The connection of the last question may still be closed.
            let until = Instant::now() + GOES;
            let mut after = figures::worker(daemon)?;
            while after.descriptors > before.descriptors || after.threads > before.threads {
                ensure!(Instant::now() < until, "{before:?} became {after:?}");
                after = figures::worker(daemon)?;
            }
            report::print(format_args!("the worker held {before:?} before and {after:?} after"));
            ensure!(after.memory < before.memory + KEPT, "{before:?} became {after:?}");
            Ok(())
        })
    });
}

#[test]
fn a_lease_among_ten_thousand_sessions_is_taken_as_one_alone_is() {
    as_root(&[Need::Fuse], |stage| {
        while_served(stage, |daemon| {
            let sessions = number("HOLDFAST_OPEN_SESSIONS", 10_000)?;
            let mut client = connect(stage, daemon)?;
            let most = client.call(&wire::Describe {})?.limits.sessions_per_uid;
            let open = |uid: u64| -> anyhow::Result<_> {
                let uid = Some(u32::try_from(uid)?);
                Ok(wire::OpenSession { uid, ..wire::OpenSession::default() })
            };
            let session = client.call(&open(1000)?)?.session.id;
            let asked = wire::AcquireLease {
                session: session.clone(),
                hold: Some(wire::Hold::Connection),
                ..wire::AcquireLease::default()
            };
            let measure = |client: &mut Client| -> anyhow::Result<String> {
                let mut times = Vec::new();
                for _ in 0..1000 {
                    let (lease, time) = acquire(client, &asked)?;
                    times.push(time);
                    client.call(&wire::ReleaseLease { lease })?;
                }
                let slowest = times.iter().max().copied().unwrap_or_default();
                ensure!(slowest < Duration::from_secs(10), "{slowest:?}");
                Ok(summary(&mut times))
            };
            let alone = measure(&mut client)?;
            let mut opened = vec![session.clone()];
            for number in 1..sessions {
                opened.push(client.call(&open(1000 + number / most)?)?.session.id);
            }
            let among = measure(&mut client)?;
            report::print(format_args!("AcquireLease, one session: {alone}"));
            report::print(format_args!("AcquireLease, {sessions} sessions: {among}"));
            let listed = stage.program(Program::new("ls").arg("-f").arg(&daemon.mountpoint));
            let listed = listed.output()?.lines().count();
            ensure!(listed == opened.len() + 2, "{listed} names");
            let start = Instant::now();
            let listed = stage.holdfast().args(["session", "list"]).output()?.lines().count();
            ensure!(listed == opened.len() + 1, "{listed} lines");
            report::print(format_args!("all of them listed in {:?}", start.elapsed()));
            for session in opened {
                client.call(&wire::CloseSession { session, force: None })?;
            }
            status::becomes(stage, &[("sessions", 0)], GOES)
        })
    });
}

/// Says where its lease is, and becomes something that is killed there.
const CLIENT: &str = r#"echo "$TMPDIR"; echo mine > "$TMPDIR/file"; exec sleep 1000"#;
/// The same, beside a child that went its own way and writes what it reads to a file in the lease.
const WRITER: &str = r#"
    exec 3<&0 4>"$TMPDIR/log"
    setsid cat <&3 >&4 2>/dev/null 3<&- 4>&- &
    exec 3<&- 4>&-
    echo "$TMPDIR"; echo mine > "$TMPDIR/file"; exec sleep 1000
"#;

#[test]
fn of_clients_that_are_killed_only_what_survivors_use_stays() {
    as_each_user(&[Need::Fuse, Need::Program("setsid")], |stage| {
        while_served(stage, |_| {
            let (clients, writers) = (number("HOLDFAST_CLIENTS", 200)?, 10);
            let mut running = Vec::new();
            for number in 0..clients {
                let script = if number < writers { WRITER } else { CLIENT };
                running.push(stage.run(script).start()?);
            }
            let places =
                running.iter_mut().map(Running::line).collect::<anyhow::Result<Vec<_>>>()?;
            let all = [("sessions", clients), ("leases", clients), ("generations", clients)];
            status::becomes(stage, &all, GOES)?;
            let start = Instant::now();
            for client in &running {
                client.signal(Signal::KILL)?;
            }
            let left = [("sessions", writers), ("leases", 0), ("generations", writers)];
            status::becomes(stage, &left, GOES)?;
            let took = start.elapsed();
            report::print(format_args!(
                "{clients} clients killed, all that was dead gone in {took:?}"
            ));
            for (number, (writer, place)) in running.iter_mut().zip(&places).enumerate().take(10) {
                let mut said = String::new();
                for line in 0..1000 {
                    let line = format!("writer {number}, line {line}");
                    writer.say(&line)?;
                    said.push_str(&line);
                    said.push('\n');
                }
                // The next question is pause enough for what is on its way.
                let until = Instant::now() + GOES;
                let read = |name: &str| {
                    stage.program(Program::new("cat").arg(format!("{place}/{name}"))).output()
                };
                while read("log")? != said {
                    ensure!(
                        Instant::now() < until,
                        "writer {number}: {} bytes",
                        read("log")?.len()
                    );
                }
                ensure!(read("file")? == "mine\n");
            }
            // Their input ends, and so do they.
            drop(running);
            status::becomes(stage, &[("sessions", 0), ("generations", 0)], GOES)
        })
    });
}

/// Makes files, every tenth with a page of data.
const FILES: &str = r#"
import os, sys
root, number = os.environ["TMPDIR"], int(sys.argv[1])
for f in range(number):
    if f % 1000 == 0: os.mkdir(f"{root}/{f // 1000}")
    fd = os.open(f"{root}/{f // 1000}/{f}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    if f % 10 == 0: os.write(fd, bytes(4096))
    os.close(fd)
"#;

#[test]
fn whoever_rotates_many_files_away_does_not_wait_for_their_removal() {
    as_each_user(&[Need::Fuse, Need::Program("python3")], |stage| {
        while_served(stage, |daemon| {
            let otherwise = if stage.user.is_root() { 200_000 } else { 20_000 };
            let files = number("HOLDFAST_FILES", otherwise)?;
            stage.holdfast().args(["session", "open", "main"]).output()?;
            let before = figures::shared_memory()?;
            let make = stage.run_in("main", r#"exec /usr/bin/python3 -c "$FILES" "$1""#);
            let make = make.env("FILES", FILES).arg("bash").arg(files.to_string());
            let start = Instant::now();
            make.deadline(Duration::from_secs(600)).output()?;
            let (made, full) = (start.elapsed(), figures::shared_memory()?);
            let data = files / 10 * 4;
            ensure!(full > before + data / 2, "{before} KiB before and {full} with the files");

            let mut client = connect(stage, daemon)?;
            let start = Instant::now();
            client.call(&wire::RotateSession { session: "main".to_owned() })?;
            let waited = start.elapsed();
            let taken = acquire(
                &mut client,
                &wire::AcquireLease {
                    session: "main".to_owned(),
                    hold: Some(wire::Hold::Connection),
                    ..wire::AcquireLease::default()
                },
            )?;
            status::becomes(stage, &[("retired", 0)], GOES)?;
            let gone = start.elapsed();
            // Others use memory too.
            while figures::shared_memory()? + data / 2 > full {
                ensure!(start.elapsed() < GOES, "{} of {full} KiB", figures::shared_memory()?);
            }
            report::print(format_args!(
                "{files} files made in {made:?}; rotating them away took the client {waited:?}, the \
                 next lease {:?}; they were gone after {gone:?}, their space after {:?}",
                taken.1,
                start.elapsed()
            ));
            ensure!(waited < Duration::from_secs(10), "{waited:?}");
            drop(client);
            stage.holdfast().args(["session", "close", "main"]).output()?;
            status::becomes(stage, &[("sessions", 0)], GOES)
        })
    });
}
