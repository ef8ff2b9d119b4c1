//! Clients that aren't ours: another Varlink library, a plain socket, a shell. What README.md shows
//! is what is run.

use anyhow::{Context as _, ensure};
use holdfast_tests::command::Program;
use holdfast_tests::daemon::{Daemon, while_served};
use holdfast_tests::need::{self, Need};
use holdfast_tests::stage::{Stage, as_each_user};
use holdfast_tests::{readme, status, varlink};

/// A generous time for what nobody uses to go.
const GOES: std::time::Duration = std::time::Duration::from_secs(20);

/// A full cycle, by a library that knows nothing of this program but what the daemon tells it.
const PYTHON: &str = r#"
import errno, os, subprocess, sys, varlink
PIPE = subprocess.PIPE
def refused(call, **parameters):
    try: call(**parameters)
    except varlink.VarlinkError as error: return error.error(), error.parameters()
    raise AssertionError("it was not refused")
client = varlink.Client.new_with_address("unix:" + os.environ["HOLDFAST_SOCKET"])
with client:
    interfaces = client.get_interfaces()
    assert set(client.info["interfaces"]) == {"org.varlink.service", "org.holdfast.Namespace"}
    described = client.get_interface("org.holdfast.Namespace").description
    for method in "OpenSession", "AcquireLease", "BindLease", "ReleaseLease", "Watch":
        assert "method " + method in described, described
    with client.open("org.holdfast.Namespace") as holdfast:
        assert holdfast.Describe()["mountpoint"] == os.environ["PLACE"]
        opened = holdfast.OpenSession(name="cycle", mode="private")
        session = opened["session"]["id"]
        assert not opened["attached"] and opened["token"]
        assert holdfast.Check(session="cycle")["session"]["id"] == session
        taken = holdfast.AcquireLease(session="cycle", kind="private", hold="nothing")
        lease, path = taken["lease"]["id"], taken["lease"]["path"]
        assert os.stat(path).st_ino == taken["lease"]["inode"]
        assert os.stat(path).st_dev == taken["lease"]["device"]
        script = 'read -r go; echo "$HOLDFAST_MEMBER" > "$TMPDIR/file"; cat "$TMPDIR/file"'
        environment = {**os.environ, **taken["environment"]}
        child = subprocess.Popen(["sh", "-c", script], stdin=PIPE, stdout=PIPE, text=True, env=environment)
        bound = holdfast.BindLease(lease=lease, pid=child.pid)["lease"]
        assert bound["hold"] == "process" and bound["process"]["pid"] == child.pid
        assert holdfast.CheckLease(lease=lease)["lease"]["current"]
        assert not holdfast.RotateSession(session=session)["session"].get("current")
        assert not holdfast.CheckLease(lease=lease)["lease"]["current"]
        # The command goes on where it is.
        assert child.communicate("go\n")[0] == f"{session}:{lease}\n"
        receipt = holdfast.ReleaseLease(lease=lease)["receipt"]
        assert receipt["lease"] == lease and receipt["end"] in ("released", "process_gone")
        assert holdfast.ReleaseLease(lease=lease)["receipt"] == receipt
        fresh = holdfast.AcquireLease(session=session)["lease"]
        assert fresh["generation"] == bound["generation"] + 1
        assert os.listdir(fresh["path"]) == []
        try: os.rmdir(fresh["path"])
        except OSError as error: assert error.errno == errno.EBUSY
        else: raise AssertionError("it was removed")
        with client.open("org.holdfast.Namespace") as watching:
            for page in watching.Watch(after=0, _more=True):
                kinds = [event["kind"] for event in page["events"]]
                if "removal_refused" in kinds: break
        assert holdfast.Watch(after=0)["last"] >= page["last"]
        assert [one["id"] for one in holdfast.ListLeases()["leases"]] == [fresh["id"]]
        holdfast.ReleaseLease(lease=fresh["id"])
        name, carried = refused(holdfast.RetainSession, session="cycle", owner_pid=0)
        assert name == "org.holdfast.Namespace.ProcessUnknown" and carried["code"] == "process-unknown"
        assert carried["message"] and carried["remedy"]
        holdfast.CloseSession(session=session)
        name, carried = refused(holdfast.OpenSession, name="")
        assert name == "org.holdfast.Namespace.NameInvalid" and carried["code"] == "name-invalid"
        assert refused(holdfast.AcquireLease, session="cycle")[1]["code"] == "session-unknown"
print("all of it")
"#;

