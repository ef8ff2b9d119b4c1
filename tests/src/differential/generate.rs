//! Makes a sequence from a seed.
//!
//! It keeps a rough idea of what exists, so that most calls meet something; it must never look at a
//! file system, so that a seed means the same sequence everywhere.

mod arguments;
mod pool;

use std::collections::BTreeMap;

use fastrand::Rng;

use super::operation::{Actor, NodeKind, Operation, Path, Step, Target, Whence};
use super::values;

/// How many descriptors a sequence has at most.
pub const SLOTS: usize = 6;
/// How many mappings a sequence has at most.
pub const MAPS: usize = 2;

/// Who acts in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// The process as it was started, and nobody else.
    Alone,
    /// The process, which is root, and two ordinary users.
    Mixed,
}

/// What makes a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Everything else is drawn from this.
    pub seed: u64,
    /// Who acts.
    pub cast: Cast,
    /// How many steps.
    pub length: usize,
    /// The ids that files are given to; the first is the starter's.
    pub ids: [u32; 3],
    /// Whether the starter is root, and may make what only root may.
    pub privileged: bool,
    /// Whether ACLs name nobody but the starter: in the user namespace of an ordinary user's
    /// store there is nobody else.
    pub knows_own_id_only: bool,
}

/// The steps of a sequence.
#[must_use]
pub fn sequence(recipe: Recipe) -> Vec<Step> {
    let mut generator = Generator {
        rng: Rng::with_seed(recipe.seed),
        recipe,
        exists: BTreeMap::new(),
        slots: [None; SLOTS],
        maps: [false; MAPS],
        xattrs: Vec::new(),
        forgets: false,
    };
    generator.forgets = generator.rng.u8(..8) == 0;
    let mut steps = prelude();
    for step in &steps {
        generator.remember(&step.operation);
    }
    steps.extend((0..recipe.length).map(|_| {
        let actor = generator.actor();
        let operation = generator.operation();
        generator.remember(&operation);
        Step { actor, operation }
    }));
    steps
}

