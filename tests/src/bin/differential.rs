//! The differential test as a program: `differential subject=DIR reference=DIR seed=N`, and
//! `sequences=N` for that many seeds in a row.
//!
//! It must only pass its arguments on.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    holdfast_tests::differential::batch::main(std::env::args().skip(1))
}
