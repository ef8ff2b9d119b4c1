//! Benchmarks of Holdfast against tmpfs and other FUSE filesystems: not written yet.
//!
//! It must never print a figure that was not measured in the same run.

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let _ = writeln!(
        std::io::stderr(),
        "holdfast-bench: there are no workloads yet, so there is nothing to measure"
    );
    ExitCode::FAILURE
}
