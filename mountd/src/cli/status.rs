//! `holdfast status`.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::Outcome;
use super::args::StatusArgs;
use super::output::{Output, ago, bytes, table};
use crate::control::client::Client;
use crate::control::wire;

/// What is told, in one object.
#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    description: wire::Description,
    #[serde(flatten)]
    status: wire::CurrentStatus,
}

/// Tells what the daemon serves, and how it is doing.
pub(crate) fn run(socket: Option<&Path>, _args: &StatusArgs, output: Output) -> Outcome {
    let mut client = Client::find(socket)?;
    let description = client.call(&wire::Describe {})?;
    let status = client.call(&wire::Status {})?;
    output.answer(&Told { description, status }, words);
    Ok(ExitCode::SUCCESS)
}

fn held(status: &wire::CurrentStatus) -> String {
    match (status.used, status.total) {
        (Some(used), Some(total)) => format!("{} of {}", bytes(used), bytes(total)),
        _ => "what the directory's filesystem has room for".to_owned(),
    }
}

fn words(Told { description, status }: &Told) -> String {
    let users = if description.many_users { "all users" } else { "its own user" };
    let counts = &status.counts;
    let row = |name: &str, text: String| [name.to_owned(), text];
    let mut rows = vec![
        row("mountpoint", description.mountpoint.clone()),
        row("socket", description.socket.clone()),
        row("store", description.store.clone()),
        row("version", description.version.clone()),
        row("serves", format!("{users}, for {}", ago(status.uptime_ms))),
        row("sessions", format!("{}, sealed: {}", counts.sessions, counts.sealed)),
        row("generations", format!("{}, retired: {}", counts.generations, counts.retired)),
        row("leases", counts.leases.to_string()),
        row("holds", held(status)),
        row("connections", counts.connections.to_string()),
    ];
    if let Some(wire::Fault { code, message, remedy, cause }) = &status.fault {
        let cause = cause.as_ref().unwrap_or(message);
        rows.push(row("FAULT", format!("{code}: {cause}")));
        rows.push(row("", format!("remedy: {remedy}")));
    }
    if let Some(idle) = description.idle_exit_ms {
        rows.push(row("leaves", format!("after {} without use", ago(idle))));
    }
    if status.draining {
        rows.push(row("drains", "it ends after the last session".to_owned()));
    }
    for lost in &description.lost_promises {
        rows.push(row("can't promise", format!("{}: {}", lost.name, lost.why)));
    }
    table(["", ""], &rows).trim_start().to_owned()
}
