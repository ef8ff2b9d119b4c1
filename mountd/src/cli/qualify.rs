//! `holdfast qualify`: whether a directory is usable from here, in words or as the record.
//!
//! Inside a lease the record is handed to it too. It must never fail for that.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::args::{ExamineArgs, QualifyArgs};
use super::output::{Output, bytes, table};
use super::{Outcome, REFUSED};
use crate::control::client::Client;
use crate::control::wire::{self, MountPoint, Qualification, Verdict};
use crate::fault::FaultReport;
use crate::qualify;

/// How long a daemon may take that shall keep the record.
const PATIENCE: Duration = Duration::from_secs(3);

/// Tells whether a directory is usable.
pub(crate) fn run(socket: Option<&Path>, args: &QualifyArgs, output: Output) -> Outcome {
    let record = qualify::examine_in_time(&args.path)?;
    if let Some(Err(report)) = hand_over(socket, &record) {
        output.note(&format!("the lease doesn't keep this record: {}", report.message));
    }
    output.answer(&record, words);
    Ok(match record.verdict {
        Verdict::Qualified => ExitCode::SUCCESS,
        Verdict::Disqualified | Verdict::Refused => ExitCode::from(REFUSED),
    })
}

/// The process that looks, and says before each step what there is if no answer comes.
pub(crate) fn examine(args: &ExamineArgs) -> Outcome {
    let output = Output::new(true);
    let tell = |record: &Qualification| output.answer(record, |_| String::new());
    tell(&qualify::examine(&args.path, tell));
    Ok(ExitCode::SUCCESS)
}

/// Has the lease that this process is inside of keep the record, where its directory was examined.
fn hand_over(socket: Option<&Path>, record: &Qualification) -> Option<Result<(), FaultReport>> {
    let member = record.view.member.as_ref()?;
    let (_, lease) = member.split_once(':')?;
    let named = || env::var_os("HOLDFAST_SOCKET").filter(|value| !value.is_empty());
    let socket = socket.map(Path::to_owned).or_else(|| named().map(PathBuf::from))?;
    let keep = |lease: String| {
        let mut client = Client::connect(&socket)?;
        client.set_deadline(Some(PATIENCE));
        let shown = client.call(&wire::CheckLease { lease: lease.clone() })?;
        if is_of(record, &shown.lease) {
            client.call(&wire::Qualify { lease, record: Box::new(record.clone()) })?;
        }
        Ok(())
    };
    Some(keep(lease.to_owned()))
}

/// Whether it is the leased directory that was examined, wherever a sandbox shows it; one that the
/// sandbox doesn't show is known by its path.
fn is_of(record: &Qualification, lease: &wire::Lease) -> bool {
    let path = record.canonical.as_ref().or(record.path.as_ref());
    let inode = record.object.as_ref().map(|object| (object.device, object.inode));
    inode == Some((lease.device, lease.inode)) || path == Some(&lease.path)
}

/// The record as people read it.
pub(super) fn words(record: &Qualification) -> String {
    let code = record.first.as_ref().or(record.fault.as_ref());
    let verdict = match (record.verdict, code) {
        (Verdict::Qualified, _) => "qualified".to_owned(),
        (Verdict::Disqualified, Some(code)) => format!("disqualified: {code}"),
        (Verdict::Refused, Some(code)) => format!("refused: {code}"),
        (Verdict::Disqualified, None) => "disqualified".to_owned(),
        (Verdict::Refused, None) => "refused".to_owned(),
    };
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut row = |name: &str, text: Option<String>| {
        rows.extend(text.map(|text| [name.to_owned(), text]));
    };
    row("verdict", Some(verdict));
    row("no answer to", record.waits_for.clone());
    row("path", record.path.clone());
    row("canonical", record.canonical.clone());
    for link in &record.links {
        row("link", Some(format!("{} -> {}", link.component, link.target)));
    }
    row("can't look", record.error.as_ref().map(said));
    row(
        "is",
        record.object.as_ref().map(|it| {
            let wire::Object { kind, mode, uid, gid, device, inode } = it;
            format!("{kind}, mode {mode}, of {uid}:{gid}, device {device}, inode {inode}")
        }),
    );
    row("on", record.mount.as_ref().map(mount));
    for mounted in &record.mounts {
        row("mounted", Some(mount(mounted)));
    }
    row("mounts", record.mounts_count.map(|count| count.to_string()));
    row("access", record.access.as_ref().map(access));
    row("probe", record.probe.as_ref().map(probe));
    row("room", record.space.as_ref().map(space));
    row("git", record.git.as_ref().map(git));
    let wire::Asker { uid, gid, groups, pid } = &record.asker;
    row("for", Some(format!("process {pid} as {uid}:{gid}, groups {groups:?}")));
    row("view", Some(view(&record.view)));
    table(["", ""], &rows).trim_start().to_owned()
}

fn said(error: &wire::ErrorNumber) -> String {
    format!("{} ({})", error.text, error.number)
}

fn mount(mount: &MountPoint) -> String {
    let ours = if mount.holdfast { ", a Holdfast namespace" } else { "" };
    format!("{} from {} at {}{ours}", mount.fstype, mount.source, mount.path)
}

fn access(access: &wire::Access) -> String {
    match &access.error {
        _ if access.writable => "writable".to_owned(),
        Some(error) => format!("not writable: {}", said(error)),
        None => "not writable".to_owned(),
    }
}

fn probe(probe: &wire::Probe) -> String {
    let mut text = match (&probe.failed, &probe.error) {
        (None, _) => "a file was made, written, renamed, read and deleted".to_owned(),
        (Some(step), Some(error)) => format!("failed at {step}: {}", said(error)),
        (Some(step), None) => format!("failed at {step}"),
    };
    if let Some(left) = &probe.left {
        text.push_str(&format!("; {left} is left"));
    }
    text
}

fn space(space: &wire::Space) -> String {
    let only = if space.read_only { ", read-only" } else { "" };
    let wire::Space { bytes: all, bytes_free: free, inodes, inodes_free, .. } = space;
    let (free, all) = (bytes(*free), bytes(*all));
    format!("{free} of {all}, {inodes_free} of {inodes} inodes free{only}")
}

fn git(git: &wire::GitAnswer) -> String {
    let mut text = git.meaning.clone();
    if let Some(status) = git.status {
        text.push_str(&format!(" (status {status})"));
    }
    if !git.stderr.is_empty() {
        text.push_str(&format!(": {}", git.stderr.replace('\n', " ")));
    }
    text
}

fn view(view: &wire::View) -> String {
    let number = |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
    let mut text = format!(
        "mount namespace {}, user namespace {}, pid namespace {}",
        number(view.mount_namespace),
        number(view.user_namespace),
        number(view.pid_namespace)
    );
    if let Some(member) = &view.member {
        text.push_str(&format!(", inside the lease {member}"));
    }
    text
}
