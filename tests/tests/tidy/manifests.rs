//! Rules of the Cargo.toml files: who may depend on what.
//!
//! They must never be answered from the lock file, which says what is used and not who asked.

use toml::{Table, Value};

use crate::tree::{Rule, Tree};

/// What each member may not name, and why the tree is layered so.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("fs", &["holdfast", "holdfast-tests", "holdfast-bench", "clap", "tokio", "toml", "zlink"]),
    ("mountd", &["fuser", "holdfast-tests", "holdfast-bench"]),
    ("tests", &["fuser", "holdfast-bench"]),
    ("bench", &["fuser", "holdfast-tests"]),
];

/// The rules.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        says: "dependencies point one way: fs knows no daemon, the daemon no FUSE library, and \
               nobody the tests and the benchmarks",
        check: directions,
        broken: &[
            &[("fs/Cargo.toml", "[dependencies]\nholdfast.workspace = true\n")],
            &[("fs/Cargo.toml", "[dev-dependencies]\ntokio = \"1\"\n")],
            &[("mountd/Cargo.toml", "[dependencies]\nfuser.workspace = true\n")],
            &[("mountd/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nfuser = \"1\"\n")],
            &[("mountd/Cargo.toml", "[dependencies]\nf = { package = \"fuser\" }\n")],
        ],
        kept: &[
            &[("fs/Cargo.toml", "[dependencies]\nfuser.workspace = true\n")],
            &[("mountd/Cargo.toml", "[dependencies]\nholdfast-fs.workspace = true\n")],
        ],
    },
    Rule {
        says: "every member takes the lints of the workspace, so that one list is the list",
        check: lints,
        broken: &[
            &[("Cargo.toml", "[workspace]\nmembers = [\"fs\"]\n"), ("fs/Cargo.toml", "")],
            &[("Cargo.toml", "[workspace]\nmembers = [\"fs\"]\n")],
            &[
                ("Cargo.toml", "[workspace]\nmembers = [\"fs\"]\n"),
                ("fs/Cargo.toml", "[lints]\nworkspace = false\n"),
            ],
        ],
        kept: &[&[
            ("Cargo.toml", "[workspace]\nmembers = [\"fs\"]\n"),
            ("fs/Cargo.toml", "[lints]\nworkspace = true\n"),
        ]],
    },
    Rule {
        says: "versions of libraries stand in the workspace, so that two members have the same one",
        check: versions,
        broken: &[
            &[("fs/Cargo.toml", "[dependencies]\nlibc = \"0.2\"\n")],
            &[("fs/Cargo.toml", "[dependencies]\nlibc = { version = \"0.2\" }\n")],
        ],
        kept: &[&[("fs/Cargo.toml", "[dependencies]\nlibc = { workspace = true }\n")]],
    },
];

/// The members of the workspace.
pub(crate) fn members(tree: &Tree) -> Vec<String> {
    let workspace = manifest(tree, "Cargo.toml").and_then(|mut root| root.remove("workspace"));
    let members = workspace.as_ref().and_then(|workspace| workspace.get("members"));
    let members = members.and_then(Value::as_array).into_iter().flatten();
    members.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn directions(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (member, forbidden) in FORBIDDEN {
        let path = format!("{member}/Cargo.toml");
        for (name, _) in dependencies(tree, &path) {
            if forbidden.contains(&name.as_str()) {
                complaints.push(format!("{path}: depends on {name}"));
            }
        }
    }
    complaints
}

fn lints(tree: &Tree) -> Vec<String> {
    let of_the_workspace = |path: &str| {
        let lints = manifest(tree, path)?.remove("lints")?;
        lints.get("workspace")?.as_bool()
    };
    members(tree)
        .iter()
        .map(|member| format!("{member}/Cargo.toml"))
        .filter(|path| of_the_workspace(path) != Some(true))
        .map(|path| format!("{path}: has lints of its own, or none"))
        .collect()
}

fn versions(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, _) in tree.files("/Cargo.toml") {
        for (name, how) in dependencies(tree, path) {
            if how.get("workspace").and_then(Value::as_bool) != Some(true) {
                complaints.push(format!("{path}: {name} isn't taken from the workspace"));
            }
        }
    }
    complaints
}

/// All that a manifest depends on, for whatever target or purpose, by the packages' own names.
fn dependencies(tree: &Tree, path: &str) -> Vec<(String, Value)> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let Some(manifest) = manifest(tree, path) else { return Vec::new() };
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let tables = targets.filter_map(|(_, target)| target.as_table()).chain([&manifest]);
    tables
        .flat_map(|table| KINDS.iter().filter_map(|kind| table.get(*kind)?.as_table()))
        .flatten()
        .map(|(name, how)| {
            let package = how.get("package").and_then(Value::as_str).unwrap_or(name);
            (package.to_owned(), how.clone())
        })
        .collect()
}

fn manifest(tree: &Tree, path: &str) -> Option<Table> {
    // A manifest that doesn't parse is Cargo's to complain about.
    tree.get(path)?.parse().ok()
}
