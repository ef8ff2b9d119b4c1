//! What a test tells its reader although it passed: figures, tables, and that it was skipped.
//!
//! It must never be what a test is judged by.

use std::fmt;
use std::io::Write as _;

/// Writes past the capturing of the test runner, which shows only what fails.
pub fn print(text: impl fmt::Display) {
    // In one piece: other tests print at the same time.
    let line = format!("{text}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
