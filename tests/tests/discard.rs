//! What is in use is never deleted, and what nobody uses goes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_tests::command::Running;
use holdfast_tests::daemon::while_served;
use holdfast_tests::figures::{self, shared_memory};
use holdfast_tests::need::Need;
use holdfast_tests::stage::{Stage, as_each_user, as_root};
use holdfast_tests::status;
use holdfast_tests::user::is_root;

/// A generous time for what nobody uses to go.
const GOES: Duration = Duration::from_secs(20);
/// The same, where it was closed in good order.
const GOES_AT_ONCE: Duration = Duration::from_secs(10);

/// Fills a lease, holds one thing in it, and does one step for each line that it reads: it uses what
/// it holds, and lets it go.
const HOLDER: &str = r#"
import ctypes, os, shutil, socket, subprocess, sys
kind, place, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
lease = os.environ["TMPDIR"]
below = lease + "/deep/below"
os.makedirs(below)
with open(below + "/data", "wb") as file:
    file.write(b"before")
    for block in range(size >> 20): file.write(bytes(1 << 20))
with open(lease + "/beside", "w") as file: file.write("beside")
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def use(file):
    assert os.pread(file, 6, 0) == b"before"
    assert os.pwrite(file, b"after", 100) == 5 and os.pread(file, 5, 100) == b"after"
    assert os.fstat(file).st_nlink == 1
def use_beside():
    with open(lease + "/beside", "r+") as file:
        assert file.read() == "beside" and file.write("!") == 1
def use_below(at):
    file = os.open("data", os.O_RDWR, dir_fd=at); use(file); os.close(file)
    os.close(os.open("new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=at))
    os.mkdir("directory", dir_fd=at)
def file():
    held = os.open(below + "/data", os.O_RDWR); yield
    use(held); use_beside(); yield
    os.close(held)
def directory():
    os.chdir(below); yield
    at = os.open(".", os.O_RDONLY); use_below(at); os.close(at)
    assert sorted(os.listdir(".")) == ["data", "directory", "new"]
    use_beside(); yield
    os.chdir("/")
def mapping():
    held = os.open(below + "/data", os.O_RDWR)
    memory = libc.mmap(None, 4096, 3, 1, held, 0)
    assert memory != ctypes.c_void_p(-1).value
    os.close(held); yield
    assert ctypes.string_at(memory, 6) == b"before"
    ctypes.memmove(memory, b"after", 5)
    assert ctypes.string_at(memory, 6) == b"aftere"; yield
    assert libc.munmap(memory, 4096) == 0
def path():
    held = os.open(below, os.O_PATH | os.O_DIRECTORY); yield
    use_below(held); use_beside(); yield
    os.close(held)
def handle():
    held = os.open(below, os.O_RDONLY | os.O_DIRECTORY); yield
    use_below(held); assert sorted(os.listdir(held)) == ["data", "directory", "new"]
    use_beside(); yield
    os.close(held)
def listener():
    server = socket.socket(socket.AF_UNIX); server.bind(below + "/socket"); server.listen(); yield
    client = socket.socket(socket.AF_UNIX); client.connect(below + "/socket")
    client.sendall(b"before"); client.close()
    served = server.accept()[0]; assert served.recv(6) == b"before"; served.close()
    use_beside(); yield
    server.close()
def fifo():
    os.mkfifo(below + "/fifo"); held = os.open(below + "/fifo", os.O_RDWR); yield
    other = os.open(below + "/fifo", os.O_WRONLY); os.write(other, b"before"); os.close(other)
    assert os.read(held, 6) == b"before"
    use_beside(); yield
    os.close(held)
def executable():
    shutil.copy("/bin/cat", below + "/program")
    process = subprocess.Popen([below + "/program"], stdin=-1, stdout=-1); yield
    process.stdin.write(b"before"); process.stdin.flush()
    assert os.read(process.stdout.fileno(), 6) == b"before"
    assert os.readlink(f"/proc/{process.pid}/exe") == below + "/program"
    subprocess.run([below + "/program", lease + "/beside"], check=True, stdout=subprocess.DEVNULL)
    use_beside(); yield
    process.stdin.close(); process.stdout.close(); assert process.wait() == 0
def root():
    (asked, ask), (told, tell) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.chroot(below); os.write(tell, b"x"); os.read(asked, 1)
        with open("/data", "rb") as file: assert file.read(6) == b"before"
        os.mkdir("/directory"); os.write(tell, b"x"); os.read(asked, 1); os._exit(0)
    os.read(told, 1); yield
    os.write(ask, b"x"); os.read(told, 1)
    assert sorted(os.listdir(below)) == ["data", "directory"]
    use_beside(); yield
    os.write(ask, b"x"); assert os.waitpid(child, 0)[1] == 0
def mount():
    subprocess.run(["mount", "--bind", lease, place], check=True); yield
    at = os.open(place + "/deep/below", os.O_RDONLY); use_below(at); os.close(at)
    use_beside(); yield
    subprocess.run(["umount", place], check=True)
steps = globals()[kind]()
next(steps); print("held", flush=True)
sys.stdin.readline(); next(steps); print("used", flush=True)
sys.stdin.readline(); next(steps, None); print("let go", flush=True)
sys.stdin.readline()
"#;

/// How a generation comes to have no lease and no future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The session goes on in another one.
    Rotated,
    /// The session is sealed.
    Sealed,
    /// The session is closed while the holder has a lease.
    Forced,
}

/// A process that holds something in a generation of the session `main`, which is to go.
struct Holder<'a> {
    stage: &'a Stage,
    running: Running,
    end: End,
}

