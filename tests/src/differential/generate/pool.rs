//! The paths of a sequence, and a rough idea of what exists at each.
//!
//! It must never be taken for the truth: permissions and most failures are not thought of.

use super::{Generator, Kind};
use crate::differential::operation::{NodeKind, Operation, Path};
use crate::differential::values;

impl Generator {
    /// Any path of the pool.
    pub(super) fn path(&mut self) -> Path {
        if self.chance(4) {
            return values::odd_path(&mut self.rng);
        }
        let directory = if self.chance(15) {
            self.path_of(Kind::Directory)
        } else {
            Path::from(self.pick(&["", "", "d", "d", "d/e", "g"]))
        };
        directory.join(self.pick(&values::NAMES))
    }

    /// In most cases a path that probably exists.
    pub(super) fn some_path(&mut self) -> Path {
        if self.exists.is_empty() || self.chance(12) {
            return self.path();
        }
        let at = self.rng.usize(..self.exists.len());
        self.exists.keys().nth(at).cloned().unwrap_or_else(|| self.path())
    }

    /// In most cases a path at which such a thing probably is.
    pub(super) fn path_of(&mut self, kind: Kind) -> Path {
        let paths: Vec<&Path> =
            self.exists.iter().filter(|(_, is)| **is == kind).map(|(path, _)| path).collect();
        if paths.is_empty() || self.rng.u8(..100) < 12 {
            return self.some_path();
        }
        paths[self.rng.usize(..paths.len())].clone()
    }

    pub(super) fn symlink_target(&mut self) -> Path {
        match self.rng.u8(..10) {
            0 => "nowhere".into(),
            1 => "../d".into(),
            2 => Path(self.pick(&values::NAMES).to_vec()),
            _ => self.some_path(),
        }
    }

    pub(super) fn remember(&mut self, operation: &Operation) {
        match operation {
            Operation::Open { slot, path, flags, .. } => {
                self.slots[*slot] = self.opened(path, flags.cast_signed());
            }
            Operation::SetXattr { target, name, .. } => {
                self.xattrs.push((target.clone(), *name));
            }
            Operation::Close { slot } => self.slots[*slot] = None,
            Operation::Map { map, .. } => self.maps[*map] = true,
            Operation::Unmap { map } => self.maps[*map] = false,
            Operation::Rename { from, to, .. } => self.moved(from, to),
            Operation::Link { from, to, .. } => {
                let kind = self.exists.get(from).copied().unwrap_or(Kind::File);
                self.appeared(to, kind);
            }
            Operation::Symlink { path, .. } => self.appeared(path, Kind::Symlink),
            Operation::MakeDirectory { path, .. } => self.appeared(path, Kind::Directory),
            Operation::MakeNode { path, kind: NodeKind::File, .. } => {
                self.appeared(path, Kind::File);
            }
            Operation::MakeNode { path, .. } => self.appeared(path, Kind::Other),
            Operation::Unlink { path } if self.exists.get(path) != Some(&Kind::Directory) => {
                self.exists.remove(path);
            }
            Operation::RemoveDirectory { path }
                if self.exists.get(path) == Some(&Kind::Directory) =>
            {
                self.exists.remove(path);
            }
            _ => {}
        }
    }

    /// What is open after this, if anything.
    pub(super) fn opened(&mut self, path: &Path, flags: i32) -> Option<Kind> {
        let known = self.exists.get(path).copied();
        let creates = flags & libc::O_CREAT != 0;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        match known {
            Some(_) if creates && flags & libc::O_EXCL != 0 => None,
            Some(Kind::Directory) if creates || writes => None,
            Some(kind) if kind != Kind::Directory && flags & libc::O_DIRECTORY != 0 => None,
            Some(kind) => Some(kind),
            None if creates && flags & libc::O_DIRECTORY == 0 => {
                self.appeared(path, Kind::File);
                self.exists.get(path).copied()
            }
            None => None,
        }
    }

    pub(super) fn appeared(&mut self, path: &Path, kind: Kind) {
        let parent = match path.0.iter().rposition(|byte| *byte == b'/') {
            Some(end) => self.exists.get(&Path(path.0[..end].to_vec())).copied(),
            None => Some(Kind::Directory),
        };
        if parent == Some(Kind::Directory) {
            self.exists.entry(path.clone()).or_insert(kind);
        }
    }

    pub(super) fn moved(&mut self, from: &Path, to: &Path) {
        let below = from.join(b"");
        let inside: Vec<Path> =
            self.exists.keys().filter(|path| path.0.starts_with(&below.0)).cloned().collect();
        for path in inside {
            if let Some(kind) = self.exists.remove(&path) {
                self.exists.insert(to.join(&path.0[below.0.len()..]), kind);
            }
        }
        if let Some(kind) = self.exists.remove(from) {
            self.exists.insert(to.clone(), kind);
        }
    }
}
