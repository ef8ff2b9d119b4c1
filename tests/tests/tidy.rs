//! The rules of the tree that a compiler and a linter don't know, each with an example that breaks
//! it, so that a rule which can't fail any more is found out.
//!
//! It must never change a file, and never look outside the members of the workspace and the
//! documents beside them.

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/manifests.rs"]
mod manifests;
#[path = "tidy/sources.rs"]
mod sources;
#[path = "tidy/tree.rs"]
mod tree;

use tree::{Rule, Tree};

fn rules() -> impl Iterator<Item = &'static Rule> {
    sources::RULES.iter().chain(manifests::RULES).chain(documents::RULES)
}

#[test]
fn the_tree_keeps_every_rule() {
    let tree = Tree::of_the_workspace().expect("the workspace can be read");
    let complaints: Vec<String> = rules()
        .flat_map(|rule| {
            (rule.check)(&tree)
                .into_iter()
                .map(move |what| format!("{}\n    ({})", what, rule.says))
        })
        .collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn the_whole_workspace_is_looked_at() {
    let tree = Tree::of_the_workspace().expect("the workspace can be read");
    for path in ["Cargo.toml", "SEMANTICS.md", "fs/src/lib.rs", "mountd/src/main.rs", file!()] {
        assert!(tree.get(path).is_some(), "{path} was not read");
    }
}

#[test]
fn each_rule_finds_what_breaks_it() {
    for rule in rules() {
        assert!(!rule.broken.is_empty(), "no example breaks the rule: {}", rule.says);
        for example in rule.broken {
            let complaints = (rule.check)(&Tree::of(example));
            assert!(
                !complaints.is_empty(),
                "nothing was found in {example:?} by the rule: {}",
                rule.says
            );
        }
    }
}

#[test]
fn each_rule_accepts_what_keeps_it() {
    for rule in rules() {
        for example in rule.kept {
            let complaints = (rule.check)(&Tree::of(example));
            assert!(
                complaints.is_empty(),
                "{complaints:?} in {example:?} by the rule: {}",
                rule.says
            );
        }
    }
}