impl<'a> Holder<'a> {
    fn begin(stage: &'a Stage, kind: &str, size: u64, end: End) -> anyhow::Result<Self> {
        stage.holdfast().args(["session", "open", "main"]).output()?;
        let script = match end {
            End::Forced => r#"exec /usr/bin/python3 -c "$HOLDER" "$@""#,
            // The leased process ends; its child keeps input and output.
            End::Rotated | End::Sealed => {
                r#"exec 3<&0; setsid /usr/bin/python3 -c "$HOLDER" "$@" <&3 &"#
            }
        };
        let place = stage.make_directory("work/place", 0o777)?;
        let program = stage.run_in("main", script).env("HOLDER", HOLDER).arg("bash").arg(kind);
        let mut running = program.arg(place).arg(size.to_string()).start()?;
        ensure!(running.line()? == "held");
        let session = |verb: &str| stage.holdfast().args(["session", verb, "main"]);
        match end {
            End::Forced => session("close").arg("--force").output()?,
            End::Sealed => session("close").output()?,
            End::Rotated => session("rotate").output()?,
        };
        status::becomes(stage, &[("leases", 0), ("generations", 1)], GOES)?;
        // One that is younger and goes shows that this one was looked at.
        stage.run(r#"touch "$TMPDIR/file""#).output()?;
        status::becomes(stage, &[("leases", 0), ("generations", 1)], GOES)?;
        Ok(Self { stage, running, end })
    }

    fn step(&mut self, expected: &str) -> anyhow::Result<()> {
        self.running.say("go on")?;
        let line = self.running.line()?;
        ensure!(line == expected, "{line}");
        Ok(())
    }

    /// What was held is there; once it's let go, all of it goes, while the process lives.
    fn finish(mut self) -> anyhow::Result<()> {
        self.step("used")?;
        self.step("let go")?;
        status::becomes(self.stage, &[("generations", 0)], GOES)?;
        if self.end == End::Rotated {
            self.stage.holdfast().args(["session", "close", "main"]).output()?;
        }
        status::becomes(self.stage, &[("sessions", 0)], GOES)?;
        self.running.finish()?.success()?;
        Ok(())
    }
}

fn is_kept(stage: &Stage, kind: &str) -> anyhow::Result<()> {
    while_served(stage, |_| {
        for end in [End::Rotated, End::Sealed, End::Forced] {
            let held = || Holder::begin(stage, kind, 0, end)?.finish();
            held().with_context(|| format!("{kind}, {end:?}"))?;
        }
        Ok(())
    })
}

const NEEDS: &[Need] = &[Need::Fuse, Need::Program("python3"), Need::Program("setsid")];

#[test]
fn an_open_file_keeps_its_generation() {
    as_each_user(NEEDS, |stage| is_kept(stage, "file"));
}

#[test]
fn a_working_directory_keeps_its_generation() {
    as_each_user(NEEDS, |stage| is_kept(stage, "directory"));
}

#[test]
fn a_mapping_whose_file_is_closed_keeps_its_data() {
    as_each_user(NEEDS, |stage| is_kept(stage, "mapping"));
}

#[test]
fn a_path_descriptor_keeps_its_generation() {
    as_each_user(NEEDS, |stage| is_kept(stage, "path"));
}

#[test]
fn a_directory_handle_keeps_its_generation() {
    as_each_user(NEEDS, |stage| is_kept(stage, "handle"));
}

#[test]
fn a_bound_socket_keeps_its_generation() {
    as_each_user(NEEDS, |stage| is_kept(stage, "listener"));
}

#[test]
fn an_open_fifo_keeps_its_generation() {
    as_each_user(NEEDS, |stage| is_kept(stage, "fifo"));
}

#[test]
fn a_running_executable_keeps_its_generation() {
    as_each_user(NEEDS, |stage| is_kept(stage, "executable"));
}

#[test]
fn a_process_with_its_root_there_keeps_its_generation() {
    as_root(NEEDS, |stage| is_kept(stage, "root"));
}

#[test]
fn a_bind_mount_keeps_its_generation() {
    as_root(NEEDS, |stage| is_kept(stage, "mount"));
}

#[test]
fn the_memory_of_a_generation_is_free_when_it_is_gone() {
    as_each_user(NEEDS, |stage| {
        while_served(stage, |_| {
            for end in [End::Rotated, End::Sealed] {
                let before = shared_memory()?;
                let holder = Holder::begin(stage, "file", 64 << 20, end)?;
                let held = shared_memory()?;
                // Others use memory too.
                ensure!(held > before + (32 << 10), "{before} KiB before and {held} while held");
                holder.finish()?;
                // The counts go first, the memory when its last descriptor is closed.
                let until = Instant::now() + GOES;
                while shared_memory()? + (32 << 10) > held {
                    ensure!(Instant::now() < until, "{} of {held} KiB", shared_memory()?);
                }
            }
            Ok(())
        })
    });
}

/// Everything that a directory can have in it, and names that were asked for and aren't there.
const EVERYTHING: &str = r#"
import os, socket
root = os.environ["TMPDIR"].encode()
exists = os.path.lexists
for number in range(1000): assert not exists(root + b"/absent%d" % number)
directory = root
for number in range(40):
    directory += b"/d%d" % number; os.mkdir(directory)
    assert not exists(directory + b"/absent")
os.mkfifo(root + b"/fifo"); os.mkfifo(directory + b"/fifo")
server = socket.socket(socket.AF_UNIX); server.bind(root + b"/socket"); server.listen()
def write(path):
    with open(path, "wb") as file: file.write(b"x" * 5000)
for number, name in enumerate([b"\xff\xfe", b"new\nline", b"\xc3", b"-rf", b"x" * 255, b"\xe2\x98\x83"]):
    write(root + b"/" + name); assert not exists(root + b"/" + name[:200] + b"absent")
    inner = root + b"/in%d" % number
    os.mkdir(inner); os.mkdir(inner + b"/" + name); write(inner + b"/" + name + b"/\xff")
for mode in 0o555, 0o000, 0o1000:
    path = root + b"/mode%o" % mode
    os.mkdir(path); write(path + b"/file"); os.mkdir(path + b"/d"); write(path + b"/d/file")
    os.chmod(path + b"/d", mode); os.chmod(path, mode)
os.symlink(b"/", root + b"/link"); os.symlink(b"absent", directory + b"/dangling")
os.link(root + b"/-rf", directory + b"/hard"); os.chmod(root + b"/-rf", 0)
os.unlink(root + b"/new\nline"); assert not exists(root + b"/new\nline")
"#;

#[test]
fn whatever_was_in_a_session_goes_when_it_is_closed() {
    as_each_user(&[Need::Fuse, Need::Program("python3")], |stage| {
        while_served(stage, |daemon| {
            let mut first = None;
            for round in 0..20 {
                let session = |verb: &str| stage.holdfast().args(["session", verb, "main"]);
                session("open").output()?;
                let script = r#"/usr/bin/python3 -c "$EVERYTHING""#;
                stage.run_in("main", script).env("EVERYTHING", EVERYTHING).output()?;
                session("close").output()?;
                status::becomes(stage, &[("generations", 0), ("sessions", 0)], GOES_AT_ONCE)
                    .with_context(|| format!("round {round}"))?;
                // What a first round leaves, any round may.
                if is_root() && first.is_none() {
                    first = Some(figures::worker(daemon)?.descriptors);
                }
            }
            let Some(first) = first else { return Ok(()) };
            // The connection of the last question may still be closed.
            let until = Instant::now() + GOES_AT_ONCE;
            while figures::worker(daemon)?.descriptors > first {
                let now = figures::worker(daemon)?.descriptors;
                ensure!(Instant::now() < until, "{first} descriptors became {now}");
            }
            Ok(())
        })
    });
}
