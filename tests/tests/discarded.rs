//! What a program sees whose directory is discarded under it: nothing of the session's any more, or
//! an error that is written down. It never sees another directory, and never waits.

use std::time::Duration;

use anyhow::ensure;
use holdfast_tests::command::{Program, Running};
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_each_user};
use holdfast_tests::{report, status};

/// A generous time for what nobody uses to go.
const GOES: Duration = Duration::from_secs(20);

/// Knows its directory by path, or holds things in it as well; says what each call gives for each
/// line that it reads.
const PROGRAM: &str = r#"
import errno, os, sys
place, holds = os.environ["TMPDIR"], sys.argv[1] == "holds"
os.mkdir(place + "/below")
with open(place + "/file", "w") as file: file.write("kept")
if holds:
    held = os.open(place + "/file", os.O_RDWR)
    directory = os.open(place + "/below", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir(place + "/below")
calls = {
    "open": lambda: os.close(os.open(place + "/file", os.O_RDONLY)),
    "make": lambda: os.mkdir(place + "/new"),
    "list": lambda: os.listdir(place),
}
if holds: calls.update({
    "open-in-working-directory": lambda: os.close(os.open("new", os.O_WRONLY | os.O_CREAT)),
    "make-in-working-directory": lambda: os.mkdir("directory"),
    "list-working-directory": lambda: os.listdir("."),
    "open-at-handle": lambda: os.close(os.open("other", os.O_WRONLY | os.O_CREAT, dir_fd=directory)),
    "list-handle": lambda: os.listdir(directory),
    "read": lambda: os.pread(held, 4, 0),
    "write": lambda: os.pwrite(held, b"more", 4),
})
def result(call):
    try: call()
    except OSError as error: return errno.errorcode[error.errno]
    return "fine"
print("ready", flush=True)
for line in sys.stdin:
    print(" ".join(f"{name}={result(call)}" for name, call in calls.items()), flush=True)
"#;

fn program(stage: &Stage, holds: &str) -> anyhow::Result<Running> {
    stage.holdfast().args(["session", "open", "main"]).output()?;
    let run = ["run", "--session", "main", "--lease", "private", "--"];
    let program = stage.holdfast().args(run).args(["/usr/bin/python3", "-c", PROGRAM, holds]);
    let mut running = program.start()?;
    ensure!(running.line()? == "ready");
    Ok(running)
}

fn told(running: &mut Running) -> anyhow::Result<String> {
    running.say("now")?;
    running.line()
}

const NEEDS: &[Need] = &[Need::Fuse, Need::Program("python3")];
const BY_PATH: &str = "open=ENOENT make=ENOENT list=ENOENT";

#[test]
fn after_a_close_by_force_a_path_is_enoent_and_what_is_held_goes_on() {
    as_each_user(NEEDS, |stage| {
        let daemon = stage.serve()?;
        let close = || stage.holdfast().args(["session", "close", "--force", "main"]).output();
        let mut running = program(stage, "knows")?;
        close()?;
        status::becomes(stage, &[("sessions", 0), ("generations", 0)], GOES)?;
        let said = told(&mut running)?;
        ensure!(said == BY_PATH, "{said}");
        running.finish()?.success()?;

        // What is in use isn't discarded, whoever closes by force: nothing changes for its user.
        let mut running = program(stage, "holds")?;
        close()?;
        status::becomes(stage, &[("leases", 0), ("generations", 1)], GOES)?;
        let said = told(&mut running)?;
        ensure!(said.split(' ').all(|call| call.ends_with("=fine")), "{said}");
        running.finish()?.success()?;
        status::becomes(stage, &[("sessions", 0), ("generations", 0)], GOES)?;
        daemon.stop(stage)
    });
}

#[test]
fn after_a_down_by_force_a_path_is_enoent_and_what_is_held_is_enotconn() {
    as_each_user(NEEDS, |stage| {
        let daemon = stage.serve()?;
        // Where the kernel passes data through, open files don't need the daemon.
        let passes = stage.holdfast().args(["status", "--json"]).output()?;
        let passed = !passes.contains("\"data-passthrough\"");
        let (mut knows, mut holds) = (program(stage, "knows")?, program(stage, "holds")?);
        stage.holdfast().args(["down", "--force"]).output()?;
        daemon.finish()?.success()?;
        stage.nothing_is_left(&stage.user)?;
        let said = told(&mut knows)?;
        ensure!(said == BY_PATH, "{said}");
        knows.finish()?.success()?;
        let said = told(&mut holds)?;
        report::print(format_args!("after `down --force`: {said}"));
        let data = if passed { "read=fine write=fine" } else { "read=ENOTCONN write=ENOTCONN" };
        let expected = format!(
            "{BY_PATH} open-in-working-directory=ENOTCONN make-in-working-directory=ENOTCONN \
             list-working-directory=ENOTCONN open-at-handle=ENOTCONN list-handle=ENOTCONN {data}"
        );
        ensure!(said == expected, "{said}\n{expected}");
        holds.finish()?.success()?;
        let empty = stage.program(Program::new("true"));
        empty.output().map(drop)
    });
}
