//! The program `holdfast`, built with the tests, so that they never meet one of another state.
//!
//! It must be nothing else than what `mountd/src/main.rs` is.

fn main() -> std::process::ExitCode {
    holdfast::run()
}
