//! Rules of the Rust files.
//!
//! They must never need more than one file at a time, so that a complaint says where to look.

use proc_macro2::{Delimiter, TokenTree};

use crate::code::{Name, names, names_outside_tests, tokens};
use crate::tree::{Rule, Tree, is_below};

/// About 400 are asked for; this is where it stops being about 400.
const LINES: usize = 450;

/// The rules.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        says: "every file starts with `//!`: what it is for and what it must never do",
        check: headers,
        broken: &[&[("fs/src/a.rs", "pub fn a() {}\n")], &[("fs/src/a.rs", "// a\n")]],
        kept: &[&[("fs/src/a.rs", "//! A.\n")]],
    },
    Rule {
        says: "`foo.rs` stands beside `foo/`, and no file is a drawer for anything",
        check: file_names,
        broken: &[
            &[("fs/src/a/mod.rs", "//! A.\n")],
            &[("fs/src/util.rs", "//! A.\n")],
            &[("fs/src/utils/a.rs", "//! A.\n")],
        ],
        kept: &[&[("fs/src/model.rs", "//! A.\n"), ("fs/src/model/utility.rs", "//! A.\n")]],
    },
    Rule {
        says: "a file has about 400 lines before its tests, so that it can be read in one sitting",
        check: lengths,
        broken: &[&[("fs/src/a.rs", TOO_LONG)]],
        kept: &[&[("fs/src/a.rs", LONG_BY_TESTS)]],
    },
    Rule {
        says: "`unsafe` stands only in files named sys.rs, where it is looked for",
        check: unsafe_code,
        broken: &[
            &[("fs/src/a.rs", "//! A.\nfn a() { unsafe { b() } }\n")],
            &[("tests/src/a.rs", "//! A.\nunsafe impl Send for A {}\n")],
        ],
        kept: &[
            &[("fs/src/sys.rs", "//! A.\nfn a() { unsafe { b() } }\n")],
            &[("fs/src/a.rs", "//! Not unsafe.\nfn a() { b(\"unsafe\") }\n")],
        ],
    },
    Rule {
        says: "the FUSE library is named only in the adapter, so that no operation depends on it",
        check: fuse_library,
        broken: &[
            &[("fs/src/tempfs.rs", "//! A.\nuse fuser::FileAttr;\n")],
            &[("mountd/src/worker.rs", "//! A.\nfn a() { fuser::mount(); }\n")],
            &[("fs/src/fused.rs", "//! A.\nuse fuser::FileAttr;\n")],
        ],
        kept: &[
            &[("fs/src/fuse.rs", "//! A.\nuse fuser::FileAttr;\n")],
            &[("fs/src/fuse/reply.rs", "//! A.\nuse fuser::FileAttr;\n")],
        ],
    },
    Rule {
        says: "the filesystem knows no environment and no socket; they are handed in",
        check: surroundings,
        broken: &[
            &[("fs/src/a.rs", "//! A.\nfn a() { std::env::var(\"A\"); }\n")],
            &[("fs/src/a.rs", "//! A.\nuse std::{env, fs};\n")],
            &[("fs/src/a.rs", "//! A.\nuse std::net::TcpStream;\n")],
            &[("fs/src/a.rs", "//! A.\nuse std::os::unix::net::{UnixStream};\n")],
        ],
        kept: &[
            &[("fs/src/a.rs", "//! A.\nfn a() { env!(\"CARGO_PKG_VERSION\"); }\n")],
            &[("fs/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests { use std::env; }\n")],
            &[("mountd/src/a.rs", "//! A.\nuse std::env;\n")],
        ],
    },
    Rule {
        says: "the filesystem asks nobody for the time but its clock, so that a test can set it",
        check: time,
        broken: &[
            &[("fs/src/a.rs", "//! A.\nfn a() { std::time::Instant::now(); }\n")],
            &[("fs/src/a.rs", "//! A.\nfn a() { SystemTime::now(); }\n")],
            &[("fs/src/a.rs", "//! A.\nuse rustix::time::{ClockId, clock_gettime};\n")],
        ],
        kept: &[
            &[("fs/src/a.rs", "//! A.\nfn a(now: SystemTime) { clock.now(); }\n")],
            &[("fs/src/clock.rs", "//! A.\nuse rustix::time::{ClockId, clock_gettime};\n")],
        ],
    },
    Rule {
        says: "main only calls run, so that all of the program can be called from a test",
        check: main_function,
        broken: &[
            &[("mountd/src/main.rs", "//! A.\nfn main() { let a = 1; holdfast::run() }\n")],
            &[("mountd/src/main.rs", "//! A.\nfn b() {}\nfn main() { holdfast::run() }\n")],
            &[("mountd/src/main.rs", "//! A.\nmod a;\nfn main() { holdfast::run() }\n")],
        ],
        kept: &[&[(
            "mountd/src/main.rs",
            "//! A.\nuse std::process::ExitCode;\nfn main() -> ExitCode {\n    holdfast::run()\n}\n",
        )]],
    },
];

