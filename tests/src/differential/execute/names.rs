//! Operations on names: what makes, moves, lists and removes them.
//!
//! Lists must never depend on the order in which a file system gives them.

use std::mem::MaybeUninit;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags};
use rustix::io::Errno;

use super::{Entry, Outcome, Place, Value, done};
use crate::differential::operation::{NodeKind, Operation, Path};

impl Place {
    pub(super) fn execute_on_names(&mut self, operation: &Operation) -> Outcome {
        use Operation as O;
        let at = self.directory();
        match operation {
            O::Rename { from, to, flags } => {
                let flags = RenameFlags::from_bits_retain(*flags);
                done(rustix::fs::renameat_with(at, bytes(from), at, bytes(to), flags))
            }
            O::Link { from, to, follow } => {
                let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                done(rustix::fs::linkat(at, bytes(from), at, bytes(to), flags))
            }
            O::LinkOpen { slot, to } => {
                let file = self.open_file(*slot)?;
                done(rustix::fs::linkat(file, "", at, bytes(to), AtFlags::EMPTY_PATH))
            }
            O::Symlink { target, path } => {
                done(rustix::fs::symlinkat(bytes(target), at, bytes(path)))
            }
            O::ReadLink { path } => rustix::fs::readlinkat(at, bytes(path), Vec::new())
                .map(|target| Value::Bytes(target.into_bytes())),
            O::Unlink { path } => done(rustix::fs::unlinkat(at, bytes(path), AtFlags::empty())),
            O::MakeDirectory { path, mode } => {
                done(rustix::fs::mkdirat(at, bytes(path), Mode::from_raw_mode(*mode)))
            }
            O::RemoveDirectory { path } => {
                done(rustix::fs::unlinkat(at, bytes(path), AtFlags::REMOVEDIR))
            }
            O::MakeNode { path, kind, mode } => {
                let (kind, device) = match kind {
                    NodeKind::File => (FileType::RegularFile, 0),
                    NodeKind::Fifo => (FileType::Fifo, 0),
                    NodeKind::Socket => (FileType::Socket, 0),
                    NodeKind::Null => (FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
                };
                let mode = Mode::from_raw_mode(*mode);
                done(rustix::fs::mknodat(at, bytes(path), kind, mode, device))
            }
            O::ReadDirectory { path } => self.read_directory(path),
            O::StatFs { path } => {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let opened = rustix::fs::openat(at, bytes(path), flags, Mode::empty())?;
                let stat = rustix::fs::fstatfs(opened)?;
                Ok(Value::Number(
                    stat.f_namelen.cast_unsigned() * 1_000_000 + stat.f_bsize.cast_unsigned(),
                ))
            }
            O::Access { path, mode, effective } => {
                let mode = Access::from_bits_retain(*mode);
                let flags = if *effective { AtFlags::EACCESS } else { AtFlags::empty() };
                done(rustix::fs::accessat(at, bytes(path), mode, flags))
            }
            _ => unreachable!("not an operation on names: {operation:?}"),
        }
    }

    /// All that a directory lists, sorted.
    pub(in crate::differential) fn read_directory(&self, path: &Path) -> Outcome {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(self.directory(), bytes(path), flags, Mode::empty())?;
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut list = RawDir::new(opened, &mut room);
        let mut names = Vec::new();
        while let Some(entry) = list.next() {
            let entry = entry?;
            let name = Path(entry.file_name().to_bytes().to_vec());
            // The parent of the directory of the sequence is not a part of what is compared.
            let inode = (name.0 != b"..").then(|| (entry.ino(), file_type(entry.file_type())));
            names.push(Entry { name, inode });
        }
        names.sort();
        if names.windows(2).any(|pair| pair[0].name == pair[1].name) {
            // No file system may say so; it must not pass for a list of the same length.
            return Err(Errno::NOTUNIQ);
        }
        Ok(Value::Names(names))
    }
}

fn bytes(path: &Path) -> &[u8] {
    &path.0
}

/// The type as a small number, for comparison.
fn file_type(kind: FileType) -> u8 {
    u8::try_from(kind.as_raw_mode() >> 12).unwrap_or(u8::MAX)
}
