//! The record of an examination: whether a directory is really usable as scratch, and if not, why.
//!
//! It is what one process saw in its own view. The daemon keeps it as it was told and must never
//! take it for its own knowledge.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use zlink::introspect::{CustomType, Type};

/// What came of an examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
#[serde(rename_all = "snake_case")]
#[zlink(rename_all = "snake_case")]
pub enum Verdict {
    /// The directory can be used.
    Qualified,
    /// It was looked at and can't be used.
    Disqualified,
    /// There is none: the storage was refused before anybody could look at it.
    Refused,
}

/// The kernel's number for a failure, and its words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct ErrorNumber {
    /// The number.
    pub number: i32,
    /// What it means.
    pub text: String,
}

impl From<Errno> for ErrorNumber {
    fn from(errno: Errno) -> Self {
        let number = errno.raw_os_error();
        let text = io::Error::from(errno).to_string();
        let text = text.split(" (os error").next().unwrap_or_default().to_owned();
        Self { number, text }
    }
}

/// The process for which the directory was examined, as the kernel tells it in its own view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Asker {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The groups that it has beside it.
    pub groups: Vec<u32>,
    /// Its id.
    pub pid: u32,
}

/// From where the directory was looked at. A namespace is named by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct View {
    /// The mount namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_namespace: Option<u64>,
    /// The user namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_namespace: Option<u64>,
    /// The pid namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<u64>,
    /// The marker of a command inside a lease: HOLDFAST_MEMBER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// A symbolic link on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Link {
    /// The path down to it.
    pub component: String,
    /// Where it leads.
    pub target: String,
}

/// What the path leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Object {
    /// Of what kind it is: `directory`, or something else.
    pub kind: String,
    /// Its mode, in octal.
    pub mode: String,
    /// Whose it is.
    pub uid: u32,
    /// The group that it belongs to.
    pub gid: u32,
    /// The number of its device.
    pub device: u64,
    /// The number of its inode.
    pub inode: u64,
}

/// A mount, as the kernel's table tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct MountPoint {
    /// Where it is mounted.
    pub path: String,
    /// The type of its filesystem.
    pub fstype: String,
    /// Its source.
    pub source: String,
    /// Whether its type and source are those of a Holdfast namespace.
    pub holdfast: bool,
}

/// What `access` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Access {
    /// Whether the directory may be written to.
    pub writable: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorNumber>,
}

/// How it went to make a file, write it, rename it, read it back and delete it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Probe {
    /// The step that failed: `create`, `write`, `rename`, `read` or `delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Why it failed. Where what was read isn't what was written, there is no number for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorNumber>,
    /// The name of a file that couldn't be deleted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// How much room the filesystem has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Space {
    /// Whether nothing can be written there by anybody.
    pub read_only: bool,
    /// Bytes.
    pub bytes: u64,
    /// Bytes that an ordinary user may still write.
    pub bytes_free: u64,
    /// Inodes; none where the filesystem doesn't count them.
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
}

/// What git says of a file that would be made there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct GitAnswer {
    /// What it comes to: `ignored`, `not-ignored`, `not-in-repository`, `not-in-work-tree`,
    /// `repository-not-trusted`, `git-missing`, `no-answer` or `error`.
    pub meaning: String,
    /// The command that was run.
    pub command: String,
    /// Its exit status, where it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// What it wrote to standard error.
    pub stderr: String,
}

/// A record of facts about a directory. What isn't said wasn't found out: nothing behind the fact
/// that disqualifies is certain to be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomType)]
pub struct Qualification {
    /// What came of it.
    pub verdict: Verdict,
    /// The first fact that disqualifies, by its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// The code of the fault with which the storage was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// What was being done when no answer came in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// When it was, in milliseconds since 1970.
    pub at_ms: u64,
    /// The path, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// For whom it was examined.
    pub asker: Asker,
    /// From where.
    pub view: View,
    /// The path without links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canonical: Option<String>,
    /// The links on the way, in the order in which they are met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// What is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Object>,
    /// Why it can't be told what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorNumber>,
    /// The mount that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountPoint>,
    /// What is mounted at the directory and below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountPoint>,
    /// How many mounts there are, where that is more than are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts_count: Option<u64>,
    /// Whether it may be written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Whether it really can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// How much room there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
    /// What git says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitAnswer>,
}

/// What `Qualify` takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Type)]
#[serde(deny_unknown_fields)]
pub struct Qualify {
    /// The lease.
    pub lease: String,
    /// The record of an examination of its directory.
    #[serde(deserialize_with = "without_unknown_members")]
    pub record: Box<Qualification>,
}

/// A record in a request has nothing in it that would be lost; in an answer it may have.
fn without_unknown_members<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Box<Qualification>, D::Error> {
    use serde::de::Error as _;
    let told = Value::deserialize(from)?;
    let record = Qualification::deserialize(&told).map_err(D::Error::custom)?;
    let understood = serde_json::to_value(&record).map_err(D::Error::custom)?;
    match unknown_member(&told, &understood) {
        Some(name) => Err(D::Error::custom(format!("unknown field `{name}` in `record`"))),
        None => Ok(Box::new(record)),
    }
}

/// The first member that was told and isn't in what was understood. One that says nothing is as
/// good as none.
fn unknown_member<'a>(told: &'a Value, understood: &Value) -> Option<&'a str> {
    match (told, understood) {
        (Value::Object(told), Value::Object(understood)) => {
            told.iter().find_map(|(name, value)| match understood.get(name) {
                Some(known) => unknown_member(value, known),
                None => (!says_nothing(value)).then_some(name.as_str()),
            })
        }
        (Value::Array(told), Value::Array(understood)) => {
            told.iter().zip(understood).find_map(|(told, known)| unknown_member(told, known))
        }
        _ => None,
    }
}

fn says_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}
