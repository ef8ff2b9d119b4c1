//! What is left of a session's limits for its current generation.
//!
//! It must never count a generation that is gone.

use super::NamespaceError;
use super::ground::{Ground, Room};
use crate::registry::{GenerationView, Policy, SessionId};

/// What the retired generations of a session leave of its limits. They keep counting until they
/// are gone, so that rotating gives no fresh room.
pub(super) fn room_left(
    ground: &dyn Ground,
    session: SessionId,
    policy: &Policy,
    generations: &[GenerationView],
) -> Result<Room, NamespaceError> {
    if policy.size.is_none() && policy.inodes.is_none() {
        return Ok(Room::default());
    }
    let mut bytes = 0_u64;
    let mut inodes = 0_u64;
    for generation in generations.iter().filter(|generation| generation.retired) {
        let usage = ground.used(generation.key)?;
        bytes = bytes.saturating_add(usage.bytes);
        inodes = inodes.saturating_add(usage.inodes);
    }
    let size = match policy.size {
        Some(limit) if limit <= bytes => {
            return Err(NamespaceError::SessionFull { session, limit, held: bytes });
        }
        limit => limit.map(|limit| limit - bytes),
    };
    let inodes = match policy.inodes {
        Some(limit) if limit <= inodes => {
            return Err(NamespaceError::SessionOutOfInodes { session, limit, held: inodes });
        }
        limit => limit.map(|limit| limit - inodes),
    };
    Ok(Room { size, inodes })
}
