//! The calls on which no FUSE file system can answer as tmpfs does, whatever its server says; they
//! are left out of the comparison.
//!
//! Each must be the kernel's doing, with the reason given here; a difference of ours is a defect.

use rustix::fs::FileType;

use super::execute::Place;
use super::observe::Attributes;
use super::operation::{Operation, Target};

const SET_ID: u32 = 0o6000;

/// Whether this call is one of them; `keeps` says whether the caller's writes leave set-id bits
/// alone.
#[must_use]
pub fn is_unavoidable(operation: &Operation, keeps: bool, reference: &Place) -> bool {
    let open = |slot: &usize| reference.attributes(&Target::Open(*slot)).ok();
    match operation {
        // The kernel moves through a directory of FUSE as if it were a file of that size and never
        // asks; a tmpfs has a rule of its own.
        Operation::Seek { slot, .. } => open(slot).is_some_and(is_directory),
        // The kernel takes set-id bits and capabilities away before it asks the server, which then
        // refuses.
        Operation::Allocate { slot, mode, .. } => {
            let supported = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
            let has_bits = |file: Attributes| file.mode & SET_ID != 0;
            let capability =
                reference.get_xattr(&Target::Open(*slot), "security.capability", 64).is_ok();
            mode & !supported.cast_unsigned() != 0
                && (capability || !keeps && open(slot).is_some_and(has_bits))
        }
        // A tmpfs takes the bits away without a change time where the size stays; whoever takes
        // them away in a call of its own sets it.
        Operation::TruncateOpen { slot, length } => {
            !keeps && open(slot).is_some_and(|file| stays_with_bits(file, *length))
        }
        Operation::Truncate { path, length } => {
            let file = reference.attributes(&Target::Followed(path.clone())).ok();
            !keeps && file.is_some_and(|file| stays_with_bits(file, *length))
        }
        _ => false,
    }
}

/// The object whose mode the kernel doesn't know after this call until somebody asks for it: it
/// takes set-id bits away, or doesn't, by the mode that it knew before the ACL changed it.
#[must_use]
pub fn has_stale_mode(operation: &Operation) -> Option<&Target> {
    match operation {
        Operation::SetXattr { target, name: "system.posix_acl_access", .. } => Some(target),
        _ => None,
    }
}

fn stays_with_bits(file: Attributes, length: u64) -> bool {
    file.mode & SET_ID != 0 && file.size.cast_unsigned() == length
}

fn is_directory(attributes: Attributes) -> bool {
    attributes.kind() == FileType::Directory
}
