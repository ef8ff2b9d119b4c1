//! The `holdfast` program; it must only call `run`.

fn main() -> std::process::ExitCode {
    holdfast::run()
}
