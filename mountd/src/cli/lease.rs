//! `holdfast lease …`.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::args::{LeaseAcquireArgs, LeaseCommand, LeaseKindArg};
use super::output::{Output, ago, bytes, table};
use super::qualify::words;
use super::{Outcome, REFUSED};
use crate::control::client::Client;
use crate::control::wire::{self, Qualification};
use crate::fault::FaultReport;
use crate::qualify;

/// Does what was asked.
pub(crate) fn run(socket: Option<&Path>, command: &LeaseCommand, output: Output) -> Outcome {
    if let LeaseCommand::Acquire(args) = command
        && args.qualify
    {
        return qualified(socket, args, output);
    }
    let mut client = Client::find(socket)?;
    match command {
        LeaseCommand::Acquire(args) => {
            let acquired = client.call(&acquire(args))?;
            output.answer(&acquired, |acquired| line(&acquired.lease));
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

/// A lease, and whether it can be used from here.
#[derive(Serialize)]
struct Qualified {
    #[serde(flatten)]
    acquired: wire::AcquiredLease,
    qualification: Qualification,
}

/// Takes a lease, examines its directory and has the lease keep the record. Where there is no
/// lease, the record says with which fault it was refused.
fn qualified(socket: Option<&Path>, args: &LeaseAcquireArgs, output: Output) -> Outcome {
    let taken = Client::find(socket).and_then(|mut client| {
        let acquired = client.call(&acquire(args))?;
        Ok((client, acquired))
    });
    let (mut client, acquired) = match taken {
        Ok(taken) => taken,
        Err(report) => {
            output.fault_on_record(&report, &qualify::refused(&report.code));
            return Ok(ExitCode::from(REFUSED));
        }
    };
    let qualification = match qualify::examine_in_time(Path::new(&acquired.lease.path)) {
        Ok(qualification) => qualification,
        Err(fault) => {
            // There is a lease all the same, and whoever asked for it must know which.
            output.warn(&format!("it can't be examined: {}", FaultReport::from(fault).message));
            output.answer(&acquired, |acquired| line(&acquired.lease));
            return Ok(ExitCode::SUCCESS);
        }
    };
    let (lease, record) = (acquired.lease.id.clone(), Box::new(qualification.clone()));
    if let Err(report) = client.call(&wire::Qualify { lease, record }) {
        output.warn(&format!("the lease doesn't keep the record: {}", report.message));
    }
    output.answer(&Qualified { acquired, qualification }, |told| {
        format!("{}\n{}", line(&told.acquired.lease), words(&told.qualification))
    });
    Ok(ExitCode::SUCCESS)
}

fn line(lease: &wire::Lease) -> String {
    format!("{} {}", lease.id, lease.path)
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
    if let Some(record) = &receipt.qualification {
        let verdict = match record.verdict {
            wire::Verdict::Qualified => "qualified".to_owned(),
            wire::Verdict::Disqualified | wire::Verdict::Refused => {
                let code = record.first.as_ref().or(record.fault.as_ref());
                format!("disqualified: {}", code.map_or("for no reason", String::as_str))
            }
        };
        text.push_str(&format!("; when it was last examined it was {verdict}"));
    }
    text
}
