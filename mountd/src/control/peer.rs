//! Who calls, as the kernel says, and which processes a caller may name.
//!
//! It must never take a request's word for it.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use holdfast_fs::namespace::Lineage;
use holdfast_fs::registry::{Peer, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::fault::Fault;
use crate::sys::{Credentials, peer_credentials, peer_process};

/// More ancestors than any process has.
const MOST_ANCESTORS: usize = 4096;

/// The other end of a connection. `None` where it is gone already, or can't be seen from here, as
/// from within another pid namespace.
pub(super) fn of(socket: BorrowedFd<'_>) -> Option<Peer> {
    let Credentials { pid, uid, gid } = peer_credentials(socket).ok()?;
    let held = peer_process(socket).ok()?;
    let process = Process { pid, start: Stat::of(pid)?.start };
    // What was read belongs to the peer only if the peer was there afterwards as well.
    if held.is_some_and(|held| has_ended(held.as_fd())) {
        return None;
    }
    Some(Peer { uid, gid, process })
}

/// As whom everybody is seen who isn't known in this process's user namespace; `None` where that
/// is the host's, which knows everybody.
pub(super) fn stranger() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    let knows_all = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    let stranger = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    if knows_all { None } else { stranger.trim().parse().ok() }
}

/// A process that a caller names by its pid: one that lives, and is of the caller's user.
///
/// # Errors
/// Where it isn't, or where the caller counts pids otherwise than the daemon.
pub(super) fn named(peer: &Peer, pid: u32) -> Result<Process, Fault> {
    let process = named_or_ended(peer, pid)?;
    if lives(process) { Ok(process) } else { Err(Fault::ProcessUnknown { pid }) }
}

/// The same for a process that may have ended, as long as nobody has waited for it: until then its
/// pid is its own.
///
/// # Errors
/// As for [`named`].
pub(super) fn named_or_ended(peer: &Peer, pid: u32) -> Result<Process, Fault> {
    let unknown = || Fault::ProcessUnknown { pid };
    let caller = Status::of(peer.process.pid).ok_or_else(unknown)?;
    if caller.depth > 1 {
        let what = "naming a process from within another pid namespace".to_owned();
        return Err(Fault::NotSupported { what });
    }
    let stat = Stat::of(pid).ok_or_else(unknown)?;
    let status = Status::of(pid).filter(|status| status.process == pid).ok_or_else(unknown)?;
    if peer.may_touch(status.uid) { Ok(Process { pid, start: stat.start }) } else { Err(unknown()) }
}

/// The process that a thread is of; `None` where it can't be seen from here.
pub(super) fn process_of(thread: u32) -> Option<u32> {
    Status::of(thread).map(|status| status.process)
}

/// Whether the process of a pidfd has ended.
fn has_ended(process: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// When a process started; `None` where it is gone.
pub(super) fn start_of(pid: u32) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.start)
}

/// Whether a process is there still, and not another one under its pid.
pub(crate) fn lives(process: Process) -> bool {
    Stat::of(process.pid).is_some_and(|stat| stat.start == process.start && !stat.ended)
}

/// Descent as `/proc` tells it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lines;

impl Lineage for Lines {
    fn of(&self, process: Process) -> Vec<Process> {
        let mut line = Vec::new();
        let mut next = process.pid;
        while next != 0 && line.len() < MOST_ANCESTORS {
            let Some(stat) = Stat::of(next) else { break };
            if line.is_empty() && stat.start != process.start {
                break;
            }
            line.push(Process { pid: next, start: stat.start });
            next = stat.parent;
        }
        line
    }
}

/// What `/proc/PID/stat` says.
struct Stat {
    ended: bool,
    parent: u32,
    start: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        // The second field is the command's name in parentheses; it may have any bytes in it.
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = str::from_utf8(line.get(end + 1..)?).ok()?.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // From the fourth field, which the parent is, to the 22nd.
        let start = fields.nth(17)?.parse().ok()?;
        Some(Self { ended: matches!(state, "Z" | "X" | "x"), parent, start })
    }
}

/// What `/proc/PID/status` says.
struct Status {
    /// The real user.
    uid: u32,
    /// The process that it is, or that it is a thread of.
    process: u32,
    /// How many pid namespaces deep it is, as seen from here.
    depth: usize,
}

impl Status {
    fn of(pid: u32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/status")).ok()?;
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let uid = field("Uid")?.split_ascii_whitespace().next()?.parse().ok()?;
        let process = field("Tgid")?.trim().parse().ok()?;
        // Kernels without pid namespaces don't tell.
        let depth = field("NSpid").map_or(1, |pids| pids.split_ascii_whitespace().count());
        Some(Self { uid, process, depth })
    }
}

#[cfg(test)]
mod tests;
