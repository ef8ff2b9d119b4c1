//! The mounts that the calling thread sees, and the way out when one of them hangs.
//!
//! Nothing here may touch a path below a mount: that is what would hang. Connections are aborted
//! only in a mount namespace that a test made for itself.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use rustix::event::{PollFd, PollFlags};

use crate::command::poll;

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Where it is.
    pub path: PathBuf,
    /// The kind of file system.
    pub kind: String,
}

thread_local! {
    /// Where connections can be aborted, in a namespace of the thread's own.
    static CONTROL: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// All mounts in the mount namespace of the calling thread.
///
/// # Errors
///
/// Where the table can't be read.
pub fn list() -> anyhow::Result<Vec<Mount>> {
    let text = fs::read_to_string("/proc/thread-self/mountinfo")?;
    text.lines().map(|line| parse(line).with_context(|| format!("mountinfo: {line}"))).collect()
}

/// Those of FUSE.
///
/// # Errors
///
/// Where the table can't be read.
pub fn fuse() -> anyhow::Result<Vec<Mount>> {
    let is_fuse = |mount: &Mount| mount.kind == "fuse" || mount.kind.starts_with("fuse.");
    Ok(list()?.into_iter().filter(is_fuse).collect())
}

/// The table of the calling thread's mount namespace, which tells when it changes.
#[derive(Debug)]
pub struct Table(File);

impl Table {
    /// Watches from here on.
    ///
    /// # Errors
    ///
    /// Where the table can't be read.
    pub fn watch() -> io::Result<Self> {
        File::open("/proc/thread-self/mountinfo").map(Self)
    }

    /// Waits until a mount of FUSE is at this path.
    ///
    /// # Errors
    ///
    /// Where the time ends first.
    pub fn wait_for_fuse(&self, path: &Path, until: Instant) -> anyhow::Result<()> {
        while !fuse()?.iter().any(|mount| mount.path == path) {
            let mut polled = [PollFd::new(&self.0, PollFlags::PRI)];
            let left = until.saturating_duration_since(Instant::now());
            ensure!(poll(&mut polled, left)? > 0, "nothing is mounted at {}", path.display());
        }
        Ok(())
    }
}

/// Tells where the `fusectl` file system of this thread's own namespace is.
pub(crate) fn set_control(path: PathBuf) {
    CONTROL.set(Some(path));
}

/// Aborts each FUSE connection whose mount this thread sees, so that what waits for one goes on.
/// Outside a namespace of the thread's own it does nothing.
pub fn abort_fuse_connections() {
    let Some(control) = CONTROL.with_borrow(Clone::clone) else { return };
    for mount in fuse().unwrap_or_default() {
        let connection = control.join(mount.device.1.to_string()).join("abort");
        // Gone by itself in the meantime is as good.
        drop(fs::write(connection, "1"));
    }
}

fn parse(line: &str) -> Option<Mount> {
    let (mount, rest) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(2);
    let (major, minor) = fields.next()?.split_once(':')?;
    let path = fields.nth(1)?;
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        path: Path::new(&unescape(path)).to_owned(),
        kind: rest.split(' ').next()?.to_owned(),
    })
}

/// Blanks and the like stand as three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[3..]);
            }
            None => plain.push_str(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let line = "36 35 0:77 / /tmp/a\\040b rw,nosuid shared:1 - fuse.holdfast holdfast rw";
        let mount = parse(line).expect("it's a line of mountinfo");
        let path = PathBuf::from("/tmp/a b");
        assert_eq!(mount, Mount { device: (0, 77), path, kind: "fuse.holdfast".to_owned() });
    }
}
