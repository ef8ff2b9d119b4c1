//! One step of a sequence: a system call with all of its arguments, and who makes it.
//!
//! An operation is plain data and must never hold a descriptor or a pointer, so that the same one
//! can be carried out in two places, printed, and left out when a failure is shrunk.

use std::fmt;

/// Who makes a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The process as it was started, with all of its privileges.
    Starter,
    /// An ordinary user with supplementary groups.
    Member,
    /// Another ordinary user, without any.
    Stranger,
}

/// One system call and its caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Who makes the call.
    pub actor: Actor,
    /// The call.
    pub operation: Operation,
}

/// A path below the directory of a sequence, or a name; not always UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub Vec<u8>);

impl Path {
    /// The path one level below this one; below the empty path, the name alone.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        let mut bytes = self.0.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self(bytes)
    }
}

impl From<&str> for Path {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() > 80 {
            return write!(f, "\"{}…\" ({} bytes)", self.0[..8].escape_ascii(), self.0.len());
        }
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Bytes to be written: a length, and a number from which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// How many.
    pub length: usize,
    /// What the first one is.
    pub first: u8,
}

impl Data {
    /// The bytes; neighbours differ, so that a shift shows.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let byte = |at: usize| self.first.wrapping_add((at % 251) as u8);
        (0..self.length).map(byte).collect()
    }
}

/// An object named by a path, or an open descriptor.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A path; a symlink at its end is followed.
    Followed(Path),
    /// A path; a symlink at its end is meant itself.
    Itself(Path),
    /// A descriptor.
    Open(usize),
}

impl Target {
    /// The path, where there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Followed(path) | Self::Itself(path) => Some(path),
            Self::Open(_) => None,
        }
    }
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// `UTIME_NOW`.
    Now,
    /// `UTIME_OMIT`.
    Omit,
    /// Seconds and nanoseconds, far from the present.
    At(i64, u32),
}

/// The value of an extended attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum XattrValue {
    /// Plain bytes.
    Bytes(Data),
    /// A POSIX ACL as the kernel takes it: tag, permissions, id.
    Acl(Vec<(u16, u16, u32)>),
    /// File capabilities, revision 2, with one bit permitted.
    Capability,
}

impl XattrValue {
    /// The value as it is handed to the kernel.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Bytes(data) => data.bytes(),
            Self::Acl(entries) => {
                let mut bytes = 2u32.to_le_bytes().to_vec();
                for (tag, permissions, id) in entries {
                    bytes.extend(tag.to_le_bytes());
                    bytes.extend(permissions.to_le_bytes());
                    bytes.extend(id.to_le_bytes());
                }
                bytes
            }
            Self::Capability => {
                let words = [0x0200_0000u32, 1 << 10, 0, 0, 0];
                words.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
        }
    }
}

/// What `mknod` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A fifo.
    Fifo,
    /// A socket that nobody bound.
    Socket,
    /// The character device 1:3, which is `/dev/null` elsewhere.
    Null,
}

/// Where a seek starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the system call's own constants")]
pub enum Whence {
    Start,
    Current,
    End,
    Data,
    Hole,
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident $({ $($field:ident: $type:ty),* $(,)? })?,)*) => {
        /// A system call with all of its arguments.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the arguments of the system call of the same name")]
        pub enum Operation {
            $($(#[$doc])* $name $({ $($field: $type),* })?,)*
        }

        impl Operation {
            /// The name under which the operation is counted.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name $({ $($field: _),* })? => stringify!($name),)*
                }
            }
        }
    };
}

operations! {
    /// Into a free place of the descriptor table; what was there is closed.
    Open { slot: usize, path: Path, flags: u32, mode: u32 },
    Close { slot: usize },
    Read { slot: usize, length: usize },
    ReadAt { slot: usize, offset: u64, length: usize },
    Write { slot: usize, data: Data },
    WriteAt { slot: usize, offset: u64, data: Data },
    Seek { slot: usize, whence: Whence, offset: i64 },
    Truncate { path: Path, length: u64 },
    TruncateOpen { slot: usize, length: u64 },
    Allocate { slot: usize, mode: u32, offset: u64, length: u64 },
    CopyRange { from: usize, to: usize, from_offset: u64, to_offset: u64, length: usize },
    Sync { slot: usize, data_only: bool },
    /// A shared mapping of an open file; what was in this place is unmapped.
    Map { map: usize, slot: usize, pages: usize },
    MapRead { map: usize, offset: usize, length: usize },
    MapWrite { map: usize, offset: usize, data: Data },
    MapSync { map: usize },
    Unmap { map: usize },
    Rename { from: Path, to: Path, flags: u32 },
    Link { from: Path, to: Path, follow: bool },
    LinkOpen { slot: usize, to: Path },
    Symlink { target: Path, path: Path },
    ReadLink { path: Path },
    Unlink { path: Path },
    MakeDirectory { path: Path, mode: u32 },
    RemoveDirectory { path: Path },
    MakeNode { path: Path, kind: NodeKind, mode: u32 },
    ChangeMode { target: Target, mode: u32 },
    ChangeOwner { target: Target, uid: Option<u32>, gid: Option<u32> },
    SetTimes { target: Target, accessed: Moment, modified: Moment },
    SetXattr { target: Target, name: &'static str, value: XattrValue, flags: u32 },
    GetXattr { target: Target, name: &'static str, room: usize },
    ListXattr { target: Target, room: usize },
    RemoveXattr { target: Target, name: &'static str },
    ReadDirectory { path: Path },
    StatFs { path: Path },
    Access { path: Path, mode: u32, effective: bool },
    Stat { target: Target },
    SetUmask { mask: u32 },
    /// The kernel drops the names and inodes that it caches.
    ForgetCaches,
}
