//! Each request of the kernel: count it, make the call, send the reply.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, IoctlFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;

use super::counts::{Counts, Operation};
use super::lane::Lane;
use super::translate::{
    FOREVER, caller, errno, node, open_flags, position, raw_errno, sought, time_change,
};
use super::{Features, handshake, ioctl, reply};
use crate::node::Node;
use crate::tempfs::{Changes, NewFile, TempFs};

/// The filesystem as the library calls it.
pub(super) struct Adapter {
    fs: Arc<TempFs>,
    counts: Arc<Counts>,
    features: Arc<OnceLock<Features>>,
    lane: Lane,
}

impl Adapter {
    pub(super) fn new(
        fs: Arc<TempFs>,
        counts: Arc<Counts>,
        features: Arc<OnceLock<Features>>,
    ) -> io::Result<Self> {
        Ok(Self { fs, counts, features, lane: Lane::start()? })
    }

    /// How long the kernel may believe what it is told. Asked for before the answer is: where a
    /// second connection comes in between, what is told is looked at again.
    fn valid(&self) -> Duration {
        if self.fs.may_be_remembered() { FOREVER } else { Duration::ZERO }
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = self.features.set(handshake::agree(config));
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.counts.add(Operation::Lookup);
        reply::found(reply, self.valid(), self.fs.lookup(node(parent), name));
    }

    fn forget(&self, _request: &Request, inode: INodeNo, count: u64) {
        self.counts.add(Operation::Forget);
        self.fs.forget(node(inode), count);
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.counts.add(Operation::GetAttr);
        let node = node(inode);
        reply::attr(reply, self.valid(), self.fs.attributes(node));
        if node == Node::ROOT {
            self.fs.tell_root();
        }
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
        self.counts.add(Operation::SetAttr);
        let changes = Changes {
            permissions: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            size,
            through_open_file: handle.is_some(),
            accessed: atime.map(time_change),
            modified: mtime.map(time_change),
        };
        let (fs, caller, node) = (Arc::clone(&self.fs), caller(request), node(inode));
        let heavy = size.is_some() && self.fs.is_large(node);
        let valid = self.valid();
        let work = move || reply::attr(reply, valid, fs.change(&caller, node, &changes));
        self.lane.run_if(heavy, work);
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        self.counts.add(Operation::ReadLink);
        reply::data(reply, self.fs.read_link(node(inode)).map(OsString::into_encoded_bytes));
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
        self.counts.add(Operation::MkNod);
        let new = NewFile { caller: caller(request), parent: node(parent), name, mode, umask };
        reply::entry(reply, self.valid(), self.fs.make_node(&new, rdev));
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
        self.counts.add(Operation::MkDir);
        let new = NewFile { caller: caller(request), parent: node(parent), name, mode, umask };
        reply::entry(reply, self.valid(), self.fs.make_directory(&new));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.counts.add(Operation::Unlink);
        reply::empty(reply, self.fs.unlink(&caller(request), node(parent), name));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.counts.add(Operation::RmDir);
        reply::empty(reply, self.fs.remove_directory(&caller(request), node(parent), name));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.counts.add(Operation::Symlink);
        let (caller, parent) = (caller(request), node(parent));
        let new = NewFile { caller, parent, name, mode: 0o777, umask: 0 };
        reply::entry(reply, self.valid(), self.fs.make_symlink(&new, target));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.counts.add(Operation::Rename);
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let (old, new) = ((node(parent), name), (node(new_parent), new_name));
        reply::empty(reply, self.fs.rename(&caller(request), old, new, flags));
    }

    fn link(
        &self,
        _request: &Request,
        inode: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.counts.add(Operation::Link);
        reply::entry(reply, self.valid(), self.fs.link(node(inode), node(parent), name));
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.counts.add(Operation::Open);
        reply::open(reply, self.fs.open(&caller(request), node(inode), open_flags(flags.0)));
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
        self.counts.add(Operation::Create);
        let new = NewFile { caller: caller(request), parent: node(parent), name, mode, umask };
        reply::create(reply, self.valid(), self.fs.create(&new, open_flags(flags)));
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
        self.counts.add(Operation::Read);
        reply::data(reply, self.fs.read(node(inode), offset, size as usize));
    }

    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.counts.add(Operation::Write);
        let drop = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let at = position(open_flags(flags.0), offset);
        let written = self.fs.write(&caller(request), node(inode), at, data, drop);
        reply::written(reply, written);
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
        self.counts.add(Operation::Flush);
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
        self.counts.add(Operation::Release);
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
        self.counts.add(Operation::Fsync);
        let (fs, node) = (Arc::clone(&self.fs), node(inode));
        self.lane.run_if(true, move || reply::empty(reply, fs.synchronise(node, data_only)));
    }

    /// Listings are not held open: the kernel need not ask again, and caches what it lists.
    fn opendir(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.counts.add(Operation::OpenDir);
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
        self.counts.add(Operation::ReadDir);
        match self.fs.list(node(inode), offset, false, &mut reply::Plain(&mut reply)) {
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
        self.counts.add(Operation::ReadDirPlus);
        match self.fs.list(node(inode), offset, true, &mut reply::Plus(&mut reply, self.valid())) {
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
        self.counts.add(Operation::FsyncDir);
        reply::empty(reply, self.fs.synchronise(node(inode), data_only));
    }

    fn statfs(&self, _request: &Request, inode: INodeNo, reply: ReplyStatfs) {
        self.counts.add(Operation::StatFs);
        reply::statistics(reply, self.fs.statistics(node(inode)));
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
        self.counts.add(Operation::SetXattr);
        let caller = caller(request);
        reply::empty(reply, self.fs.set_attribute(&caller, node(inode), name, value, flags as u32));
    }

    fn getxattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        self.counts.add(Operation::GetXattr);
        reply::value(reply, size, self.fs.attribute(node(inode), name));
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        self.counts.add(Operation::ListXattr);
        reply::value(reply, size, self.fs.attribute_names(&caller(request), node(inode)));
    }

    fn removexattr(&self, request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.counts.add(Operation::RemoveXattr);
        reply::empty(reply, self.fs.remove_attribute(&caller(request), node(inode), name));
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
        self.counts.add(Operation::Ioctl);
        reply::flags(reply, ioctl::answer(&self.fs, node(inode), command, data));
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
        self.counts.add(Operation::Fallocate);
        let (fs, node) = (Arc::clone(&self.fs), node(inode));
        let work = move || reply::empty(reply, fs.allocate(node, offset, length, mode as u32));
        self.lane.run_if(length > TempFs::LARGE, work);
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
        self.counts.add(Operation::Lseek);
        let sought = sought(offset, whence);
        reply::offset(reply, sought.and_then(|(at, data)| self.fs.seek(node(inode), at, data)));
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
        self.counts.add(Operation::CopyFileRange);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (from, to) = ((node(from), from_offset), (node(to), to_offset));
        reply::written(reply, self.fs.copy_range(from, to, length));
    }
}
