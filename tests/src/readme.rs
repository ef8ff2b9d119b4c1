//! The programs in README.md, as they stand there.
//!
//! They must never be written a second time: what users read is what is run.

use anyhow::Context as _;

const README: &str = include_str!("../../README.md");

/// The block below the comment `<!-- tests: NAME -->`.
///
/// # Errors
///
/// Where there is none.
pub fn block(name: &str) -> anyhow::Result<String> {
    found(README, name).with_context(|| format!("README.md has no block {name:?}"))
}

fn found(text: &str, name: &str) -> Option<String> {
    let mark = format!("<!-- tests: {name} -->");
    let mut lines = text.lines().skip_while(|line| *line != mark).skip(1);
    lines.next()?.strip_prefix("```")?;
    let block: Vec<&str> = lines.take_while(|line| *line != "```").collect();
    Some(block.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_what_stands_below_its_mark() {
        let text = "a\n<!-- tests: one -->\n```sh\nb\nc\n```\nd\n<!-- tests: two -->\ne\n";
        assert_eq!(found(text, "one").as_deref(), Some("b\nc\n"));
        assert_eq!(found(text, "two"), None);
        assert_eq!(found(text, "three"), None);
    }
}
