//! The pool of names, and the values of extended attributes, from which sequences are made.
//!
//! It must never have a name that leads out of the directory of a sequence.

use fastrand::Rng;

use super::operation::{Data, Path, XattrValue};

/// Names of files, of which one isn't UTF-8.
pub(super) const NAMES: [&[u8]; 9] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"l", b"\xff\xfe"];

/// Names of attributes.
const ATTRIBUTES: [&str; 9] = [
    "user.one",
    "user.two",
    "user.one",
    "trusted.three",
    "system.posix_acl_access",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "security.capability",
    "nonsense",
];

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NOBODY_IN_PARTICULAR: u32 = u32::MAX;

/// A path that is wrong in itself, or looks so.
pub(super) fn odd_path(rng: &mut Rng) -> Path {
    match rng.u8(..10) {
        0 => "".into(),
        1 => ".".into(),
        2 => "a/".into(),
        3 => "d/".into(),
        4 => "d/.".into(),
        5 => "d/..".into(),
        6 => "nowhere/a".into(),
        7 => Path(vec![b'n'; 255]),
        8 => Path(vec![b'n'; 256]),
        _ => "d//e/./../a".into(),
    }
}

/// The name of an attribute.
pub(super) fn name(rng: &mut Rng) -> &'static str {
    ATTRIBUTES[rng.usize(..ATTRIBUTES.len())]
}

/// A value for the attribute of this name, mostly a valid one.
pub(super) fn value(rng: &mut Rng, name: &str, ids: [u32; 3]) -> XattrValue {
    match name {
        "system.posix_acl_access" | "system.posix_acl_default" if rng.u8(..10) != 0 => {
            XattrValue::Acl(acl(rng, ids))
        }
        "security.capability" => XattrValue::Capability,
        _ => {
            let length = match rng.u8(..24) {
                0..4 => 0,
                4 => 4096,
                5 => 65_536,
                6 => 65_537,
                _ => rng.usize(1..200),
            };
            XattrValue::Bytes(Data { length, first: rng.u8(..) })
        }
    }
}

/// How much room a caller gives for an answer; none is the question how much is needed.
pub(super) fn room(rng: &mut Rng) -> usize {
    match rng.u8(..6) {
        0 => 0,
        1 => rng.usize(1..40),
        _ => 65_536,
    }
}

fn acl(rng: &mut Rng, ids: [u32; 3]) -> Vec<(u16, u16, u32)> {
    let mut permissions = || u16::from(rng.u8(..8));
    let mut entries = vec![(USER_OBJ, permissions() | 4, NOBODY_IN_PARTICULAR)];
    let (user, group, mask) = (permissions(), permissions(), permissions());
    let (group_obj, other) = (permissions(), permissions());
    let kind = rng.u8(..8);
    if kind > 1 {
        entries.push((USER, user, ids[1]));
    }
    entries.push((GROUP_OBJ, group_obj, NOBODY_IN_PARTICULAR));
    if kind > 3 {
        entries.push((GROUP, group, ids[2]));
    }
    // An ACL that names somebody and has no mask is refused; once in a while it's tried.
    if kind > 2 || rng.bool() {
        entries.push((MASK, mask, NOBODY_IN_PARTICULAR));
    }
    entries.push((OTHER, other, NOBODY_IN_PARTICULAR));
    entries
}
