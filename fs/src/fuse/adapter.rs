//! Each request of the kernel: count it, make the call, send the reply.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::counts::{Counts, Operation};
use super::translate::{
    FOREVER, attributes, caller, errno, kind, node, nothing, number, raw_errno, time_change,
};
use super::{Features, sys};
use crate::attributes::Attributes;
use crate::error::Error;
use crate::tempfs::{Changes, DirectoryEntry, Found, Listing, NewFile, OpenFile, TempFs};

/// Inode numbers are never used twice while the kernel knows them, so that there is one generation
/// of each.
const ONLY: Generation = Generation(0);

/// Bytes that one request may write.
const MAX_WRITE: u32 = 1 << 20;

/// What is asked of the kernel where it has it.
const WANTED: [InitFlags; 10] = [
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PASSTHROUGH,
    InitFlags::FUSE_HAS_RESEND,
];

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;

/// The filesystem as the library calls it.
pub(super) struct Adapter {
    fs: Arc<TempFs>,
    counts: Arc<Counts>,
    features: Arc<OnceLock<Features>>,
}

impl Adapter {
    pub(super) fn new(
        fs: Arc<TempFs>,
        counts: Arc<Counts>,
        features: Arc<OnceLock<Features>>,
    ) -> Self {
        Self { fs, counts, features }
    }

    fn count(&self, operation: Operation) {
        self.counts.add(operation);
    }
}

fn entry(reply: ReplyEntry, result: Result<Attributes, Error>) {
    match result {
        Ok(found) => reply.entry(&FOREVER, &attributes(&found), ONLY),
        Err(error) => reply.error(errno(error)),
    }
}

fn attr(reply: ReplyAttr, result: Result<Attributes, Error>) {
    match result {
        Ok(found) => reply.attr(&FOREVER, &attributes(&found)),
        Err(error) => reply.error(errno(error)),
    }
}

fn empty(reply: ReplyEmpty, result: Result<(), Error>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// A value, or its length where the caller has no room for any.
fn value(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Error>) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(raw_errno(Errno::RANGE)),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32)
}

