//! `holdfast doctor`: a line for each check, with the remedy below.

use std::path::Path;
use std::process::ExitCode;

use super::args::CheckHostArgs;
use super::output::Output;
use super::{Outcome, REFUSED};
use crate::doctor::{self, Check, Diagnosis, Finding, Verdict};
use crate::fault::Fault;

/// Checks the host.
pub(crate) fn run(socket: Option<&Path>, output: Output) -> Outcome {
    let diagnosis = doctor::examine(socket);
    output.answer(&diagnosis, words);
    Ok(if diagnosis.problems == 0 { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
}

/// The process that makes one check.
pub(crate) fn check(socket: Option<&Path>, args: &CheckHostArgs) -> Outcome {
    let Some(finding) = doctor::make(&args.name, socket) else {
        let what = format!("a check of the name {}", args.name);
        return Err(Fault::NotSupported { what }.into());
    };
    Output::new(true).answer(&finding, |_| String::new());
    Ok(ExitCode::SUCCESS)
}

fn words(diagnosis: &Diagnosis) -> String {
    let width = diagnosis.checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    let mut lines = Vec::new();
    for Check { name, finding } in &diagnosis.checks {
        let Finding { verdict, found, code, remedy, costs } = finding;
        let mark = match verdict {
            Verdict::Ok => "ok     ",
            Verdict::Warning => "warning",
            Verdict::Problem => "PROBLEM",
            Verdict::Skipped => "-      ",
        };
        let code = code.as_ref().map(|code| format!("{code}: ")).unwrap_or_default();
        lines.push(format!("{mark}  {name:<width$}  {code}{found}"));
        let below = |what: &str, text: &str| format!("{:width$}           {what}: {text}", "");
        lines.extend(remedy.as_ref().map(|remedy| below("remedy", remedy)));
        if !costs.is_empty() {
            lines.push(below("costs", &costs.join(", ")));
        }
    }
    let count = |number: usize, what: &str| match number {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    };
    let (problems, warnings) = (diagnosis.problems, diagnosis.warnings);
    lines.push(format!("{}, {}", count(problems, "problem"), count(warnings, "warning")));
    lines.join("\n")
}
