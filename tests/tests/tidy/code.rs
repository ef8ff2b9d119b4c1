//! A Rust file as the rules see it: words and paths of the code, without comments, strings, and
//! what is compiled for tests alone.
//!
//! It must never judge.

use std::str::FromStr as _;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path as it is written (`std::env::var`, or `var` alone), with the groups of a `use` written
/// out, and the line of its last word.
#[derive(Debug, PartialEq)]
pub(crate) struct Name {
    pub(crate) path: String,
    pub(crate) line: usize,
}

impl Name {
    /// Whether the path has this one at its start, or after it the end of that.
    pub(crate) fn starts_with(&self, path: &str) -> bool {
        self.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }

    /// Whether the path has this one at its end.
    pub(crate) fn ends_with(&self, path: &str) -> bool {
        self.path.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
    }

    /// Whether any of its words is this one.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.path.split("::").any(|part| part == word)
    }
}

/// The tokens of a file.
pub(crate) fn tokens(text: &str) -> TokenStream {
    // What isn't Rust is the compiler's to complain about.
    TokenStream::from_str(text).unwrap_or_default()
}

/// All names in a file.
pub(crate) fn names(text: &str) -> Vec<Name> {
    let mut names = Vec::new();
    collect(tokens(text), "", &mut names);
    names
}

/// The names in a file that are compiled when no test is.
pub(crate) fn names_outside_tests(text: &str) -> Vec<Name> {
    let mut names = Vec::new();
    collect(without_tests(tokens(text)), "", &mut names);
    names
}

/// Whether a function of this name is declared anywhere in a file, also within a macro call.
pub(crate) fn declares_function(text: &str, name: &str) -> bool {
    fn search(tokens: TokenStream, name: &str) -> bool {
        let mut after_fn = false;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if after_fn && word == name {
                        return true;
                    }
                    after_fn = word == "fn";
                }
                TokenTree::Group(group) if search(group.stream(), name) => return true,
                _ => after_fn = false,
            }
        }
        false
    }
    search(tokens(text), name)
}

/// Leaves out each item under `#[cfg(test)]`, at every depth.
fn without_tests(tokens: TokenStream) -> TokenStream {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_attribute = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '#');
        if is_attribute && tokens.peek().is_some_and(is_for_tests) {
            let end = |token: &TokenTree| match token {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                TokenTree::Punct(mark) => mark.as_char() == ';',
                TokenTree::Ident(_) | TokenTree::Literal(_) => false,
            };
            tokens.find(end);
        } else if let TokenTree::Group(group) = token {
            let inner = without_tests(group.stream());
            kept.push(TokenTree::Group(proc_macro2::Group::new(group.delimiter(), inner)));
        } else {
            kept.push(token);
        }
    }
    kept.into_iter().collect()
}

fn is_for_tests(attribute: &TokenTree) -> bool {
    attribute.to_string().replace(' ', "") == "[cfg(test)]"
}

fn collect(tokens: TokenStream, prefix: &str, names: &mut Vec<Name>) {
    let mut path = prefix.to_owned();
    let mut colons = 0;
    let mut open = !prefix.is_empty();
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                let line = word.span().start().line;
                if open {
                    path = format!("{path}::{word}");
                } else {
                    path = word.to_string();
                }
                names.push(Name { path: path.clone(), line });
                (open, colons) = (false, 0);
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => {
                colons += 1;
                open = colons == 2 && !path.is_empty();
            }
            TokenTree::Punct(_) => {
                (path, open, colons) = (prefix.to_owned(), !prefix.is_empty(), 0);
            }
            TokenTree::Group(group) => {
                let is_use = open && group.delimiter() == Delimiter::Brace;
                collect(group.stream(), if is_use { &path } else { "" }, names);
                (path, open, colons) = (prefix.to_owned(), !prefix.is_empty(), 0);
            }
            TokenTree::Literal(_) => {
                (path, open, colons) = (prefix.to_owned(), !prefix.is_empty(), 0);
            }
        }
    }
}

#[test]
fn names_are_written_out() {
    let text = "use std::{env, net::{self, UnixStream as S}};\nfn f() { let t = Instant::now(); }";
    let names = names(text);
    for path in ["std::env", "std::net::UnixStream", "Instant::now"] {
        assert!(names.iter().any(|name| name.path == path), "{path} is not in {names:?}");
    }
    assert_eq!(names.iter().find(|name| name.path == "Instant::now").map(|n| n.line), Some(2));
}

#[test]
fn comments_strings_and_tests_are_left_out() {
    let text = "//! fuser\nconst A: &str = \"fuser\";\n#[cfg(test)]\nmod tests { use fuser::A; }\n\
                mod b { #[cfg(test)] use fuser::B; fn c() {} }";
    assert!(!names_outside_tests(text).iter().any(|name| name.has("fuser")));
    assert!(names_outside_tests(text).iter().any(|name| name.path == "c"));
    assert!(names(text).iter().any(|name| name.path == "fuser::A"));
}

#[test]
fn functions_are_found_within_macro_calls() {
    assert!(declares_function("table! { fn one() { } }", "one"));
    assert!(!declares_function("fn other() { one() }", "one"));
}
