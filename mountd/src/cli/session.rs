//! `holdfast session …`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::Outcome;
use super::args::{GuardArg, ModeArg, SessionCommand, SessionOpenArgs};
use super::output::{Output, ago, bytes, table};
use crate::control::client::Client;
use crate::control::wire;

/// How long a session that was opened from a shell may be idle where nothing else is said.
const LINGER: Duration = Duration::from_secs(24 * 60 * 60);

/// Does what was asked.
pub(crate) fn run(socket: Option<&Path>, command: &SessionCommand, output: Output) -> Outcome {
    let mut client = Client::find(socket)?;
    match command {
        SessionCommand::Open(args) => {
            let opened = client.call(&open(args))?;
            output.answer(&opened, |opened| opened.session.id.clone());
        }
        SessionCommand::List(_) => {
            let mut shown = client.call(&wire::ListSessions::default())?;
            while shown.more {
                let after = shown.sessions.last().map(|session| session.id.clone());
                let next = client.call(&wire::ListSessions { after })?;
                shown.sessions.extend(next.sessions);
                shown.more = next.more;
            }
            output.answer(&shown, |shown| list(&shown.sessions));
        }
        SessionCommand::Show(args) => {
            let session = args.session.clone();
            let shown = client.call(&wire::ShowSession { session })?;
            output.answer(&shown, |shown| show(&shown.session));
        }
        SessionCommand::Rotate(args) => {
            let session = args.session.clone();
            let shown = client.call(&wire::RotateSession { session })?;
            output.answer(&shown, |_| String::new());
        }
        SessionCommand::Resize(args) => {
            let (session, size, inodes) = (args.session.clone(), args.size, args.inodes);
            let shown = client.call(&wire::ResizeSession { session, size, inodes })?;
            output.answer(&shown, |_| String::new());
        }
        SessionCommand::Close(args) => {
            let (session, force) = (args.session.clone(), Some(args.force));
            let closed = client.call(&wire::CloseSession { session, force })?;
            output.answer(&closed, |_| String::new());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn open(args: &SessionOpenArgs) -> wire::OpenSession {
    // A session of a process that ends at once would end with it.
    let linger = match args.owner_pid {
        Some(_) => None,
        None => Some(args.linger.unwrap_or(LINGER)),
    };
    wire::OpenSession {
        name: args.name.clone(),
        uid: args.uid,
        size: args.policy.size,
        inodes: args.policy.inodes,
        mode: args.policy.mode.map(Into::into),
        guard: args.policy.guard.map(Into::into),
        owner_pid: args.owner_pid,
        linger_ms: linger.map(|linger| u64::try_from(linger.as_millis()).unwrap_or(u64::MAX)),
    }
}

impl From<ModeArg> for wire::Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Private => Self::Private,
            ModeArg::Shared => Self::Shared,
        }
    }
}

impl From<GuardArg> for wire::Guard {
    fn from(guard: GuardArg) -> Self {
        match guard {
            GuardArg::Open => Self::Open,
            GuardArg::Sticky => Self::Sticky,
            GuardArg::Members => Self::Members,
        }
    }
}

fn list(sessions: &[wire::Session]) -> String {
    let row = |session: &wire::Session| {
        [
            session.id.clone(),
            session.uid.to_string(),
            state(session).to_owned(),
            session.leases.to_string(),
            session.generations.len().to_string(),
            ago(session.idle_ms),
            session.name.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = sessions.iter().map(row).collect();
    table(["ID", "UID", "STATE", "LEASES", "GENERATIONS", "IDLE", "NAME"], &rows)
}

fn show(session: &wire::Session) -> String {
    let limit = |limit: Option<u64>, write: fn(u64) -> String| {
        limit.map_or_else(|| "none".to_owned(), write)
    };
    let wire::Policy { size, inodes, mode, guard } = &session.policy;
    let mut rows = vec![
        ["id".to_owned(), session.id.clone()],
        ["name".to_owned(), session.name.clone().unwrap_or_default()],
        ["owner".to_owned(), format!("uid {} gid {}", session.uid, session.gid)],
        ["state".to_owned(), state(session).to_owned()],
        ["path".to_owned(), session.path.clone()],
        ["limit of bytes".to_owned(), limit(*size, bytes)],
        ["limit of inodes".to_owned(), limit(*inodes, |inodes| inodes.to_string())],
        ["mode".to_owned(), mode_name(*mode).to_owned()],
        ["guard".to_owned(), guard_name(*guard).to_owned()],
        ["age".to_owned(), ago(session.age_ms)],
        ["idle".to_owned(), ago(session.idle_ms)],
    ];
    for owner in &session.owners {
        let held = match (&owner.process, owner.linger_ms) {
            (Some(process), _) => format!("process {}", process.pid),
            (None, Some(linger)) => format!("until it has been idle for {}", ago(linger)),
            (None, None) => String::new(),
        };
        rows.push(["retained by".to_owned(), held]);
    }
    for generation in &session.generations {
        let kind = if generation.retired { "retired" } else { "current" };
        let text = format!("{kind}, leases: {}, {}", generation.leases, generation.path);
        rows.push([format!("generation {}", generation.number), text]);
    }
    table(["", ""], &rows).trim_start().to_owned()
}

const fn state(session: &wire::Session) -> &'static str {
    if session.sealed { "sealed" } else { "open" }
}

const fn mode_name(mode: wire::Mode) -> &'static str {
    match mode {
        wire::Mode::Private => "private",
        wire::Mode::Shared => "shared",
    }
}

const fn guard_name(guard: wire::Guard) -> &'static str {
    match guard {
        wire::Guard::Open => "open",
        wire::Guard::Sticky => "sticky",
        wire::Guard::Members => "members",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::PolicyArgs;

    fn asked(owner_pid: Option<u32>, linger: Option<Duration>) -> wire::OpenSession {
        let (name, policy) = (None, PolicyArgs::default());
        open(&SessionOpenArgs { name, uid: None, owner_pid, linger, policy, json: false })
    }

    #[test]
    fn a_session_from_a_shell_lingers_for_a_day_unless_a_process_owns_it() {
        assert_eq!(asked(None, None).linger_ms, Some(86_400_000));
        assert_eq!(asked(None, Some(Duration::from_secs(1))).linger_ms, Some(1000));
        assert_eq!(asked(Some(7), None).linger_ms, None);
        assert_eq!(asked(Some(7), None).owner_pid, Some(7));
    }
}
