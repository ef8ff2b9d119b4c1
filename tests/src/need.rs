//! What a test needs of the host, and what is said where it's missing.
//!
//! A test is never skipped silently, and never where skipping is forbidden.

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::report;
use crate::user::{User, is_root};
use crate::varlink;

/// Where tests look for programs, for every user alike.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Set where a test that can't run must fail.
const NO_SKIP: &str = "HOLDFAST_TESTS_NO_SKIP";

/// One thing that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A mount of FUSE by the user who serves.
    Fuse,
    /// That root runs the tests.
    Root,
    /// A program of this name.
    Program(&'static str),
    /// Somebody else's Varlink client, which is fetched from PyPI.
    Varlink,
    /// That the toolchain by which the tests were built can be found.
    Cargo,
}

impl Need {
    /// Why it isn't met for a daemon of this user.
    fn missing(self, user: &User) -> Option<String> {
        match self {
            Self::Fuse if !Path::new("/dev/fuse").exists() => {
                Some("there is no /dev/fuse".to_owned())
            }
            Self::Fuse
                if !is_root()
                    && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() =>
            {
                Some("/dev/fuse can't be opened (it needs mode 0666)".to_owned())
            }
            Self::Fuse if !user.is_root() && find("fusermount3").is_none() => {
                Some("fusermount3 is missing (Debian's package fuse3)".to_owned())
            }
            Self::Root if !is_root() => Some("only root can run it".to_owned()),
            Self::Program(name) if find(name).is_none() => Some(format!("{name} is missing")),
            Self::Cargo if toolchain().is_none() => {
                Some("CARGO doesn't name a toolchain; run it by `cargo test`".to_owned())
            }
            Self::Varlink => varlink::missing(),
            Self::Fuse | Self::Root | Self::Program(_) | Self::Cargo => None,
        }
    }
}

/// Whether a test can run. Where it can't, that is said by name; where skipping is forbidden, the
/// test fails.
///
/// # Panics
///
/// Where skipping is forbidden.
#[must_use]
pub fn are_met(needs: &[Need], user: &User) -> bool {
    let missing: Vec<String> = needs.iter().filter_map(|need| need.missing(user)).collect();
    missing.is_empty() || skip(missing.join(", "))
}

/// Says that the running test is skipped; always false.
///
/// # Panics
///
/// Where skipping is forbidden.
pub fn skip(why: impl fmt::Display) -> bool {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    assert!(env::var_os(NO_SKIP).is_none_or(|no| no == "0"), "{name} can't run: {why}");
    report::print(format_args!("skipped: {name}: {why}"));
    false
}

/// Where the program of this name is.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let is_executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 1 != 0)
    };
    PATH.split(':').map(|directory| Path::new(directory).join(name)).find(is_executable)
}

/// The directory of the toolchain that runs the tests; `bin/cargo` is in it.
#[must_use]
pub fn toolchain() -> Option<PathBuf> {
    let cargo = PathBuf::from(env::var_os("CARGO")?);
    let directory = cargo.parent()?.parent()?;
    directory.join("bin/rustc").exists().then(|| directory.to_owned())
}
