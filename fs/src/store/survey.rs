//! What is in a directory, without changing anything.
//!
//! It must never follow a symlink, nor hold more than so many descriptors: what is deeper is said
//! to be there and not looked at.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use crate::registry::Usage;

/// Levels that are looked at.
const DEEPEST: usize = 128;

/// What is in a directory, itself not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// What would be free without it: of a file with names elsewhere, nothing.
    pub(crate) usage: Usage,
    /// Whether all of it was looked at.
    pub(crate) whole: bool,
}

impl Survey {
    /// Looks at everything in a directory, and tells the number of each inode.
    pub(crate) fn of(directory: OwnedFd, mut found: impl FnMut(u64)) -> Result<Self, Errno> {
        let mut survey = Self { usage: Usage::default(), whole: true };
        let mut above = vec![Dir::new(directory)?];
        while let Some(level) = above.last_mut() {
            let Some(entry) = level.next() else {
                above.pop();
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let at = level.fd()?;
            let facts = match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(facts) => facts,
                // Somebody is at work there.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            };
            found(facts.st_ino);
            let is_directory = FileType::from_raw_mode(facts.st_mode) == FileType::Directory;
            survey.add(&facts, is_directory);
            if is_directory {
                match below(at, name) {
                    Ok(directory) if above.len() < DEEPEST => above.push(Dir::new(directory)?),
                    Ok(_) | Err(Errno::ACCESS) => survey.whole = false,
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(survey)
    }

    fn add(&mut self, facts: &Stat, is_directory: bool) {
        if is_directory || facts.st_nlink == 1 {
            self.usage.inodes += 1;
            self.usage.bytes += u64::try_from(facts.st_blocks).unwrap_or(0) * 512;
        }
    }
}

fn below(directory: impl std::os::fd::AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn everything_is_found_and_nothing_is_followed() {
        let room = tempfile::tempdir().expect("a directory");
        let at = |path: &str| room.path().join(path);
        fs::create_dir_all(at("it/a/b")).expect("made");
        fs::write(at("outside"), [0; 9000]).expect("written");
        fs::write(at("it/a/b/file"), [0; 5000]).expect("written");
        fs::hard_link(at("outside"), at("it/a/link")).expect("linked");
        symlink(room.path(), at("it/away")).expect("linked");
        let mut found = BTreeSet::new();
        let it = fs::File::open(at("it")).expect("opened");
        let survey = Survey::of(it.into(), |inode| assert!(found.insert(inode))).expect("looked");
        assert!(survey.whole);
        let inode = |path: &str| fs::symlink_metadata(at(path)).expect("there").ino();
        let all = ["it/a", "it/a/b", "it/a/b/file", "it/a/link", "it/away"].map(inode);
        assert_eq!(found, all.into());
        assert_eq!(survey.usage.inodes, 4, "one has a name elsewhere");
        let blocks = |path: &str| fs::symlink_metadata(at(path)).expect("there").blocks() * 512;
        let own = ["it/a", "it/a/b", "it/a/b/file", "it/away"].map(blocks);
        assert_eq!(survey.usage.bytes, own.iter().sum::<u64>());
    }

    #[test]
    fn what_is_too_deep_is_said_to_be_there() {
        let room = tempfile::tempdir().expect("a directory");
        let deep = |levels: usize| (0..levels).fold(room.path().to_owned(), |at, _| at.join("d"));
        let look = || Survey::of(fs::File::open(room.path()).expect("opened").into(), |_| ());
        fs::create_dir_all(deep(DEEPEST - 1)).expect("made");
        assert!(look().expect("looked").whole);
        fs::create_dir_all(deep(DEEPEST)).expect("made");
        assert!(!look().expect("looked").whole);
    }
}
