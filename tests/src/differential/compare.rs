//! Judges whether the two places behaved alike.
//!
//! A difference that is accepted here must be one that no program may rely on: which number an
//! inode has, what the clock said, and what only the reading of a file moved.

use std::collections::{HashMap, HashSet};

use rustix::fs::FileType;

use super::execute::{Entry, Outcome, Place, Value};
use super::observe::{Attributes, Observation, Time};
use super::operation::{Moment, Operation, Target, Whence};

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The size and blocks of directories; two kinds of file system count them differently.
    pub directory_sizes: bool,
    /// Whether an operation changed a time or not.
    pub time_relations: bool,
    /// Where a mapped file has holes; a page cache in between fills them late.
    pub holes_of_mapped_files: bool,
}

impl Rules {
    /// Everything.
    pub const ALL: Self =
        Self { directory_sizes: true, time_relations: true, holes_of_mapped_files: true };
}

/// Compares, and remembers what it takes to compare later: which inode is which.
#[derive(Debug)]
pub struct Comparison {
    rules: Rules,
    /// A little before the sequence began.
    present: i64,
    /// From an inode of the reference to that of the subject, and back.
    inodes: HashMap<u64, u64>,
    back: HashMap<u64, u64>,
    /// The times last seen, by the inode of the reference: the subject's, the reference's.
    times: HashMap<u64, (Times, Times)>,
    /// Inodes whose times move without a word to the file system: those that were mapped, and
    /// fifos that were written to.
    restless: HashSet<u64>,
    /// Inodes that were read since their access time was set.
    read: HashSet<u64>,
}

type Times = (Time, Time);

/// How the two differ, in words; `None` where they don't.
pub type Difference = Option<String>;

