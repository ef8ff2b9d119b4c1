//! How much all sessions together may hold where nobody has said it: half of the memory, and half of
//! what the daemon's control groups may have.
//!
//! It must never take a limit that can't be read for one that is far away.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::param::page_size;
use rustix::system::sysinfo;

/// Where control groups are looked at.
const GROUPS: &str = "/sys/fs/cgroup";

/// The total where nobody has said it.
pub(super) fn by_default() -> u64 {
    let host = sysinfo();
    let memory = host.totalram.saturating_mul(host.mem_unit.into());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    half(memory, &limits(Path::new(GROUPS), &groups))
}

/// Half of the least, in whole pages.
fn half(memory: u64, limits: &[u64]) -> u64 {
    let page = page_size() as u64;
    let least = limits.iter().copied().fold(memory, u64::min);
    (least / 2 / page).max(1) * page
}

/// The limits of the groups that this process is in, and of those above them. Where there is no
/// limit the file says `max`, or isn't there.
fn limits(root: &Path, groups: &str) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            "memory" => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        let mut group: PathBuf = top.join(path.trim_start_matches('/'));
        while group.starts_with(&top) {
            let text = fs::read_to_string(group.join(file)).unwrap_or_default();
            limits.extend(text.trim().parse::<u64>().ok());
            if !group.pop() {
                break;
            }
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_tightest_is_the_total() {
        let page = page_size() as u64;
        assert_eq!(half(8 << 30, &[]), 4 << 30);
        assert_eq!(half(8 << 30, &[u64::MAX, 1 << 30, 2 << 30]), 512 << 20);
        assert_eq!(half(8 << 30, &[1]), page);
    }

    #[test]
    fn groups_above_count_too() {
        let room = tempfile::tempdir().expect("a directory");
        let at = |path: &str| room.path().join(path);
        fs::create_dir_all(at("a/b")).expect("made");
        fs::create_dir_all(at("memory/c")).expect("made");
        fs::write(at("memory.max"), "7\n").expect("written");
        fs::write(at("a/memory.max"), "5\n").expect("written");
        fs::write(at("a/b/memory.max"), "max\n").expect("written");
        fs::write(at("memory/c/memory.limit_in_bytes"), "3\n").expect("written");
        assert_eq!(limits(room.path(), "0::/a/b\n"), [5, 7]);
        assert_eq!(limits(room.path(), "4:cpu:/x\n3:memory:/c\n1:name=systemd:/\n"), [3]);
        assert_eq!(limits(room.path(), "0::/gone\nnonsense\n"), [7]);
    }
}