fn cache_flags(keep_pages: bool) -> FopenFlags {
    if keep_pages { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Below 1 the kernel passes nothing through; above it, nothing could be stacked on us.
        let _ = config.set_max_stack_depth(1);
        let _ = config.set_max_write(MAX_WRITE);
        for flag in WANTED {
            let _ = config.add_capabilities(flag);
        }
        let offered = config.capabilities();
        let _ = self.features.set(Features {
            passthrough: offered.contains(InitFlags::FUSE_PASSTHROUGH),
            resend: offered.contains(InitFlags::FUSE_HAS_RESEND),
            minor: config.kernel_abi().1,
        });
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.count(Operation::Lookup);
        match self.fs.lookup(node(parent), name) {
            Ok(Found::Inode(found)) => entry(reply, Ok(found)),
            Ok(Found::Nothing) => reply.entry(&FOREVER, &nothing(), ONLY),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn forget(&self, _request: &Request, inode: INodeNo, count: u64) {
        self.count(Operation::Forget);
        self.fs.forget(node(inode), count);
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.count(Operation::GetAttr);
        attr(reply, self.fs.attributes(node(inode)));
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.count(Operation::SetAttr);
        let changes = Changes {
            permissions: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            size,
            through_open_file: handle.is_some(),
            accessed: atime.map(time_change),
            modified: mtime.map(time_change),
        };
        attr(reply, self.fs.change(&caller(request), node(inode), &changes));
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        self.count(Operation::ReadLink);
        match self.fs.read_link(node(inode)) {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.count(Operation::MkNod);
        let new = NewFile { caller: caller(request), parent: node(parent), name, mode, umask };
        entry(reply, self.fs.make_node(&new, rdev));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.count(Operation::MkDir);
        let new = NewFile { caller: caller(request), parent: node(parent), name, mode, umask };
        entry(reply, self.fs.make_directory(&new));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(Operation::Unlink);
        empty(reply, self.fs.unlink(node(parent), name));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(Operation::RmDir);
        empty(reply, self.fs.remove_directory(node(parent), name));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.count(Operation::Symlink);
        let caller = caller(request);
        let new = NewFile { caller, parent: node(parent), name, mode: 0o777, umask: 0 };
        entry(reply, self.fs.make_symlink(&new, target));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.count(Operation::Rename);
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        empty(reply, self.fs.rename((node(parent), name), (node(new_parent), new_name), flags));
    }

    fn link(
        &self,
        _request: &Request,
        inode: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.count(Operation::Link);
        entry(reply, self.fs.link(node(inode), node(parent), name));
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.count(Operation::Open);
        match self.fs.open(&caller(request), node(inode), open_flags(flags.0)) {
            Ok(OpenFile { handle, backing: Some(backing), .. }) => {
                let backing = sys::backing_of_open(&reply, backing);
                reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &backing);
                let _ = backing.into_raw();
            }
            Ok(OpenFile { handle, backing: None, keep_pages }) => {
                reply.opened(FileHandle(handle), cache_flags(keep_pages));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.count(Operation::Create);
        let new = NewFile { caller: caller(request), parent: node(parent), name, mode, umask };
        match self.fs.create(&new, open_flags(flags)) {
            Ok((made, OpenFile { handle, backing, keep_pages })) => {
                let (made, handle) = (attributes(&made), FileHandle(handle));
                match backing {
                    Some(backing) => {
                        let backing = sys::backing_of_create(&reply, backing);
                        let flags = FopenFlags::empty();
                        reply.created_passthrough(&FOREVER, &made, ONLY, handle, flags, &backing);
                        let _ = backing.into_raw();
                    }
                    None => {
                        let flags = cache_flags(keep_pages);
                        reply.created(&FOREVER, &made, ONLY, handle, flags);
                    }
                }
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.count(Operation::Read);
        match self.fs.read(node(inode), offset, size as usize) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.count(Operation::Write);
        let drop = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self.fs.write(&caller(request), node(inode), offset, data, drop) {
            Ok(count) => reply.written(count as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// Nothing is left to do at a `close`: the kernel need not ask again.
    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.count(Operation::Flush);
        reply.error(raw_errno(Errno::NOSYS));
    }

    fn release(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.count(Operation::Release);
        self.fs.release(node(inode), handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.count(Operation::Fsync);
        empty(reply, self.fs.synchronise(node(inode), data_only));
    }

    /// Listings are not held open: the kernel need not ask again, and caches what it lists.
    fn opendir(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.count(Operation::OpenDir);
        reply.error(raw_errno(Errno::NOSYS));
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.count(Operation::ReadDir);
        match self.fs.list(node(inode), offset, false, &mut Plain(&mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.count(Operation::ReadDirPlus);
        match self.fs.list(node(inode), offset, true, &mut Plus(&mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.count(Operation::FsyncDir);
        empty(reply, self.fs.synchronise(node(inode), data_only));
    }

    fn statfs(&self, _request: &Request, inode: INodeNo, reply: ReplyStatfs) {
        self.count(Operation::StatFs);
        match self.fs.statistics(node(inode)) {
            Ok(Some(room)) => reply.statfs(
                room.f_blocks,
                room.f_bfree,
                room.f_bavail,
                room.f_files,
                room.f_ffree,
                room.f_bsize as u32,
                room.f_namemax as u32,
                room.f_frsize as u32,
            ),
            Ok(None) => reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.count(Operation::SetXattr);
        let caller = caller(request);
        empty(reply, self.fs.set_attribute(&caller, node(inode), name, value, flags as u32));
    }

    fn getxattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        self.count(Operation::GetXattr);
        value(reply, size, self.fs.attribute(node(inode), name));
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        self.count(Operation::ListXattr);
        value(reply, size, self.fs.attribute_names(&caller(request), node(inode)));
    }

    fn removexattr(&self, request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(Operation::RemoveXattr);
        empty(reply, self.fs.remove_attribute(&caller(request), node(inode), name));
    }

    fn ioctl(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        self.count(Operation::Ioctl);
        let result = match (command, data.first_chunk()) {
            (GET_FLAGS, _) => {
                self.fs.inode_flags(node(inode)).map(|flags| flags.to_ne_bytes().to_vec())
            }
            (SET_FLAGS, Some(flags)) => self
                .fs
                .set_inode_flags(node(inode), u32::from_ne_bytes(*flags))
                .map(|()| Vec::new()),
            _ => Err(Errno::NOTTY.into()),
        };
        match result {
            Ok(data) => reply.ioctl(0, &data),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.count(Operation::Fallocate);
        empty(reply, self.fs.allocate(node(inode), offset, length, mode as u32));
    }

    fn lseek(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.count(Operation::Lseek);
        let found = match (u64::try_from(offset), whence) {
            (Ok(offset), libc::SEEK_DATA) => self.fs.seek(node(inode), offset, true),
            (Ok(offset), libc::SEEK_HOLE) => self.fs.seek(node(inode), offset, false),
            (Err(_), _) => Err(Errno::NXIO.into()),
            _ => Err(Error::Invalid),
        };
        match found.map(i64::try_from) {
            Ok(Ok(offset)) => reply.offset(offset),
            Ok(Err(_)) => reply.error(raw_errno(Errno::OVERFLOW)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        from: INodeNo,
        _from_handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.count(Operation::CopyFileRange);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match self.fs.copy_range((node(from), from_offset), (node(to), to_offset), length) {
            Ok(count) => reply.written(count as u32),
            Err(error) => reply.error(errno(error)),
        }
    }
}

struct Plain<'a>(&'a mut ReplyDirectory);

impl Listing for Plain<'_> {
    fn add(&mut self, line: &DirectoryEntry<'_>) -> bool {
        !self.0.add(number(line.node), line.offset, kind(line.kind), line.name)
    }

    fn add_with(&mut self, line: &DirectoryEntry<'_>, _attributes: &Attributes) -> bool {
        self.add(line)
    }
}

struct Plus<'a>(&'a mut ReplyDirectoryPlus);

impl Listing for Plus<'_> {
    fn add(&mut self, _line: &DirectoryEntry<'_>) -> bool {
        false
    }

    fn add_with(&mut self, line: &DirectoryEntry<'_>, found: &Attributes) -> bool {
        let attributes = attributes(found);
        let (inode, offset) = (number(line.node), line.offset);
        !self.0.add(inode, offset, line.name, &FOREVER, &attributes, ONLY)
    }
}
