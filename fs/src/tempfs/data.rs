//! The contents of files, where the kernel asks for them here: without passthrough, and for holes,
//! ranges and symlinks always.

use std::ffi::OsString;
use std::io::IoSlice;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{
    FallocateFlags, IFlags, SeekFrom, copy_file_range, fallocate, fdatasync, fsync, ioctl_getflags,
    ioctl_setflags, readlinkat, seek,
};
use rustix::io::{Errno, ReadWriteFlags, pread, pwrite, pwritev2};

use super::files::Access;
use super::{Caller, TempFs};
use crate::error::Error;
use crate::node::Node;

/// Bytes that one request copies at the most: a caller goes on where it ended, and others have
/// their turn meanwhile.
const COPIED_AT_ONCE: usize = 16 << 20;

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// There.
    At(u64),
    /// To the end of the file, which the writer takes to be there.
    End(u64),
}

impl TempFs {
    /// Reads.
    ///
    /// # Errors
    /// The store's.
    pub fn read(&self, node: Node, offset: u64, size: usize) -> Result<Vec<u8>, Error> {
        let file = self.file(&*self.tree(node)?, node, Access::Read)?;
        let mut data = vec![0; size];
        let mut filled = 0;
        while filled < size {
            let count = pread(&file, &mut data[filled..], offset + filled as u64)?;
            if count == 0 {
                break;
            }
            filled += count;
        }
        data.truncate(filled);
        Ok(data)
    }

    /// Writes; `drop_privileges` where the writer has no right to keep set-id bits.
    ///
    /// # Errors
    /// The store's.
    pub fn write(
        &self,
        caller: &Caller,
        node: Node,
        position: Position,
        data: &[u8],
        drop_privileges: bool,
    ) -> Result<usize, Error> {
        let tree = self.tree(node)?;
        let file = self.file(&tree, node, Access::Write)?;
        let count = match position {
            // Where it is may have moved by way of another connection.
            Position::End(_) if self.commons.are_several() => {
                pwritev2(&file, &[IoSlice::new(data)], 0, ReadWriteFlags::APPEND)?
            }
            Position::At(offset) | Position::End(offset) => pwrite(&file, data, offset)?,
        };
        self.commons.changed(node);
        if drop_privileges {
            self.drop_privileges(caller, &*self.path(&tree, node)?)?;
        }
        Ok(count)
    }

    /// Where the next data or hole is.
    ///
    /// # Errors
    /// The store's.
    pub fn seek(&self, node: Node, offset: u64, data: bool) -> Result<u64, Error> {
        let file = self.file(&*self.tree(node)?, node, Access::Read)?;
        Ok(seek(&file, if data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) })?)
    }

    /// Takes or gives back room.
    ///
    /// # Errors
    /// The store's.
    pub fn allocate(&self, node: Node, offset: u64, length: u64, mode: u32) -> Result<(), Error> {
        let file = self.file(&*self.tree(node)?, node, Access::Write)?;
        fallocate(&file, FallocateFlags::from_bits_retain(mode), offset, length)?;
        self.commons.changed(node);
        Ok(())
    }

    /// Copies within the store.
    ///
    /// # Errors
    /// The store's; `EXDEV` between generations, upon which the kernel copies by itself.
    pub fn copy_range(
        &self,
        (from, mut from_offset): (Node, u64),
        (to, mut to_offset): (Node, u64),
        length: usize,
    ) -> Result<usize, Error> {
        if from.generation() != to.generation() {
            return Err(Error::OtherGeneration);
        }
        let tree = self.tree(from)?;
        let source = self.file(&tree, from, Access::Read)?;
        let target = self.file(&tree, to, Access::Write)?;
        let length = length.min(COPIED_AT_ONCE);
        let count = copy_file_range(
            &source,
            Some(&mut from_offset),
            &target,
            Some(&mut to_offset),
            length,
        )?;
        self.commons.changed(to);
        Ok(count)
    }

    /// Has the store write a file, or a directory, to where it lasts.
    ///
    /// # Errors
    /// The store's; `ENOSYS` where nothing lasts, upon which the kernel doesn't ask again.
    pub fn synchronise(&self, node: Node, data_only: bool) -> Result<(), Error> {
        if !self.commons.is_durable() {
            return Err(Errno::NOSYS.into());
        }
        if node.is_above_generations() {
            return Ok(());
        }
        let file = self.file(&*self.tree(node)?, node, Access::Read)?;
        if data_only {
            fdatasync(&file)?;
        } else {
            fsync(&file)?;
        }
        Ok(())
    }

    /// What a symlink says.
    ///
    /// # Errors
    /// The store's.
    pub fn read_link(&self, node: Node) -> Result<OsString, Error> {
        let path = self.path(&*self.tree(node)?, node)?;
        Ok(OsString::from_vec(readlinkat(&path, "", Vec::new())?.into_bytes()))
    }

    /// The attributes that `lsattr` shows.
    ///
    /// # Errors
    /// The store's.
    pub fn inode_flags(&self, node: Node) -> Result<u32, Error> {
        if node.is_above_generations() {
            return Err(Errno::NOTTY.into());
        }
        let file = self.file(&*self.tree(node)?, node, Access::Read)?;
        Ok(ioctl_getflags(&file)?.bits())
    }

    /// Sets the attributes that `chattr` sets.
    ///
    /// # Errors
    /// The store's.
    pub fn set_inode_flags(&self, node: Node, flags: u32) -> Result<(), Error> {
        if self.structure().is_structural(node) {
            return Err(Error::AboveGenerations);
        }
        let file = self.file(&*self.tree(node)?, node, Access::Read)?;
        Ok(ioctl_setflags(&file, IFlags::from_bits_retain(flags))?)
    }
}
