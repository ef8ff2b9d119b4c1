//! Reads a file of settings, which may be anything: it must never keep the daemon waiting or fill
//! its memory.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Nobody has as many settings as that.
const LONGEST: u64 = 1 << 16;

/// The text of a regular file of a sensible length.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let refused = |reason: &str| io::Error::new(ErrorKind::InvalidData, reason);
    // A fifo would wait for a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(refused("it isn't a regular file"));
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(refused("it is too long for settings"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_regular_file_is_read() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("config.toml");
        std::fs::write(&path, "idle_exit = '1m'").expect("written");
        assert_eq!(read(&path).expect("read"), "idle_exit = '1m'");
        std::fs::write(&path, "#".repeat(LONGEST as usize + 1)).expect("written");
        assert!(read(&path).is_err());
        let fifo = home.path().join("fifo");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, 0o600.into(), 0).expect("made");
        assert!(read(&fifo).is_err());
        assert!(read(Path::new("/dev/zero")).is_err());
    }
}
