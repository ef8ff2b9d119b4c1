//! Compares two whole trees, when a sequence is over.
//!
//! It may open what it compares, also by making it readable first; so nothing can come after it.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::compare::{Comparison, Difference};
use super::execute::{Entry, Outcome, Place, Value};
use super::operation::{Path, Target};

/// The places whose trees are compared, and how.
#[derive(Debug)]
pub struct Trees<'a> {
    /// What is tested.
    pub subject: &'a Place,
    /// What is right by definition.
    pub reference: &'a Place,
    /// What the sequence taught about them.
    pub comparison: &'a mut Comparison,
}

impl Trees<'_> {
    /// How what is at this path differs, and below it.
    pub fn differ_at(&mut self, path: &Path) -> Difference {
        let say = |what: String| Some(format!("in the tree at the end, at {path:?}: {what}"));
        let target = Target::Itself(path.clone());
        let seen = (self.subject.attributes(&target), self.reference.attributes(&target));
        let (subject, reference) = match seen {
            (Ok(subject), Ok(reference)) => (subject, reference),
            (Err(subject), Err(reference)) if subject == reference => return None,
            (subject, reference) => return say(format!("{subject:?} instead of {reference:?}")),
        };
        if let Some(what) = self.comparison.attributes(&subject, &reference) {
            return say(format!("{what}\n  {subject:?}\n  {reference:?}"));
        }
        if let Some(what) = self.xattrs_differ(&target) {
            return say(what);
        }
        match reference.kind() {
            FileType::Directory => self.directories_differ(path),
            FileType::Symlink => self.both(|place| {
                let target =
                    rustix::fs::readlinkat(place.directory(), path.0.as_slice(), Vec::new())?;
                Ok(Value::Bytes(target.into_bytes()))
            }),
            FileType::RegularFile => {
                // It may have other names, and be met again.
                self.comparison.note_reading(reference.inode);
                self.contents_differ(path)
            }
            _ => None,
        }
        .and_then(say)
    }

    fn directories_differ(&mut self, path: &Path) -> Difference {
        self.make_readable(path, Mode::RWXU);
        let subject = self.subject.read_directory(path);
        let reference = self.reference.read_directory(path);
        let place = self.reference;
        let operation = super::operation::Operation::ReadDirectory { path: path.clone() };
        let difference = self.comparison.outcomes(&operation, &subject, &reference, place);
        if let Some(what) = difference {
            return Some(format!("{what}: {subject:?} instead of {reference:?}"));
        }
        let Ok(Value::Names(names)) = reference else { return None };
        names
            .iter()
            .filter(|Entry { name, .. }| name.0 != b"." && name.0 != b"..")
            .find_map(|Entry { name, .. }| self.differ_at(&path.join(&name.0)))
    }

    fn xattrs_differ(&self, target: &Target) -> Difference {
        const ROOM: usize = 1 << 16;
        let list = |place: &Place| place.list_xattrs(target, ROOM);
        if let Some(what) = self.both(list) {
            return Some(format!("extended attributes: {what}"));
        }
        let Ok(Value::Names(names)) = list(self.reference) else { return None };
        names.iter().find_map(|Entry { name, .. }| {
            let name = str::from_utf8(&name.0).ok()?;
            let what = self.both(|place| place.get_xattr(target, name, ROOM))?;
            Some(format!("extended attribute {name}: {what}"))
        })
    }

    fn contents_differ(&self, path: &Path) -> Difference {
        self.make_readable(path, Mode::RUSR | Mode::WUSR);
        let open = |place: &Place| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::openat(place.directory(), path.0.as_slice(), flags, Mode::empty())
        };
        let (subject, reference) = match (open(self.subject), open(self.reference)) {
            (Ok(subject), Ok(reference)) => (subject, reference),
            (Err(subject), Err(reference)) if subject == reference => return None,
            (subject, reference) => return Some(format!("{subject:?} instead of {reference:?}")),
        };
        // Only where the reference has data: a sparse file may be larger than any memory.
        let mut offset = 0;
        while let Ok(start) = rustix::fs::seek(&reference, SeekFrom::Data(offset)) {
            let mut block = (vec![0u8; 1 << 16], vec![0u8; 1 << 16]);
            let read = (
                rustix::io::pread(&subject, &mut block.0, start),
                rustix::io::pread(&reference, &mut block.1, start),
            );
            if read.0 != read.1 {
                return Some(format!("{:?} bytes instead of {:?} at {start}", read.0, read.1));
            }
            if let Some(at) = block.0.iter().zip(&block.1).position(|(a, b)| a != b) {
                let (a, b) = (block.0[at], block.1[at]);
                return Some(format!("{a:#x} instead of {b:#x} at {}", start + at as u64));
            }
            let Ok(read @ 1..) = read.1 else { break };
            offset = start + read as u64;
        }
        None
    }

    /// Where the caller may; the answers of what comes after say whether it worked.
    fn make_readable(&self, path: &Path, mode: Mode) {
        for place in [self.subject, self.reference] {
            let _: Result<(), Errno> =
                rustix::fs::chmodat(place.directory(), path.0.as_slice(), mode, AtFlags::empty());
        }
    }

    fn both(&self, ask: impl Fn(&Place) -> Outcome) -> Difference {
        let (subject, reference) = (ask(self.subject), ask(self.reference));
        (subject != reference).then(|| format!("{subject:?} instead of {reference:?}"))
    }
}
