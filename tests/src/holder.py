"""Holds things open in a lease, and does what each line of its input says; it answers in JSON.

It must never wait for anything but its input, the table of mounts, and the mount that it tests.
"""

import errno
import json
import os
import select
import sys
import time

LEASE = os.environ["TMPDIR"]
BELOW = LEASE + "/deep/below"
MOUNTS = open("/proc/self/mountinfo")
held = []
written = 0


def tried(action):
    """What it gives, or the name of the error."""
    try:
        return action()
    except OSError as error:
        return errno.errorcode[error.errno]


def read(path, at=None):
    file = os.open(path, os.O_RDONLY, dir_fd=at)
    try:
        return os.read(file, 100).decode()
    finally:
        os.close(file)


def write(path, text, at=None):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=at)
    try:
        return os.write(file, text.encode())
    finally:
        os.close(file)


def make():
    os.makedirs(BELOW, exist_ok=True)
    for name in ("data", "read", "made"):
        write(BELOW + "/" + name, name + "----")
    tried(lambda: os.symlink("data", BELOW + "/link"))


def hold():
    """Opens one more of everything; the answer is its number."""
    held.append({
        "file": os.open(BELOW + "/data", os.O_RDWR),
        "reader": os.open(BELOW + "/read", os.O_RDONLY),
        "directory": os.open(BELOW, os.O_RDONLY | os.O_DIRECTORY),
        "path": os.open(BELOW, os.O_PATH | os.O_DIRECTORY),
    })
    os.chdir(BELOW)
    return len(held) - 1


def let_go():
    os.chdir("/")
    for things in held:
        for descriptor in things.values():
            os.close(descriptor)
    held.clear()


def use(number, by_path="by path"):
    """What comes of using each thing that is held; "alone" where the path isn't to be touched."""
    global written
    written += 1
    text = "%08d" % written
    things = held[int(number)]
    file, reader = things["file"], things["reader"]
    directory, path = things["directory"], things["path"]
    return {
        "write": tried(lambda: os.pwrite(file, text.encode(), 0)),
        "read back": tried(lambda: os.pread(file, 8, 0).decode() == text),
        "seen by path": by_path == "alone" or tried(lambda: read(BELOW + "/data") == text),
        "read": tried(lambda: os.pread(reader, 8, 0).decode()),
        "list": tried(lambda: sorted(os.listdir(directory))),
        "open in directory": tried(lambda: read("read", directory)),
        "open in path": tried(lambda: read("read", path)),
        "working directory": tried(lambda: read("read")),
        "make in working directory": tried(lambda: write("made", text)),
        "getcwd": tried(os.getcwd),
        "link in proc": tried(lambda: os.readlink("/proc/self/cwd")),
    }


def across(number):
    """Changes on either side of a directory that is held and its path; what isn't seen on the
    other one."""
    directory, file = held[int(number)]["directory"], held[int(number)]["file"]
    unseen = []

    def check(what, good):
        if tried(good) is not True:
            unseen.append([what, tried(good)])

    # Pages of a file that was open before are given up, and nobody tells when.
    def soon(what, good):
        start = time.monotonic()
        while tried(good) is not True and time.monotonic() - start < 5:
            os.sched_yield()
        check(what, good)

    # Both sides know what is there, and what isn't.
    for name in ("old", "new", "moved"):
        tried(lambda: os.unlink(BELOW + "/" + name))
        check("missing", lambda: tried(lambda: read(BELOW + "/" + name)) == "ENOENT")
        check("missing", lambda: tried(lambda: read(name, directory)) == "ENOENT")
    write("old", "by the old", directory)
    check("made by the old", lambda: read(BELOW + "/old") == "by the old")
    write(BELOW + "/new", "by the new")
    check("made by the new", lambda: read("new", directory) == "by the new")
    check("listed", lambda: {"old", "new"} <= set(os.listdir(directory)) & set(os.listdir(BELOW)))
    write(BELOW + "/old", "and now by the new")
    check("changed by the new", lambda: read("old", directory) == "and now by the new")
    check("size", lambda: os.stat("old", dir_fd=directory).st_size == 18)
    write("new", "and now by the old", directory)
    check("changed by the old", lambda: read(BELOW + "/new") == "and now by the old")
    os.chmod(BELOW + "/old", 0o640)
    check("mode", lambda: os.stat("old", dir_fd=directory).st_mode & 0o777 == 0o640)
    os.rename(BELOW + "/old", BELOW + "/moved")
    check("renamed", lambda: read("moved", directory) == "and now by the new")
    check("renamed away", lambda: tried(lambda: read("old", directory)) == "ENOENT")
    os.unlink("new", dir_fd=directory)
    check("removed by the old", lambda: tried(lambda: read(BELOW + "/new")) == "ENOENT")
    # A name whose file is open.
    os.rename(BELOW + "/data", BELOW + "/aside")
    write(BELOW + "/data", "another")
    check("replaced by the new", lambda: read("data", directory) == "another")
    os.rename(BELOW + "/aside", BELOW + "/data")
    check("put back by the new", lambda: read("data", directory) != "another")
    other = os.open(BELOW + "/data", os.O_RDWR)
    os.pwrite(other, b"elsewhere", 8)
    soon("written by the new", lambda: os.pread(file, 9, 8) == b"elsewhere")
    os.pwrite(file, b"ELSEWHERE", 8)
    soon("written by the old", lambda: os.pread(other, 9, 8) == b"ELSEWHERE")
    os.ftruncate(other, 8)
    soon("cut by the new", lambda: os.fstat(file).st_size == 8 and os.pread(file, 9, 8) == b"")
    os.close(other)
    return unseen


def facts():
    """What is found by path."""
    found = {}
    for name in ("../..", "..", "", "deep", "deep/below", "deep/below/data", "deep/below/link"):
        status = os.lstat(os.path.normpath(LEASE + "/" + name))
        found[name] = [status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_nlink]
    found["read"] = read(BELOW + "/read")
    found["link"] = os.readlink(BELOW + "/link")
    return found


def serves():
    """Waits until the path leads to what was written there."""
    changed = select.poll()
    changed.register(MOUNTS, select.POLLPRI)
    while True:
        if tried(lambda: read(BELOW + "/read")) == "read----":
            return True
        changed.poll()


def lease():
    return LEASE


DO = [make, hold, let_go, use, across, facts, serves, lease]
DO = {action.__name__: action for action in DO}
for line in sys.stdin:
    name, *arguments = line.split()
    print(json.dumps(DO[name](*arguments)), flush=True)
