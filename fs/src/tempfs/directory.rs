//! Listing directories.
//!
//! No listing is ever held open between two requests: the store's own offsets say where the next
//! one goes on, so a listing survives a restart, and costs no descriptor while nobody asks.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::io::Errno;

use super::TempFs;
use crate::attributes::Attributes;
use crate::error::Error;
use crate::node::Node;
use crate::structure::BEFORE_CHILDREN;

/// Bytes of names that are read from the store at a time.
const BUFFER: usize = 16 * 1024;

/// A line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// The inode.
    pub node: Node,
    /// Its type.
    pub kind: FileType,
    /// Its name.
    pub name: &'a OsStr,
    /// Where a listing goes on behind it.
    pub offset: u64,
}

/// Who takes the lines of a listing.
pub trait Listing {
    /// Takes a line; `false` where there is no more room, and the line is not taken.
    fn add(&mut self, entry: &DirectoryEntry<'_>) -> bool;

    /// Takes a line with the inode's attributes; as above.
    fn add_with(&mut self, entry: &DirectoryEntry<'_>, attributes: &Attributes) -> bool;
}

impl TempFs {
    /// Lists a directory from an offset on. With attributes, each inode listed (except `.` and
    /// `..`) counts as looked up once.
    ///
    /// # Errors
    /// The store's.
    pub fn list(
        &self,
        node: Node,
        offset: u64,
        attributes: bool,
        listing: &mut dyn Listing,
    ) -> Result<(), Error> {
        if node.is_above_generations() {
            self.list_structural(node, offset, attributes, listing)
        } else {
            self.list_tree(node, offset, attributes, listing)
        }
    }

    fn list_structural(
        &self,
        node: Node,
        offset: u64,
        attributes: bool,
        listing: &mut dyn Listing,
    ) -> Result<(), Error> {
        let own = self.structure().attributes(node).ok_or(Error::Forgotten)?;
        let parent = self.structure().parent(node).ok_or(Error::Forgotten)?;
        for (number, (node, name)) in [(node, "."), (parent, "..")].into_iter().enumerate() {
            let next = number as u64 + 1;
            let line = DirectoryEntry {
                node,
                kind: FileType::Directory,
                name: OsStr::new(name),
                offset: next,
            };
            let dots = Attributes { node, ..own };
            if offset < next && !add_line(listing, &line, attributes.then_some(&dots)) {
                return Ok(());
            }
        }
        let behind = offset.max(BEFORE_CHILDREN);
        for child in self.structure().children(node, behind).ok_or(Error::Forgotten)? {
            let line = DirectoryEntry {
                node: child.node,
                kind: FileType::Directory,
                name: &child.name,
                offset: child.offset,
            };
            if !attributes {
                if !listing.add(&line) {
                    return Ok(());
                }
                continue;
            }
            // A child that goes meanwhile is left out.
            let Ok(found) = self.lookup(node, &child.name) else { continue };
            let super::Found::Inode(looked_up) = found else { continue };
            if !listing.add_with(&line, &looked_up) {
                self.forget(looked_up.node, 1);
                return Ok(());
            }
        }
        Ok(())
    }

    fn list_tree(
        &self,
        node: Node,
        offset: u64,
        attributes: bool,
        listing: &mut dyn Listing,
    ) -> Result<(), Error> {
        let tree = self.tree(node)?;
        let path = self.path(&tree, node)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&path, ".", flags, Mode::empty())?;
        if offset > 0 {
            seek(&directory, SeekFrom::Start(offset))?;
        }
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut taken = false;
        let mut lines = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(line) = lines.next() {
            let line = match line {
                Ok(line) => line,
                // What was taken counts as looked up; the kernel must hear of it.
                Err(_) if taken => break,
                Err(errno) => return Err(errno.into()),
            };
            let name = OsStr::from_bytes(line.file_name().to_bytes());
            let is_dot = name == "." || name == "..";
            let shown = match name.as_bytes() {
                b"." => Some(node),
                b".." if node == tree.root_node() => self.structure().parent(node),
                _ => tree.node(line.ino()),
            };
            let Some(shown) = shown else { continue };
            let entry = DirectoryEntry {
                node: shown,
                kind: line.file_type(),
                name,
                offset: line.next_entry_cookie(),
            };
            if !attributes {
                if !listing.add(&entry) {
                    break;
                }
                taken = true;
                continue;
            }
            if is_dot {
                let own = dot_attributes(shown);
                if !listing.add_with(&entry, &own) {
                    break;
                }
                taken = true;
                continue;
            }
            let looked_up = match self.enter(&tree, path.as_fd(), name) {
                Ok(looked_up) => looked_up,
                Err(Error::Store(Errno::NOENT)) => continue,
                Err(_) if taken => break,
                Err(error) => return Err(error),
            };
            let entry = DirectoryEntry { node: looked_up.node, ..entry };
            if !listing.add_with(&entry, &looked_up) {
                self.forget(looked_up.node, 1);
                break;
            }
            taken = true;
        }
        Ok(())
    }
}

fn add_line(
    listing: &mut dyn Listing,
    line: &DirectoryEntry<'_>,
    attributes: Option<&Attributes>,
) -> bool {
    match attributes {
        None => listing.add(line),
        Some(attributes) => listing.add_with(line, attributes),
    }
}

/// What is said of `.` and `..`: the kernel takes no more than the number and the type.
fn dot_attributes(node: Node) -> Attributes {
    Attributes {
        node,
        kind: FileType::Directory,
        permissions: 0,
        size: 0,
        blocks: 0,
        block_size: 0,
        links: 0,
        uid: 0,
        gid: 0,
        device: 0,
        accessed: crate::attributes::FileTime::default(),
        modified: crate::attributes::FileTime::default(),
        changed: crate::attributes::FileTime::default(),
    }
}
