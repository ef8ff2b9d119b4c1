//! Operations on attributes: modes, owners, times, extended attributes and ACLs.
//!
//! A call must be the one that a program would make for such a target, never another way to the
//! same effect.

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::{Entry, Outcome, Place, Value, done};
use crate::differential::observe::Attributes;
use crate::differential::operation::{Moment, Operation, Path, Target};

impl Place {
    pub(super) fn execute_on_attributes(&mut self, operation: &Operation) -> Outcome {
        use Operation as O;
        match operation {
            O::ChangeMode { target, mode } => {
                let mode = Mode::from_raw_mode(*mode);
                done(match target {
                    // There is no such call for a symlink itself.
                    Target::Followed(path) | Target::Itself(path) => rustix::fs::chmodat(
                        self.directory(),
                        path.0.as_slice(),
                        mode,
                        AtFlags::empty(),
                    ),
                    Target::Open(slot) => rustix::fs::fchmod(self.open_file(*slot)?, mode),
                })
            }
            O::ChangeOwner { target, uid, gid } => {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                done(match target {
                    Target::Open(slot) => rustix::fs::fchown(self.open_file(*slot)?, uid, gid),
                    Target::Followed(path) | Target::Itself(path) => rustix::fs::chownat(
                        self.directory(),
                        path.0.as_slice(),
                        uid,
                        gid,
                        flags(target),
                    ),
                })
            }
            O::SetTimes { target, accessed, modified } => {
                let times = Timestamps {
                    last_access: timespec(*accessed),
                    last_modification: timespec(*modified),
                };
                done(match target {
                    Target::Open(slot) => rustix::fs::futimens(self.open_file(*slot)?, &times),
                    Target::Followed(path) | Target::Itself(path) => rustix::fs::utimensat(
                        self.directory(),
                        path.0.as_slice(),
                        &times,
                        flags(target),
                    ),
                })
            }
            O::SetXattr { target, name, value, flags } => {
                let (value, flags) = (value.bytes(), XattrFlags::from_bits_retain(*flags));
                done(match target {
                    Target::Followed(path) => {
                        rustix::fs::setxattr(self.full_path(path), *name, &value, flags)
                    }
                    Target::Itself(path) => {
                        rustix::fs::lsetxattr(self.full_path(path), *name, &value, flags)
                    }
                    Target::Open(slot) => {
                        rustix::fs::fsetxattr(self.open_file(*slot)?, *name, &value, flags)
                    }
                })
            }
            O::GetXattr { target, name, room } => self.get_xattr(target, name, *room),
            O::ListXattr { target, room } => self.list_xattrs(target, *room),
            O::RemoveXattr { target, name } => done(match target {
                Target::Followed(path) => rustix::fs::removexattr(self.full_path(path), *name),
                Target::Itself(path) => rustix::fs::lremovexattr(self.full_path(path), *name),
                Target::Open(slot) => rustix::fs::fremovexattr(self.open_file(*slot)?, *name),
            }),
            O::Stat { target } => self.attributes(target).map(Value::Attributes),
            _ => unreachable!("not an operation on attributes: {operation:?}"),
        }
    }

    /// What `stat`, `lstat` or `fstat` says.
    ///
    /// # Errors
    ///
    /// What the system call says.
    pub fn attributes(&self, target: &Target) -> Result<Attributes, Errno> {
        match target {
            Target::Open(slot) => Attributes::of_open(self.open_file(*slot)?),
            Target::Followed(path) | Target::Itself(path) => {
                Attributes::of_path(self.directory(), path, flags(target))
            }
        }
    }

    pub(in crate::differential) fn get_xattr(
        &self,
        target: &Target,
        name: &str,
        room: usize,
    ) -> Outcome {
        let mut value = vec![0u8; room];
        let buffer = value.as_mut_slice();
        let length = match target {
            Target::Followed(path) => rustix::fs::getxattr(self.full_path(path), name, buffer),
            Target::Itself(path) => rustix::fs::lgetxattr(self.full_path(path), name, buffer),
            Target::Open(slot) => rustix::fs::fgetxattr(self.open_file(*slot)?, name, buffer),
        }?;
        if room == 0 {
            return Ok(Value::Number(length as u64));
        }
        value.truncate(length);
        Ok(Value::Bytes(value))
    }

    pub(in crate::differential) fn list_xattrs(&self, target: &Target, room: usize) -> Outcome {
        let mut list = vec![0u8; room];
        let buffer = list.as_mut_slice();
        let length = match target {
            Target::Followed(path) => rustix::fs::listxattr(self.full_path(path), buffer),
            Target::Itself(path) => rustix::fs::llistxattr(self.full_path(path), buffer),
            Target::Open(slot) => rustix::fs::flistxattr(self.open_file(*slot)?, buffer),
        }?;
        if room == 0 {
            return Ok(Value::Number(length as u64));
        }
        let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let mut names: Vec<Entry> =
            names.map(|name| Entry { name: Path(name.to_vec()), inode: None }).collect();
        names.sort();
        Ok(Value::Names(names))
    }
}

fn flags(target: &Target) -> AtFlags {
    match target {
        Target::Itself(_) => AtFlags::SYMLINK_NOFOLLOW,
        Target::Followed(_) | Target::Open(_) => AtFlags::empty(),
    }
}

fn timespec(moment: Moment) -> Timespec {
    match moment {
        Moment::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Moment::Omit => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Moment::At(seconds, nanoseconds) => {
            Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) }
        }
    }
}
