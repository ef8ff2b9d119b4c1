//! The tests' own tools: a program that hangs is ended, and a mount that hangs is freed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::command::Program;
use holdfast_tests::damage::wait_until_stopped;
use holdfast_tests::mounts;
use holdfast_tests::need::Need;
use holdfast_tests::processes::Process;
use holdfast_tests::stage::{as_ordinary_user, as_root};
use rustix::process::Signal;

#[test]
fn a_program_that_hangs_is_ended() {
    as_ordinary_user(&[], |stage| {
        let start = Instant::now();
        let program = Program::bash("sleep 1000 & sleep 1000").deadline(Duration::from_secs(1));
        let error = stage.program(program).run().err().context("it ended by itself")?;
        ensure!(error.to_string().contains("isn't done in time"), "{error}");
        ensure!(start.elapsed() < Duration::from_secs(30));
        Ok(())
    });
}

#[test]
fn what_hangs_on_a_mount_is_freed() {
    as_root(&[Need::Fuse], |stage| {
        let daemon = stage.serve()?;
        // Nobody but its worker answers for a mount; stopped, it leaves whoever asks in a sleep
        // that no signal ends.
        let id = daemon.worker()?;
        let worker = Process::of(id)?;
        worker.signal(Signal::STOP);
        wait_until_stopped(id)?;
        let ask = || stage.program(Program::new("ls").arg(&daemon.mountpoint));
        let start = Instant::now();
        ensure!(ask().deadline(Duration::from_secs(1)).run().is_err(), "it was answered");
        ensure!(start.elapsed() < Duration::from_secs(60));
        // Where the worker has read a question already, not even SIGKILL ends who asked it.
        let asking = ask().start()?;
        mounts::abort_fuse_connections();
        ensure!(!asking.finish()?.status.success(), "it was answered");
        worker.kill();
        drop(daemon.finish()?);
        Ok(())
    });
}

#[test]
fn what_a_program_says_is_told_when_it_fails() {
    as_ordinary_user(&[], |stage| {
        let program = Program::bash("echo to output; echo to errors >&2; exit 7");
        let error = stage.program(program).output().err().context("it succeeded")?.to_string();
        ensure!(error.contains("to output") && error.contains("to errors"), "{error}");
        let killed = stage.program(Program::bash("kill -9 $$")).run()?;
        ensure!(killed.signal() == Some(9) && killed.code().is_none(), "{killed:?}");
        Ok(())
    });
}
