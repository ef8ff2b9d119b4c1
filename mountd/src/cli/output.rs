//! The one place that writes to the terminal.
//!
//! Answers go to standard output, complaints to standard error. A reader that has left is not an
//! error.

use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::control::wire::Qualification;
use crate::fault::FaultReport;

static LOST: AtomicBool = AtomicBool::new(false);

/// How answers are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    /// Whether standard output is somebody else's.
    aside: bool,
}

impl Output {
    /// Answers as JSON, or as text.
    pub(crate) const fn new(json: bool) -> Self {
        Self { json, aside: false }
    }

    /// The same for one whose standard output belongs to the command that it starts: a fault is
    /// told on standard error alone, and as JSON alone where JSON is wanted.
    pub(crate) const fn aside(self) -> Self {
        Self { aside: true, ..self }
    }

    /// Gives an answer, as JSON on one line or as what `text` makes of it.
    pub(crate) fn answer<T: Serialize>(self, answer: &T, text: impl FnOnce(&T) -> String) {
        self.tell(answer, text);
    }

    /// The same for one of many answers; says whether anybody reads further ones.
    pub(crate) fn tell<T: Serialize>(self, answer: &T, text: impl FnOnce(&T) -> String) -> bool {
        let line = if self.json { to_json(answer) } else { text(answer) };
        if line.is_empty() {
            return true;
        }
        let mut out = stdout();
        let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush()) else { return true };
        if error.kind() != ErrorKind::BrokenPipe {
            LOST.store(true, Ordering::Relaxed);
            let _ = writeln!(stderr(), "holdfast: the answer can't be written: {error}");
        }
        false
    }

    /// Whether an answer was lost, so that the command has failed for whoever asked.
    pub(crate) fn lost(self) -> bool {
        LOST.load(Ordering::Relaxed)
    }

    /// Tells of a fault: always in words on standard error, and as JSON on standard output where
    /// JSON is wanted.
    pub(crate) fn fault(self, report: &FaultReport) {
        self.refusal(&FaultAnswer { fault: report, qualification: None });
    }

    /// Tells of a fault and of the record that says so.
    pub(crate) fn fault_on_record(self, report: &FaultReport, record: &Qualification) {
        self.refusal(&FaultAnswer { fault: report, qualification: Some(record) });
    }

    fn refusal(self, answer: &FaultAnswer<'_>) {
        if self.json && self.aside {
            let _ = writeln!(stderr(), "{}", to_json(answer));
            return;
        }
        if self.json {
            let _ = writeln!(stdout(), "{}", to_json(answer));
        }
        let report = answer.fault;
        let (bold, plain) = if stderr().is_terminal() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let mut text = format!("holdfast: {bold}{}{plain}: {}\n", report.code, report.message);
        if let Some(cause) = &report.cause
            && *cause != report.message
        {
            text.push_str(&format!("  cause:  {cause}\n"));
        }
        text.push_str(&format!("  remedy: {}\n", report.remedy));
        let _ = stderr().write_all(text.as_bytes());
    }

    /// Warns of something that the answer doesn't say.
    pub(crate) fn warn(self, text: &str) {
        let _ = writeln!(stderr(), "holdfast: {text}");
    }

    /// Tells something by the way, which no program reads.
    pub(crate) fn note(self, text: &str) {
        if !self.json || self.aside {
            let _ = writeln!(stderr(), "holdfast: {text}");
        }
    }
}

#[derive(Serialize)]
struct FaultAnswer<'a> {
    fault: &'a FaultReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    qualification: Option<&'a Qualification>,
}

/// Says what was wrong with the command line, or gives the help that was asked for.
pub(crate) fn usage(error: &clap::Error) {
    let _ = error.print();
}

/// A table with aligned columns; the last one is as wide as it likes.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[&str]| {
        let mut text = String::new();
        for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if index + 1 == N {
                text.push_str(cell);
            } else {
                text.push_str(&format!("{cell:<width$}  "));
            }
        }
        text.trim_end().to_owned()
    };
    let mut lines = vec![line(&head)];
    for row in rows {
        lines.push(line(&row.each_ref().map(String::as_str)));
    }
    lines.join("\n")
}

/// A time that has passed, or will: in the two largest units that it has.
pub(crate) fn ago(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds < 10 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// A number of bytes, in the largest unit that leaves it at least one.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => {
            let tenths = (u128::from(bytes) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// What can't be written as JSON is said as such; nothing that we answer with is of that kind.
fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("\"{error}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_as_people_say_them() {
        let said = [900, 59_999, 61_000, 3_660_000, 90_000_000].map(ago);
        assert_eq!(said, ["0.9 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        let said = [512, 1536, 1 << 20, u64::MAX].map(bytes);
        assert_eq!(said, ["512 B", "1.5 KiB", "1.0 MiB", "16777215.9 TiB"]);
    }

    #[test]
    fn a_table_is_aligned() {
        let rows = [["a".to_owned(), "long name".to_owned(), "x".to_owned()]];
        assert_eq!(table(["id", "name", "n"], &rows), "id  name       n\na   long name  x");
    }
}