impl Comparison {
    /// A comparison that has seen nothing yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        Self {
            rules,
            present: now - 60,
            inodes: HashMap::new(),
            back: HashMap::new(),
            times: HashMap::new(),
            restless: HashSet::new(),
            read: HashSet::new(),
        }
    }

    /// Whether this call may answer differently because of a mapping, so that it's left out.
    #[must_use]
    pub fn leaves_out(&self, operation: &Operation, reference: &Place) -> bool {
        match operation {
            _ if self.rules.holes_of_mapped_files => false,
            Operation::Seek { slot, whence: Whence::Data | Whence::Hole, .. } => {
                let inode = inode(reference, &Target::Open(*slot));
                inode.is_some_and(|inode| self.restless.contains(&inode))
            }
            // What is written behind the end of a file, into its last page, may show when the file
            // gets longer, or not. And the server writes the pages back in its own name, so that
            // the store takes set-id bits away.
            Operation::MapWrite { map, offset, data } => {
                let end = i64::try_from(offset + data.length).unwrap_or(i64::MAX);
                let differs = |file: Attributes| end > file.size || file.mode & 0o6000 != 0;
                reference.mapped_file(*map).is_ok_and(differs)
            }
            _ => false,
        }
    }

    /// Whether the subject has a page cache of its own for what is mapped.
    #[must_use]
    pub fn has_a_cache_between(&self) -> bool {
        !self.rules.holes_of_mapped_files
    }

    /// Takes note of what an operation, now carried out, does to times outside the rules.
    pub fn note(&mut self, operation: &Operation, reference: &Place) {
        use Operation as O;
        let is_fifo = |slot: &usize| {
            let seen = reference.attributes(&Target::Open(*slot));
            seen.is_ok_and(|seen| seen.kind() == FileType::Fifo)
        };
        let (set, target) = match operation {
            O::Write { slot, .. } if is_fifo(slot) => (&mut self.restless, Target::Open(*slot)),
            O::Map { slot, .. } => (&mut self.restless, Target::Open(*slot)),
            O::Read { slot, .. } | O::ReadAt { slot, .. } | O::CopyRange { from: slot, .. } => {
                (&mut self.read, Target::Open(*slot))
            }
            O::ReadDirectory { path } => (&mut self.read, Target::Itself(path.clone())),
            _ => return,
        };
        set.extend(inode(reference, &target));
    }

    /// Takes note that an inode of the reference is read, and the subject's with it.
    pub fn note_reading(&mut self, inode: u64) {
        self.read.insert(inode);
    }

    /// Whether a call answered the same.
    pub fn outcomes(
        &mut self,
        operation: &Operation,
        subject: &Outcome,
        reference: &Outcome,
        place: &Place,
    ) -> Difference {
        match (subject, reference) {
            (Ok(Value::Names(subject)), Ok(Value::Names(reference))) => {
                self.lists(subject, reference)
            }
            (Ok(Value::Attributes(subject)), Ok(Value::Attributes(reference))) => {
                self.attributes(subject, reference)
            }
            (Ok(_), Ok(_)) if subject == reference => {
                if let Operation::SetTimes { target, accessed, .. } = operation
                    && *accessed != Moment::Omit
                    && let Some(inode) = inode(place, target)
                {
                    self.read.remove(&inode);
                }
                None
            }
            (Err(subject), Err(reference)) if subject == reference => None,
            _ => Some("the answers differ".to_owned()),
        }
    }

    /// Whether the same is seen at every spot, and the same objects changed since the last look.
    pub fn observations(&mut self, subject: &Observation, reference: &Observation) -> Difference {
        for (spot, of_reference) in reference {
            let difference = match (&subject[spot], of_reference) {
                (Ok(subject), Ok(reference)) => self
                    .attributes(subject, reference)
                    .or_else(|| self.relation(subject, reference))
                    .map(|what| format!("{what}\n  {subject:?}\n  {reference:?}")),
                (Err(subject), Err(reference)) if subject == reference => None,
                (subject, reference) => Some(format!("{subject:?} instead of {reference:?}")),
            };
            if let Some(difference) = difference {
                return Some(format!("at {spot:?}: {difference}"));
            }
        }
        for (spot, seen) in reference {
            if let (Ok(subject), Ok(reference)) = (&subject[spot], seen) {
                let times = |of: &Attributes| (of.modified, of.changed);
                self.times.insert(reference.inode, (times(subject), times(reference)));
            }
        }
        None
    }

    /// Whether two objects look the same.
    pub fn attributes(&mut self, subject: &Attributes, reference: &Attributes) -> Difference {
        if let Some(difference) = self.inodes(subject.inode, reference.inode) {
            return Some(difference);
        }
        let restless = self.restless.contains(&reference.inode);
        let is_directory = reference.kind() == FileType::Directory;
        let sizes = self.rules.directory_sizes || !is_directory;
        let accessed = !self.read.contains(&reference.inode)
            && !restless
            && !is_directory
            && reference.kind() != FileType::Symlink;
        let different = |is: bool, what: &'static str| is.then_some(what);
        let what = [
            different(subject.mode != reference.mode, "mode"),
            different(subject.links != reference.links, "links"),
            different(subject.uid != reference.uid, "owner"),
            different(subject.gid != reference.gid, "group"),
            different(subject.device != reference.device, "device"),
            different(sizes && subject.size != reference.size, "size"),
            different(sizes && !restless && subject.blocks != reference.blocks, "blocks"),
            different(subject.block_size != reference.block_size, "block size"),
            different(
                !restless && self.age(subject.modified) != self.age(reference.modified),
                "modification time",
            ),
            different(
                accessed && self.age(subject.accessed) != self.age(reference.accessed),
                "access time",
            ),
        ];
        let what: Vec<_> = what.into_iter().flatten().collect();
        (!what.is_empty()).then(|| format!("different {}", what.join(" and ")))
    }

    fn relation(&self, subject: &Attributes, reference: &Attributes) -> Difference {
        if !self.rules.time_relations || self.restless.contains(&reference.inode) {
            return None;
        }
        let (of_subject, of_reference) = self.times.get(&reference.inode)?;
        let say = |what: &str, subject: bool, reference: bool| {
            let verb = |changed| if changed { "changed" } else { "was kept" };
            (subject != reference)
                .then(|| format!("the {what} time {} and not {}", verb(subject), verb(reference)))
        };
        say("modification", of_subject.0 != subject.modified, of_reference.0 != reference.modified)
            .or_else(|| {
                say("change", of_subject.1 != subject.changed, of_reference.1 != reference.changed)
            })
    }

    /// A time that somebody set is what it is; one that the clock gave is only that.
    fn age(&self, time: Time) -> Option<Time> {
        let is_present = (self.present..self.present + 86_400).contains(&time.0);
        (!is_present).then_some(time)
    }

    /// An inode of the one is always the same inode of the other.
    fn inodes(&mut self, subject: u64, reference: u64) -> Difference {
        let there = *self.inodes.entry(reference).or_insert(subject);
        let back = *self.back.entry(subject).or_insert(reference);
        if there != subject {
            return Some(format!("inode {reference} was {there} and is now {subject}"));
        }
        (back != reference)
            .then(|| format!("inode {subject} stands for {back} and for {reference}"))
    }

    fn lists(&mut self, subject: &[Entry], reference: &[Entry]) -> Difference {
        let names = |list: &[Entry]| -> Vec<_> {
            list.iter().map(|entry| (entry.name.clone(), entry.inode.map(|is| is.1))).collect()
        };
        if names(subject) != names(reference) {
            return Some("the lists differ".to_owned());
        }
        subject.iter().zip(reference).find_map(|(subject, reference)| {
            let (subject, reference) = (subject.inode?, reference.inode?);
            self.inodes(subject.0, reference.0).map(|what| format!("in the list, {what}"))
        })
    }
}

fn inode(place: &Place, target: &Target) -> Option<u64> {
    place.attributes(target).ok().map(|attributes| attributes.inode)
}
