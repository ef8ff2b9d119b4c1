//! The files that the rules look at, and what a rule is.
//!
//! It must never leave a file of a member out silently: a rule can only be as good as the list.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A tree of text files by their path below the root of the workspace.
pub(crate) struct Tree(BTreeMap<String, String>);

/// Paths and texts of a small tree.
pub(crate) type Example = [(&'static str, &'static str)];

/// Something that must hold of the tree.
pub(crate) struct Rule {
    /// The rule, and what it is good for.
    pub(crate) says: &'static str,
    /// One complaint for each place that breaks it.
    pub(crate) check: fn(&Tree) -> Vec<String>,
    /// Trees that break it.
    pub(crate) broken: &'static [&'static Example],
    /// Trees that come near to breaking it.
    pub(crate) kept: &'static [&'static Example],
}

impl Tree {
    /// The members of the workspace and the documents beside them, in a repository or an unpacked
    /// archive.
    pub(crate) fn of_the_workspace() -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&root)? {
            let entry = entry?;
            let is_text = has_extension(&entry.path(), &["md", "toml"]);
            if is_text && entry.file_type()?.is_file() {
                read(&root, entry.path(), &mut files)?;
            }
        }
        let workspace = Self(files);
        let mut files = BTreeMap::new();
        for member in crate::manifests::members(&workspace) {
            read_below(&root, root.join(member), &mut files)?;
        }
        files.extend(workspace.0);
        Ok(Self(files))
    }

    /// The tree of an example.
    pub(crate) fn of(example: &Example) -> Self {
        Self(example.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect())
    }

    /// The text of a file.
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Whether there is a file, or a directory with a file in it.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.0.contains_key(path) || self.0.keys().any(|file| is_below(file, path))
    }

    /// The files whose name ends so.
    pub(crate) fn files(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter(move |(path, _)| path.ends_with(ending))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The Rust files.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files(".rs")
    }
}

/// Whether a path is somewhere beneath a directory.
pub(crate) fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

fn has_extension(path: &Path, among: &[&str]) -> bool {
    path.extension().and_then(|e| e.to_str()).is_some_and(|e| among.contains(&e))
}

fn read_below(root: &Path, dir: PathBuf, files: &mut BTreeMap<String, String>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && entry.file_name() != "target" {
            read_below(root, entry.path(), files)?;
        } else if kind.is_file() && has_extension(&entry.path(), &["rs", "md", "toml"]) {
            read(root, entry.path(), files)?;
        }
    }
    Ok(())
}

fn read(root: &Path, file: PathBuf, files: &mut BTreeMap<String, String>) -> io::Result<()> {
    let below = file.strip_prefix(root).map_err(io::Error::other)?;
    files.insert(below.to_string_lossy().into_owned(), fs::read_to_string(&file)?);
    Ok(())
}