fn headers(tree: &Tree) -> Vec<String> {
    tree.sources()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| format!("{path}:1: doesn't start with `//!`"))
        .collect()
}

fn file_names(tree: &Tree) -> Vec<String> {
    let is_bad = |path: &str| {
        path.trim_end_matches(".rs").split('/').any(|part| matches!(part, "mod" | "util" | "utils"))
    };
    tree.sources()
        .filter(|(path, _)| is_bad(path))
        .map(|(path, _)| format!("{path}: a name that says nothing"))
        .collect()
}

fn lengths(tree: &Tree) -> Vec<String> {
    let length = |text: &str| text.lines().take_while(|line| *line != "#[cfg(test)]").count();
    tree.sources()
        .map(|(path, text)| (path, length(text)))
        .filter(|(_, lines)| *lines > LINES)
        .map(|(path, lines)| format!("{path}: {lines} lines before its tests"))
        .collect()
}

fn unsafe_code(tree: &Tree) -> Vec<String> {
    let elsewhere = |path: &str| path != "sys.rs" && !path.ends_with("/sys.rs");
    search(tree, elsewhere, names, |name| name.has("unsafe"))
}

fn fuse_library(tree: &Tree) -> Vec<String> {
    let elsewhere = |path: &str| path != "fs/src/fuse.rs" && !is_below(path, "fs/src/fuse");
    search(tree, elsewhere, names, |name| name.has("fuser"))
}

fn surroundings(tree: &Tree) -> Vec<String> {
    search(tree, in_filesystem, names_outside_tests, |name| {
        name.starts_with("std::env")
            || name.starts_with("std::net")
            || name.starts_with("std::os::unix::net")
            || name.has("UnixStream")
            || name.has("UnixListener")
    })
}

fn time(tree: &Tree) -> Vec<String> {
    let elsewhere = |path: &str| in_filesystem(path) && path != "fs/src/clock.rs";
    search(tree, elsewhere, names_outside_tests, |name| {
        name.ends_with("SystemTime::now")
            || name.ends_with("Instant::now")
            || name.has("clock_gettime")
    })
}

fn main_function(tree: &Tree) -> Vec<String> {
    let Some(text) = tree.get("mountd/src/main.rs") else { return Vec::new() };
    let items = names(text);
    let calls_run = tokens(text).into_iter().any(|token| match token {
        TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
            body.stream().to_string().replace(' ', "") == "holdfast::run()"
        }
        _ => false,
    });
    let functions = items.iter().filter(|name| name.path == "fn").count();
    let modules = items.iter().any(|name| name.path == "mod");
    if calls_run && functions == 1 && !modules {
        Vec::new()
    } else {
        vec!["mountd/src/main.rs: does more than to call holdfast::run()".to_owned()]
    }
}

/// The filesystem's own code, without the files that are tests and nothing else.
fn in_filesystem(path: &str) -> bool {
    is_below(path, "fs/src") && !path.ends_with("/tests.rs") && !path.contains("/tests/")
}

fn search(
    tree: &Tree,
    concerns: impl Fn(&str) -> bool,
    names: fn(&str) -> Vec<Name>,
    is_bad: impl Fn(&Name) -> bool,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in tree.sources().filter(|(path, _)| concerns(path)) {
        for name in names(text).iter().filter(|name| is_bad(name)) {
            complaints.push(format!("{path}:{}: `{}`", name.line, name.path));
        }
    }
    complaints
}

const TOO_LONG: &str = text(&blank_lines(""));
const LONG_BY_TESTS: &str = text(&blank_lines("//! A.\n#[cfg(test)]\n"));

/// One byte, so one line, more than a file may have, some of them replaced by a start.
const fn blank_lines(start: &str) -> [u8; LINES + 1] {
    let mut bytes = [b'\n'; LINES + 1];
    bytes.split_at_mut(start.len()).0.copy_from_slice(start.as_bytes());
    bytes
}

const fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("an example is UTF-8"),
    }
}
