//! Whether a directory is really usable as scratch, and if not, why: a record of facts.
//!
//! It must never change what it looks at, but for a file of its own that it makes and deletes, and
//! never answer for another view than the one that it is asked in.

mod git;
mod probe;
mod surroundings;
mod target;
mod verdict;

use std::os::fd::AsFd as _;
use std::path::Path;
use std::process;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, StatVfsMountFlags, accessat, fstatvfs};
use rustix::io::Errno;

use crate::control::wire::{self, Qualification, Verdict};
use crate::errand;
use crate::fault::Fault;
use crate::mount::identity::{Entry, FSTYPE, Identity, SOURCE, Table};

/// How long an examination may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Mounts that are named; of more, it is said how many there are.
const MOUNTS_NAMED: usize = 16;

/// Examines a directory for this process, in this process's view. It waits for as long as the
/// filesystem does; before each step that may wait, `tell` gets the record as it stands if no
/// answer ever comes.
pub fn examine(path: &Path, mut tell: impl FnMut(&Qualification)) -> Qualification {
    let mut record = surroundings::begin();
    record.path = Some(text(path));
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let table = Table::read().unwrap_or_default();
    note_mounts(&mut record, &table, &absolute);
    let mut step = |record: &mut Qualification, waits_for: &str| {
        record.waits_for = Some(waits_for.to_owned());
        tell(record);
    };
    record.verdict = Verdict::Disqualified;
    record.first = Some(verdict::UNRESPONSIVE.to_owned());

    step(&mut record, "the way to it");
    record.links = target::links(&absolute);
    match std::fs::canonicalize(&absolute) {
        Ok(canonical) => {
            note_mounts(&mut record, &table, &canonical);
            record.canonical = Some(text(&canonical));
        }
        Err(error) => {
            record.error = Some(Errno::from_io_error(&error).unwrap_or(Errno::IO).into());
            return verdict::given(record);
        }
    }
    step(&mut record, "a look at it");
    let (held, object) = match target::hold(&absolute) {
        Ok(found) => found,
        Err(errno) => {
            record.error = Some(errno.into());
            return verdict::given(record);
        }
    };
    let is_directory = object.kind == target::DIRECTORY;
    record.object = Some(object);
    if let Ok(identity) = Identity::of(held.as_fd())
        && let Some(entry) = table.by_id(identity.id)
    {
        record.mount = Some(mount(entry));
    }
    if !is_directory {
        return verdict::given(record);
    }
    step(&mut record, "access");
    let error = accessat(&held, ".", Access::WRITE_OK, AtFlags::EACCESS).err();
    record.access = Some(wire::Access { writable: error.is_none(), error: error.map(Into::into) });
    step(&mut record, "the room that it has");
    if let Ok(room) = fstatvfs(&held) {
        record.space = Some(wire::Space {
            read_only: room.f_flag.contains(StatVfsMountFlags::RDONLY),
            bytes: room.f_blocks.saturating_mul(room.f_frsize),
            bytes_free: room.f_bavail.saturating_mul(room.f_frsize),
            inodes: room.f_files,
            inodes_free: room.f_ffree,
        });
    }
    step(&mut record, "a file that is made, written, renamed, read and deleted");
    record.probe = Some(probe::probe(held.as_fd()));
    step(&mut record, "git");
    record.git = Some(git::ask(&absolute));
    verdict::given(record)
}

/// The record of storage that couldn't be had: nobody could look at any directory.
#[must_use]
pub fn refused(fault: &str) -> Qualification {
    let record = surroundings::begin();
    Qualification { verdict: Verdict::Refused, fault: Some(fault.to_owned()), ..record }
}

/// Examines a directory by a process of its own, in this process's view and for it. A filesystem
/// that doesn't answer holds up that process and not this one.
pub(crate) fn examine_in_time(path: &Path) -> Result<Qualification, Fault> {
    let failed = |errno| Fault::System { step: "start what examines the directory", errno };
    let mut command = errand::this_program();
    command.args(["examine", "--"]).arg(path);
    let outcome = errand::run(&mut command, PATIENCE)
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let mut lines = outcome.stdout.rsplit(|byte| *byte == b'\n');
    let told = lines.find_map(|line| serde_json::from_slice::<Qualification>(line).ok());
    match (told, outcome.status) {
        (Some(mut record), status) if status.is_none() || record.waits_for.is_none() => {
            record.asker.pid = process::id();
            Ok(record)
        }
        // It has ended in the middle.
        (Some(_) | None, _) => Err(failed(Errno::CHILD)),
    }
}

/// What can be told of mounts without touching the path.
fn note_mounts(record: &mut Qualification, table: &Table, path: &Path) {
    record.mount = table.containing(path).map(mount);
    record.mounts = table.at_or_below(path).take(MOUNTS_NAMED).map(mount).collect();
    let all = table.at_or_below(path).count();
    let more = all > MOUNTS_NAMED;
    record.mounts_count = more.then(|| u64::try_from(all).unwrap_or(u64::MAX));
}

fn mount(entry: &Entry) -> wire::MountPoint {
    wire::MountPoint {
        path: text(&entry.mountpoint),
        fstype: entry.fstype.clone(),
        source: entry.source.clone(),
        holdfast: entry.fstype == FSTYPE && entry.source == SOURCE,
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
