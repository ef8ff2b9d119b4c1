//! Values of settings as people write them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Where files are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Store {
    /// A tmpfs for each generation.
    Tmpfs,
    /// A directory.
    Dir(PathBuf),
}

impl Store {
    /// The same store, whatever the current directory is.
    pub(super) fn absolute(self) -> Result<Self, String> {
        match self {
            Self::Tmpfs => Ok(Self::Tmpfs),
            Self::Dir(path) => {
                let path = std::path::absolute(&path).map_err(|error| error.to_string())?;
                with_name(&path)?;
                Ok(Self::Dir(path))
            }
        }
    }

    /// A store whose path doesn't depend on the current directory.
    pub(super) fn parse_absolute(text: &str) -> Result<Self, String> {
        let store = text.parse()?;
        if let Self::Dir(path) = &store {
            absolute_with_name(path)?;
        }
        Ok(store)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tmpfs => f.write_str("tmpfs"),
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

impl FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("dir:") {
            Some("") => Err("`dir:` needs a path".to_owned()),
            Some(path) => Ok(Self::Dir(PathBuf::from(path))),
            None if text == "tmpfs" => Ok(Self::Tmpfs),
            None => Err(format!("{text:?} is neither `tmpfs` nor `dir:PATH`")),
        }
    }
}

/// A duration such as `90s`, `10m` or `24h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{text:?}: {error}"))
}

/// A duration that isn't over at once.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        span if span.as_millis() > 0 => Ok(span),
        _ => Err(format!("{text:?} is over at once")),
    }
}

/// A number of bytes such as `4096`, `64M` or `2GiB`; units are powers of 1024, as for a tmpfs.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size such as 64M or 2GiB");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    match number.checked_mul(1 << shift) {
        Some(0) | None => Err(bad()),
        Some(bytes) => Ok(bytes),
    }
}

/// Refuses a path without a last name, which can't be made, checked or mounted on by that name.
pub(super) fn with_name(path: &Path) -> Result<(), String> {
    match path.file_name() {
        Some(_) => Ok(()),
        None => Err(format!("{:?} does not end in a name", path.display().to_string())),
    }
}

pub(super) fn absolute_with_name(path: &Path) -> Result<(), String> {
    if !path.is_absolute() {
        return Err(format!("{:?} is not absolute", path.display().to_string()));
    }
    with_name(path)
}

pub(super) fn absolute<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(from)?;
    absolute_with_name(&path).map_err(D::Error::custom)?;
    Ok(Some(path))
}

pub(super) fn store<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Store>, D::Error> {
    let text = String::deserialize(from)?;
    Store::parse_absolute(&text).map(Some).map_err(D::Error::custom)
}

pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    parse_size(&text).map(Some).map_err(D::Error::custom)
}

pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map(Some).map_err(D::Error::custom)
}
