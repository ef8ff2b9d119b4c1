//! Which operations met which answers, so that a generator that degrades is found out.
//!
//! It must never count what was not carried out in both places.

use std::collections::BTreeMap;
use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// How often each operation met each answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage(BTreeMap<String, BTreeMap<String, u64>>);

impl Coverage {
    /// Counts one answer.
    pub fn count(&mut self, operation: &str, error: Option<Errno>) {
        let answer = error.map_or_else(|| "ok".to_owned(), name);
        *self.0.entry(operation.to_owned()).or_default().entry(answer).or_default() += 1;
    }

    /// Adds what somebody else counted.
    pub fn add(&mut self, other: &Self) {
        for (operation, answers) in &other.0 {
            let mine = self.0.entry(operation.clone()).or_default();
            for (answer, count) in answers {
                *mine.entry(answer.clone()).or_default() += count;
            }
        }
    }

    /// How often this operation met this answer.
    #[must_use]
    pub fn of(&self, operation: &str, answer: &str) -> u64 {
        self.0.get(operation).and_then(|answers| answers.get(answer)).copied().unwrap_or(0)
    }

    /// How many pairs of operation and answer were met.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// How many calls were made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.values().flat_map(BTreeMap::values).sum()
    }

    /// Those of these pairs that were met less often than this.
    #[must_use]
    pub fn below(&self, minimum: u64, pairs: &[(&str, &[&str])]) -> Vec<String> {
        let pairs = pairs.iter().flat_map(|(operation, answers)| {
            answers.iter().map(move |answer| (*operation, *answer))
        });
        pairs
            .filter(|(operation, answer)| self.of(operation, answer) < minimum)
            .map(|(operation, answer)| format!("{operation} {answer}"))
            .collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (operation, answers) in &self.0 {
            write!(f, "{operation:<16}")?;
            let mut answers: Vec<_> = answers.iter().collect();
            answers.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (answer, count) in answers {
                write!(f, " {answer} {count}")?;
            }
            writeln!(f)?;
        }
        write!(f, "{} calls, {} pairs of operation and answer", self.calls(), self.pairs())
    }
}

/// The name of an error as manuals have it.
#[must_use]
pub fn name(error: Errno) -> String {
    macro_rules! names {
        ($($name:ident)*) => {
            match error {
                // Two that Rust spells in another way.
                Errno::ACCESS => "EACCES".to_owned(),
                Errno::TOOBIG => "E2BIG".to_owned(),
                $(Errno::$name => concat!("E", stringify!($name)).to_owned(),)*
                other => format!("errno {}", other.raw_os_error()),
            }
        };
    }
    names!(PERM NOENT INTR IO NXIO BADF AGAIN NOMEM FAULT BUSY EXIST XDEV NODEV NOTDIR ISDIR
        INVAL NFILE MFILE TXTBSY FBIG NOSPC SPIPE ROFS MLINK PIPE DOM RANGE NAMETOOLONG NOTEMPTY
        LOOP NODATA OPNOTSUPP OVERFLOW STALE NOTUNIQ NOSYS CONNABORTED NOTCONN TIMEDOUT)
}