/// The same over a plain socket; `call` is README.md's.
const NODE: &str = r#"
const assert = require("assert"), fs = require("fs");
const refused = async (method, parameters) => {
  try { await call(method, parameters); } catch (answer) { return answer; }
  throw new Error(method + " was not refused");
};
(async () => {
  const service = { method: "org.varlink.service.GetInterfaceDescription",
                    parameters: { interface: "org.holdfast.Namespace" } };
  const told = await new Promise((...settle) => {
    waiting.push(settle);
    control.write(JSON.stringify(service) + "\0");
  });
  assert.match(told.description, /^method AcquireLease/m);
  assert.equal((await call("Describe")).mountpoint, process.env.PLACE);
  const { session, token, attached } = await call("OpenSession", { name: "cycle" });
  assert(!attached);
  // One process retains the new before it releases the old.
  const again = await call("RetainSession", { session: "cycle" });
  await call("ReleaseSession", { session: "cycle", token });
  assert.equal((await call("Check", { session: "cycle" })).session.id, session.id);
  const { lease, environment } = await call("AcquireLease", { session: "cycle", hold: "connection" });
  assert.equal(environment.TMPDIR, lease.path);
  assert.equal(fs.statSync(lease.path).ino, lease.inode);
  const env = { ...process.env, ...environment };
  const child = spawn("sh", ["-c", 'read -r go; echo here > "$TMPDIR/file"; cat "$TMPDIR/file"'], { env });
  let said = "";
  child.stdout.on("data", (text) => said += text);
  const ended = new Promise((resolve) => child.on("close", resolve));
  const bound = (await call("BindLease", { lease: lease.id, pid: child.pid })).lease;
  assert.equal(bound.process.pid, child.pid);
  await call("RotateSession", { session: "cycle" });
  assert.equal((await call("CheckLease", { lease: lease.id })).lease.current, false);
  child.stdin.end("go\n");
  assert.equal(await ended, 0);
  assert.equal(said, "here\n");
  const { receipt } = await call("ReleaseLease", { lease: lease.id });
  assert.equal(receipt.lease, lease.id);
  // Requests may be sent before the answers to others are there.
  const fresh = await Promise.all([1, 2, 3].map(() => call("AcquireLease", { session: "cycle" })));
  assert(fresh.every(({ lease: { generation } }) => generation === bound.generation + 1));
  assert.throws(() => fs.rmdirSync(fresh[0].lease.path), { code: "EBUSY" });
  for (let kinds = [], after = 0; !kinds.includes("removal_refused");) {
    const page = await call("Watch", { after });
    kinds = page.events.map(({ kind }) => kind);
    after = page.last;
  }
  await Promise.all(fresh.map(({ lease: { id } }) => call("ReleaseLease", { lease: id })));
  await call("ReleaseSession", { session: "cycle", token: again.token });
  const answer = await refused("AcquireLease", { session: "cycle" });
  assert.equal(answer.error, "org.holdfast.Namespace.SessionUnknown");
  assert.equal(answer.parameters.code, "session-unknown");
  assert(answer.parameters.message && answer.parameters.remedy);
  console.log("all of it");
  control.end();
})();
"#;

const PYTHON_NEEDS: &[Need] = &[Need::Fuse, Need::Program("python3"), Need::Varlink];
const NODE_NEEDS: &[Need] = &[Need::Fuse, Need::Program("node")];

/// A client that is told where the daemon is, and finds this package's Python first.
fn client(stage: &Stage, daemon: &Daemon, program: Program) -> Program {
    let path = format!("{}:{}", stage.path("work/venv/bin").display(), need::PATH);
    let program = stage.program(program).env("PATH", path).env("PLACE", &daemon.mountpoint);
    program.env("HOLDFAST_SOCKET", &daemon.socket)
}

/// Runs one of README.md's clients, and looks at the effect that it shows.
fn takes_a_lease(stage: &Stage, daemon: &Daemon, program: Program) -> anyhow::Result<()> {
    let printed = client(stage, daemon, program).output()?;
    let (lease, receipt) = printed.split_once('\n').context("two lines")?;
    let within = format!("in {}/", daemon.mountpoint.display());
    ensure!(lease.starts_with(&within), "{printed}");
    // The command is done: whichever was first has ended the lease.
    ensure!(["released 4096\n", "process_gone 4096\n"].contains(&receipt), "{printed}");
    status::becomes(stage, &[("sessions", 0), ("leases", 0)], GOES)
}

#[test]
fn python_takes_a_lease_as_the_readme_shows() {
    as_each_user(PYTHON_NEEDS, |stage| {
        varlink::install(stage)?;
        let block = readme::block("python")?;
        while_served(stage, |daemon| {
            takes_a_lease(stage, daemon, Program::new("python3").arg("-c").arg(&block))
        })
    });
}

#[test]
fn node_takes_a_lease_as_the_readme_shows() {
    as_each_user(NODE_NEEDS, |stage| {
        let block = readme::block("node")?;
        while_served(stage, |daemon| {
            takes_a_lease(stage, daemon, Program::new("node").arg("-e").arg(&block))
        })
    });
}

#[test]
fn a_shell_takes_a_lease_as_the_readme_shows() {
    as_each_user(PYTHON_NEEDS, |stage| {
        varlink::install(stage)?;
        let block = readme::block("shell")?;
        while_served(stage, |daemon| {
            takes_a_lease(stage, daemon, Program::new("sh").arg("-euc").arg(&block))
        })
    });
}

#[test]
fn another_varlink_library_reads_the_interface_and_does_a_full_cycle() {
    as_each_user(PYTHON_NEEDS, |stage| {
        varlink::install(stage)?;
        while_served(stage, |daemon| {
            let program = Program::new("python3").args(["-c", PYTHON]);
            let printed = client(stage, daemon, program).output()?;
            ensure!(printed == "all of it\n", "{printed}");
            status::becomes(stage, &[("sessions", 0), ("leases", 0), ("generations", 0)], GOES)
        })
    });
}

#[test]
fn a_program_with_a_plain_socket_does_a_full_cycle() {
    as_each_user(NODE_NEEDS, |stage| {
        let block = readme::block("node")?;
        // What it defines, without what it does.
        let (defined, _) =
            block.split_once("(async").context("README.md's block is another one")?;
        let script = format!("{defined}{NODE}");
        while_served(stage, |daemon| {
            let program = Program::new("node").arg("-e").arg(&script);
            let printed = client(stage, daemon, program).output()?;
            ensure!(printed == "all of it\n", "{printed}");
            status::becomes(stage, &[("sessions", 0), ("leases", 0), ("generations", 0)], GOES)
        })
    });
}
