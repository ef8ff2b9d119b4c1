//! Rules of the documents: what they name is there, and each promise has its test.
//!
//! They must never take a word of prose for a name: only what stands in backticks is one.

use crate::code::declares_function;
use crate::tree::{Rule, Tree, is_below};

/// Where the promises stand, and below which headings each item is one.
const PROMISES: &str = "SEMANTICS.md";
const NO_PROMISES: &str = "## Differences";

/// Where the modules stand.
const MAP: &str = "ARCHITECTURE.md";

const LONELY: &str = "# S\n\n## Files\n\n- Kept. `tests/tests/a.rs::b`\n- Not kept.\n";
const BROKEN: &str = "# S\n\n## Files\n\n- Kept: `tests/tests/a.rs::c`.\n";
const KEPT: &str = "# S\n\nProse.\n\n- not a promise\n\n## Files\n\n- Kept, and\n  held by\n  \
                    `tests/tests/a.rs::b`.\n\n## Differences from tmpfs\n\n- None.\n";
const TEST: (&str, &str) = ("tests/tests/a.rs", "//! A.\n#[test]\nfn b() {}\n");

/// The rules.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        says: "each promise of SEMANTICS.md names the test that holds it",
        check: promises,
        broken: &[&[("SEMANTICS.md", LONELY), TEST], &[("SEMANTICS.md", "# S\n"), TEST]],
        kept: &[&[("SEMANTICS.md", KEPT), TEST]],
    },
    Rule {
        says: "a test that a document names is there",
        check: tests,
        broken: &[&[("SEMANTICS.md", BROKEN), TEST], &[("README.md", "`fs/src/a.rs::b`")]],
        kept: &[&[("SEMANTICS.md", KEPT), TEST], &[("README.md", "`std::env` `a/b.rs`")]],
    },
    Rule {
        says: "a file or directory that a document names is there",
        check: paths,
        broken: &[
            &[("ARCHITECTURE.md", "`fs/src/a.rs`"), ("fs/src/b.rs", "//! B.\n")],
            &[("ARCHITECTURE.md", "`fs/src/a/`"), ("fs/src/a.rs", "//! A.\n")],
        ],
        kept: &[
            &[("ARCHITECTURE.md", "`fs/src/` and `fs/src/b.rs`"), ("fs/src/b.rs", "//! B.\n")],
            &[("ARCHITECTURE.md", "`fs/src/*.rs`, `a/b`, `fs` and `fs/…`"), ("fs/a.rs", "")],
        ],
    },
    Rule {
        says: "the map in ARCHITECTURE.md has every module of the program",
        check: map,
        broken: &[&[(MAP, "`fs/src/a.rs`"), ("fs/src/a.rs", ""), ("mountd/src/b.rs", "")]],
        kept: &[&[(MAP, "`fs/src/a.rs`"), ("fs/src/a.rs", ""), ("fs/src/a/b.rs", "")]],
    },
];

fn promises(tree: &Tree) -> Vec<String> {
    let Some(text) = tree.get(PROMISES) else { return Vec::new() };
    let mut complaints = Vec::new();
    let items = promised(text);
    if items.is_empty() {
        complaints.push(format!("{PROMISES}: promises nothing"));
    }
    for (line, item) in items {
        if !quoted(&item).any(|name| test_name(name).is_some()) {
            complaints.push(format!("{PROMISES}:{line}: no test holds this promise"));
        }
    }
    complaints
}

fn tests(tree: &Tree) -> Vec<String> {
    let is_there = |(file, function): (&str, &str)| {
        tree.get(file).is_some_and(|text| declares_function(text, function))
    };
    in_documents(tree, |name| test_name(name).is_some_and(|test| !is_there(test)))
}

fn paths(tree: &Tree) -> Vec<String> {
    let roots: Vec<&str> =
        tree.sources().filter_map(|(path, _)| path.split_once('/')).map(|(root, _)| root).collect();
    in_documents(tree, |name| {
        let is_path = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        is_path && roots.iter().any(|root| is_below(name, root)) && !tree.has(name)
    })
}

fn map(tree: &Tree) -> Vec<String> {
    let Some(text) = tree.get(MAP) else { return Vec::new() };
    let is_module = |path: &str| {
        let below = path.strip_prefix("fs/src/").or_else(|| path.strip_prefix("mountd/src/"));
        below.is_some_and(|name| !name.contains('/') && name != "lib.rs")
    };
    tree.sources()
        .map(|(path, _)| path)
        .filter(|path| is_module(path) && !quoted(text).any(|name| name == *path))
        .map(|path| format!("{MAP}: {path} isn't in it"))
        .collect()
}

/// What is quoted in the documents at the root and is wrong.
fn in_documents(tree: &Tree, is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in tree.files(".md").filter(|(path, _)| !path.contains('/')) {
        for (number, line) in text.lines().enumerate() {
            for name in quoted(line).filter(|name| is_wrong(name)) {
                complaints.push(format!("{path}:{}: `{name}` isn't there", number + 1));
            }
        }
    }
    complaints
}

/// The items of the lists below the headings of the second order, with the lines where they start.
fn promised(text: &str) -> Vec<(usize, String)> {
    let mut items: Vec<(usize, String)> = Vec::new();
    let (mut below, mut inside) = (false, false);
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("## ") {
            below = !line.starts_with(NO_PROMISES);
        }
        if below && line.starts_with("- ") {
            items.push((number + 1, String::new()));
            inside = true;
        } else if !line.starts_with("  ") {
            inside = false;
        }
        if let (true, Some((_, item))) = (inside, items.last_mut()) {
            item.push_str(line);
            item.push('\n');
        }
    }
    items
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The file and the function of a test that is written as `path/of/file.rs::function`.
fn test_name(name: &str) -> Option<(&str, &str)> {
    let (file, function) = name.split_once("::")?;
    (file.ends_with(".rs") && file.contains('/')).then_some((file, function))
}
