//! What git would do with files in the directory: one that isn't ignored shows in the repository's
//! status, and `git clean` removes it.
//!
//! Its surroundings must never answer for it: it gets no `GIT_*` variable. Nor may it be waited for
//! without an end.

use std::env;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::control::wire::GitAnswer;
use crate::errand;

/// How long git may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The file that it is asked for. Git doesn't care that there is none.
const NAME: &str = "holdfast-scratch";
/// Characters of its complaint that are kept.
const LONGEST: usize = 2000;

/// Asks git.
pub(super) fn ask(directory: &Path) -> GitAnswer {
    let mut command = command(directory);
    let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let told = words.join(" ");
    let (meaning, status, stderr) = match errand::run(&mut command, PATIENCE) {
        Ok(outcome) => {
            let stderr = String::from_utf8_lossy(&outcome.stderr).trim().to_owned();
            let stderr: String = stderr.chars().take(LONGEST).collect();
            match outcome.status {
                Some(status) => (meaning(status.code(), &stderr), status.code(), stderr),
                None => ("no-answer", None, stderr),
            }
        }
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                ("git-missing", None, error.to_string())
            }
            _ => ("error", None, error.to_string()),
        },
    };
    GitAnswer { meaning: meaning.to_owned(), command: told, status, stderr }
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new("git");
    // The repository may be anybody's, and must not have a program of its own started.
    command.args(["-c", "core.fsmonitor=false", "-C"]).arg(directory);
    command.args(["check-ignore", "-q", "--", NAME]);
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"GIT_") {
            command.env_remove(name);
        }
    }
    // The meaning is in its words.
    command.env("LC_ALL", "C").env_remove("LANGUAGE");
    command
}

/// The status 128 stands for all that git dies of.
fn meaning(status: Option<i32>, stderr: &str) -> &'static str {
    match status {
        Some(0) => "ignored",
        Some(1) => "not-ignored",
        Some(128) if stderr.contains("not a git repository") => "not-in-repository",
        Some(128) if stderr.contains("must be run in a work tree") => "not-in-work-tree",
        Some(128)
            if stderr.contains("dubious ownership") || stderr.contains("unsafe repository") =>
        {
            "repository-not-trusted"
        }
        Some(_) | None => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_its_meaning() {
        for (status, stderr, expected) in [
            (Some(0), "", "ignored"),
            (Some(1), "", "not-ignored"),
            (
                Some(128),
                "fatal: not a git repository (or any of the parent directories): .git",
                "not-in-repository",
            ),
            (
                Some(128),
                "fatal: not a git repository (or any parent up to mount point /)",
                "not-in-repository",
            ),
            (Some(128), "fatal: this operation must be run in a work tree", "not-in-work-tree"),
            (
                Some(128),
                "fatal: detected dubious ownership in repository at '/r'",
                "repository-not-trusted",
            ),
            (Some(128), "fatal: cannot change to '/x': Permission denied", "error"),
            (Some(129), "usage", "error"),
            (None, "", "error"),
        ] {
            assert_eq!(meaning(status, stderr), expected, "{status:?} {stderr}");
        }
    }

    #[test]
    fn surroundings_do_not_answer_for_git() {
        let command = command(Path::new("/scratch"));
        let set: Vec<_> = command.get_envs().filter(|(_, value)| value.is_some()).collect();
        assert_eq!(set.len(), 1, "{set:?}");
        let told: Vec<_> = command.get_args().collect();
        assert_eq!(told[2..4], ["-C", "/scratch"]);
    }
}
