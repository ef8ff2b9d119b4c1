//! `holdfast lease …`.

use std::path::Path;
use std::process::ExitCode;

use super::Outcome;
use super::args::{LeaseAcquireArgs, LeaseCommand, LeaseKindArg};
use super::output::{Output, ago, bytes, table};
use crate::control::client::Client;
use crate::control::wire;

/// Does what was asked.
pub(crate) fn run(socket: Option<&Path>, command: &LeaseCommand, output: Output) -> Outcome {
    let mut client = Client::find(socket)?;
    match command {
        LeaseCommand::Acquire(args) => {
            let acquired = client.call(&acquire(args))?;
            output.answer(&acquired, |acquired| {
                format!("{} {}", acquired.lease.id, acquired.lease.path)
            });
        }
        LeaseCommand::Bind(args) => {
            let (lease, pid) = (args.lease.clone(), Some(args.pid));
            let shown = client.call(&wire::BindLease { lease, pid })?;
            output.answer(&shown, |_| String::new());
        }
        LeaseCommand::Release(args) => {
            let lease = args.lease.clone();
            let released = client.call(&wire::ReleaseLease { lease })?;
            output.answer(&released, |released| receipt(&released.receipt));
        }
        LeaseCommand::List(_) => {
            let mut shown = client.call(&wire::ListLeases::default())?;
            while shown.more {
                let after = shown.leases.last().map(|lease| lease.id.clone());
                let next = client.call(&wire::ListLeases { after })?;
                shown.leases.extend(next.leases);
                shown.more = next.more;
            }
            output.answer(&shown, |shown| list(&shown.leases));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn acquire(args: &LeaseAcquireArgs) -> wire::AcquireLease {
    // This process ends at once; a lease that hung on it would end with it.
    let hold = match args.pid {
        Some(_) => wire::Hold::Process,
        None => wire::Hold::Nothing,
    };
    wire::AcquireLease {
        session: args.session.clone(),
        kind: Some(args.kind.into()),
        hold: Some(hold),
        pid: args.pid,
    }
}

impl From<LeaseKindArg> for wire::LeaseKind {
    fn from(kind: LeaseKindArg) -> Self {
        match kind {
            LeaseKindArg::Shared => Self::Shared,
            LeaseKindArg::Private => Self::Private,
        }
    }
}

fn list(leases: &[wire::Lease]) -> String {
    let row = |lease: &wire::Lease| {
        let hold = match (lease.hold, &lease.process) {
            (wire::Hold::Process, Some(process)) => format!("process {}", process.pid),
            (wire::Hold::Process, None) => "process".to_owned(),
            (wire::Hold::Connection, _) => "connection".to_owned(),
            (wire::Hold::Nothing, _) => "nothing".to_owned(),
        };
        [
            lease.id.clone(),
            lease.name.clone().unwrap_or_else(|| lease.session.clone()),
            lease.uid.to_string(),
            hold,
            ago(lease.age_ms),
            lease.path.clone(),
        ]
    };
    let rows: Vec<_> = leases.iter().map(row).collect();
    table(["ID", "SESSION", "UID", "HANGS ON", "AGE", "PATH"], &rows)
}

fn receipt(receipt: &wire::Receipt) -> String {
    let end = match receipt.end {
        wire::LeaseEnd::Released => "it was released",
        wire::LeaseEnd::ProcessGone => "its process is gone",
        wire::LeaseEnd::ConnectionGone => "its connection is gone",
        wire::LeaseEnd::Closed => "its session was closed",
        wire::LeaseEnd::DirectoryGone => "its directory is gone",
    };
    let mut text = format!("held for {}: {end}", ago(receipt.held_ms));
    if let (Some(held), Some(inodes)) = (receipt.bytes, receipt.inodes) {
        text.push_str(&format!("; its generation then held {} in {inodes} inodes", bytes(held)));
    }
    text
}
