//! Operations on open files and mappings.
//!
//! A descriptor must never be shared by the two places.

use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::{Mapped, Outcome, Place, Value, done, number};
use crate::differential::operation::{Operation, Path, Whence};
use crate::sys::Mapping;

impl Place {
    pub(super) fn execute_on_file(&mut self, operation: &Operation) -> Outcome {
        use Operation as O;
        match operation {
            O::Open { slot, path, flags, mode } => {
                self.slots[*slot] = None;
                let flags = OFlags::from_bits_retain(*flags);
                let mode = Mode::from_raw_mode(*mode);
                let opened = rustix::fs::openat(self.directory(), path.0.as_slice(), flags, mode)?;
                self.slots[*slot] = Some(opened);
                Ok(Value::Done)
            }
            O::Close { slot } => match self.slots[*slot].take() {
                Some(_) => Ok(Value::Done),
                None => Err(Errno::BADF),
            },
            O::Read { slot, length } => {
                let mut bytes = vec![0; *length];
                let read = rustix::io::read(self.open_file(*slot)?, &mut bytes)?;
                bytes.truncate(read);
                Ok(Value::Bytes(bytes))
            }
            O::ReadAt { slot, offset, length } => {
                let mut bytes = vec![0; *length];
                let read = rustix::io::pread(self.open_file(*slot)?, &mut bytes, *offset)?;
                bytes.truncate(read);
                Ok(Value::Bytes(bytes))
            }
            O::Write { slot, data } => {
                number(rustix::io::write(self.open_file(*slot)?, &data.bytes()))
            }
            O::WriteAt { slot, offset, data } => {
                number(rustix::io::pwrite(self.open_file(*slot)?, &data.bytes(), *offset))
            }
            O::Seek { slot, whence, offset } => {
                let unsigned = offset.unsigned_abs();
                let from = match whence {
                    Whence::Start => SeekFrom::Start(unsigned),
                    Whence::Current => SeekFrom::Current(*offset),
                    Whence::End => SeekFrom::End(*offset),
                    Whence::Data => SeekFrom::Data(unsigned),
                    Whence::Hole => SeekFrom::Hole(unsigned),
                };
                rustix::fs::seek(self.open_file(*slot)?, from).map(Value::Number)
            }
            O::Truncate { path, length } => done(self.truncate(path, *length)),
            O::TruncateOpen { slot, length } => {
                done(rustix::fs::ftruncate(self.open_file(*slot)?, *length))
            }
            O::Allocate { slot, mode, offset, length } => {
                let mode = FallocateFlags::from_bits_retain(*mode);
                done(rustix::fs::fallocate(self.open_file(*slot)?, mode, *offset, *length))
            }
            O::CopyRange { from, to, from_offset, to_offset, length } => {
                let (mut from_offset, mut to_offset) = (*from_offset, *to_offset);
                number(rustix::fs::copy_file_range(
                    self.open_file(*from)?,
                    Some(&mut from_offset),
                    self.open_file(*to)?,
                    Some(&mut to_offset),
                    *length,
                ))
            }
            O::Sync { slot, data_only: false } => done(rustix::fs::fsync(self.open_file(*slot)?)),
            O::Sync { slot, data_only: true } => {
                done(rustix::fs::fdatasync(self.open_file(*slot)?))
            }
            _ => self.execute_on_map(operation),
        }
    }

    fn execute_on_map(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Map { map, slot, pages } => {
                self.maps[*map] = None;
                let file = self.open_file(*slot)?;
                // What is open for reading alone can't be mapped for writing; then it's read.
                let length = pages * 4096;
                let writable = Mapping::new(file, length, true);
                let mapping = writable.or_else(|_| Mapping::new(file, length, false));
                let (mapping, file) = (mapping?, rustix::io::fcntl_dupfd_cloexec(file, 0)?);
                self.maps[*map] = Some(Mapped { mapping, file });
                Ok(Value::Done)
            }
            Operation::MapRead { map, offset, length } => {
                self.mapping(*map)?.read(*offset, *length).map(Value::Bytes)
            }
            Operation::MapWrite { map, offset, data } => {
                let mapping = self.mapping(*map)?;
                let written = mapping.write(*offset, &data.bytes());
                written.map(|count| Value::Number(count as u64))
            }
            Operation::MapSync { map } => self.mapping(*map)?.sync().map(|()| Value::Done),
            Operation::Unmap { map } => match self.maps[*map].take() {
                Some(_) => Ok(Value::Done),
                None => Err(Errno::BADF),
            },
            _ => unreachable!("not an operation on a file or a mapping: {operation:?}"),
        }
    }

    fn mapping(&self, map: usize) -> Result<&Mapping, Errno> {
        self.maps[map].as_ref().map(|mapped| &mapped.mapping).ok_or(Errno::BADF)
    }

    /// `truncate` by path, which is a call of its own and no `open` with an `ftruncate`.
    fn truncate(&self, path: &Path, length: u64) -> Result<(), Errno> {
        crate::sys::truncate(&self.full_path(path), length)
    }
}