/// Some directories and files for everybody.
fn prelude() -> Vec<Step> {
    let directory = |path: &str| Operation::MakeDirectory { path: path.into(), mode: 0o777 };
    let file = |slot, path: &str| {
        let flags = (libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC).cast_unsigned();
        Operation::Open { slot, path: path.into(), flags, mode: 0o666 }
    };
    let operations = [
        Operation::SetUmask { mask: 0 },
        directory("d"),
        directory("d/e"),
        directory("g"),
        file(0, "a"),
        file(1, "d/a"),
        Operation::SetUmask { mask: 0o022 },
    ];
    operations.map(|operation| Step { actor: Actor::Starter, operation }).to_vec()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

struct Generator {
    rng: Rng,
    recipe: Recipe,
    /// What probably exists.
    exists: BTreeMap<Path, Kind>,
    /// Which descriptors are probably open, and what they probably are.
    slots: [Option<Kind>; SLOTS],
    maps: [bool; MAPS],
    /// Attributes that were set.
    xattrs: Vec<(Target, &'static str)>,
    forgets: bool,
}

type Make = fn(&mut Generator) -> Operation;

/// What is made, and how often in comparison.
const MENU: &[(u32, Make)] = &[
    (14, Generator::open),
    (4, |g| Operation::Close { slot: g.slot() }),
    (3, |g| Operation::Read { slot: g.file_slot(), length: g.length() }),
    (4, |g| Operation::ReadAt { slot: g.file_slot(), offset: g.offset(), length: g.length() }),
    (4, |g| Operation::Write { slot: g.file_slot(), data: g.data() }),
    (5, |g| Operation::WriteAt { slot: g.file_slot(), offset: g.offset(), data: g.data() }),
    (3, Generator::seek),
    (3, |g| Operation::Truncate { path: g.some_path(), length: g.size() }),
    (3, |g| Operation::TruncateOpen { slot: g.file_slot(), length: g.size() }),
    (4, Generator::allocate),
    (3, Generator::copy_range),
    (1, |g| Operation::Sync { slot: g.slot(), data_only: g.rng.bool() }),
    (3, |g| Operation::Map { map: g.any_map(), slot: g.file_slot(), pages: g.rng.usize(1..4) }),
    (2, |g| Operation::MapRead { map: g.map(), offset: g.in_map(), length: g.rng.usize(1..600) }),
    (3, |g| Operation::MapWrite { map: g.map(), offset: g.in_map(), data: g.small_data() }),
    (1, |g| Operation::MapSync { map: g.map() }),
    (1, |g| Operation::Unmap { map: g.map() }),
    (8, Generator::rename),
    (5, |g| Operation::Link { from: g.some_path(), to: g.path(), follow: g.rng.u8(..4) == 0 }),
    (1, |g| Operation::LinkOpen { slot: g.slot(), to: g.path() }),
    (4, |g| Operation::Symlink { target: g.symlink_target(), path: g.path() }),
    (2, |g| Operation::ReadLink { path: g.path_of(Kind::Symlink) }),
    (7, |g| Operation::Unlink { path: g.some_path() }),
    (7, |g| Operation::MakeDirectory { path: g.path(), mode: g.mode(0o777) }),
    (4, |g| Operation::RemoveDirectory { path: g.path_of(Kind::Directory) }),
    (4, Generator::make_node),
    (7, |g| Operation::ChangeMode { target: g.target(), mode: g.mode(0o755) }),
    (5, Generator::change_owner),
    (5, |g| Operation::SetTimes { target: g.target(), accessed: g.moment(), modified: g.moment() }),
    (7, Generator::set_xattr),
    (4, Generator::get_xattr),
    (2, |g| Operation::ListXattr { target: g.target(), room: values::room(&mut g.rng) }),
    (2, Generator::remove_xattr),
    (3, |g| Operation::ReadDirectory { path: g.path_of(Kind::Directory) }),
    (1, |g| Operation::StatFs { path: g.some_path() }),
    (4, |g| Operation::Access {
        path: g.some_path(),
        mode: g.rng.u32(0..8),
        effective: g.rng.bool(),
    }),
    (4, |g| Operation::Stat { target: g.target() }),
    (2, |g| Operation::SetUmask { mask: g.pick(&[0, 0o022, 0o077, 0o027, 0o002, 0o777]) }),
    (1, Generator::forget),
];

impl Generator {
    fn actor(&mut self) -> Actor {
        match (self.recipe.cast, self.rng.u8(..8)) {
            (Cast::Alone, _) | (Cast::Mixed, 0..4) => Actor::Starter,
            (Cast::Mixed, 4..7) => Actor::Member,
            (Cast::Mixed, _) => Actor::Stranger,
        }
    }

    fn operation(&mut self) -> Operation {
        let total: u32 = MENU.iter().map(|(weight, _)| weight).sum();
        let mut drawn = self.rng.u32(..total);
        for (weight, make) in MENU {
            if drawn < *weight {
                return make(self);
            }
            drawn -= weight;
        }
        unreachable!("the weights add up")
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    // --- Calls with several arguments ---------------------------------------------------------

    fn open(&mut self) -> Operation {
        let mut flags = self.pick(&[libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR]);
        let mut add = |percent, flag| {
            if self.rng.u8(..100) < percent {
                flags |= flag;
            }
        };
        add(60, libc::O_CREAT);
        add(15, libc::O_EXCL);
        add(15, libc::O_TRUNC);
        add(20, libc::O_APPEND);
        add(10, libc::O_NOFOLLOW);
        add(6, libc::O_DIRECTORY);
        add(4, libc::O_PATH);
        // A fifo must not make the sequence wait for another process.
        flags |= libc::O_NONBLOCK | libc::O_CLOEXEC;
        let path = match self.rng.u8(..10) {
            0 => self.some_path(),
            1..4 if flags & libc::O_CREAT != 0 => self.path(),
            _ => self.path_of(Kind::File),
        };
        let slot = self.rng.usize(..SLOTS);
        Operation::Open { slot, path, flags: flags.cast_unsigned(), mode: self.mode(0o666) }
    }

    fn seek(&mut self) -> Operation {
        let all = [Whence::Start, Whence::Current, Whence::End, Whence::Data, Whence::Hole];
        let whence = self.pick(&all);
        let offset = self.offset().cast_signed();
        let offset = if self.chance(15) { -offset } else { offset };
        Operation::Seek { slot: self.file_slot(), whence, offset }
    }

    fn allocate(&mut self) -> Operation {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        let mode = self.pick(&[
            0,
            KEEP,
            KEEP | libc::FALLOC_FL_PUNCH_HOLE,
            KEEP | libc::FALLOC_FL_PUNCH_HOLE,
            libc::FALLOC_FL_PUNCH_HOLE,
            libc::FALLOC_FL_ZERO_RANGE,
            libc::FALLOC_FL_COLLAPSE_RANGE,
        ]);
        let length = if self.chance(5) { 0 } else { self.rng.u64(1..40_000) };
        let offset = self.rng.u64(..60_000);
        Operation::Allocate { slot: self.file_slot(), mode: mode.cast_unsigned(), offset, length }
    }

    fn copy_range(&mut self) -> Operation {
        let (from_offset, to_offset) = (self.rng.u64(..20_000), self.rng.u64(..60_000));
        let (from, to, length) = (self.file_slot(), self.file_slot(), self.length());
        Operation::CopyRange { from, to, from_offset, to_offset, length }
    }

    fn rename(&mut self) -> Operation {
        let flags = self.pick(&[
            0,
            0,
            0,
            libc::RENAME_NOREPLACE,
            libc::RENAME_EXCHANGE,
            libc::RENAME_EXCHANGE,
            libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE,
        ]);
        let from = self.some_path();
        let wants_both = flags == libc::RENAME_EXCHANGE || self.chance(40);
        let to = if wants_both { self.some_path() } else { self.path() };
        Operation::Rename { from, to, flags }
    }

    fn make_node(&mut self) -> Operation {
        let kinds = [NodeKind::File, NodeKind::Fifo, NodeKind::Fifo, NodeKind::Socket];
        let kind = if self.chance(10) { NodeKind::Null } else { self.pick(&kinds) };
        Operation::MakeNode { path: self.path(), kind, mode: self.mode(0o666) }
    }

    fn change_owner(&mut self) -> Operation {
        let ids = self.recipe.ids;
        let mut id = || match self.rng.u8(..8) {
            0 | 1 => None,
            2..5 => Some(ids[0]),
            5 | 6 => Some(ids[1]),
            _ => Some(ids[2]),
        };
        let (uid, gid) = (id(), id());
        // The kernel asks a FUSE server for nothing at all when nobody is named, as it does when
        // it has taken file capabilities away itself.
        let gid = if uid.is_none() { gid.or(Some(ids[0])) } else { gid };
        Operation::ChangeOwner { target: self.target(), uid, gid }
    }

    fn set_xattr(&mut self) -> Operation {
        let name = values::name(&mut self.rng);
        let [own, ..] = self.recipe.ids;
        let ids = if self.recipe.knows_own_id_only { [own; 3] } else { self.recipe.ids };
        let value = values::value(&mut self.rng, name, ids);
        let flags = self.pick(&[0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE]).cast_unsigned();
        Operation::SetXattr { target: self.target(), name, value, flags }
    }

    fn get_xattr(&mut self) -> Operation {
        let (target, name) = self.known_xattr();
        Operation::GetXattr { target, name, room: values::room(&mut self.rng) }
    }

    fn remove_xattr(&mut self) -> Operation {
        let (target, name) = self.known_xattr();
        Operation::RemoveXattr { target, name }
    }

    fn forget(&mut self) -> Operation {
        if self.forgets && self.recipe.privileged {
            Operation::ForgetCaches
        } else {
            Operation::Sync { slot: self.slot(), data_only: true }
        }
    }
}
