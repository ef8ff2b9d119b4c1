//! The whole command line, as clap reads it.
//!
//! It must never look at the surroundings: defaults that depend on the host are settings.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use crate::config::{Store, parse_duration, parse_size, parse_span};

/// A managed temp namespace that can't be pulled out from under the programs that use it.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// The control socket [default: HOLDFAST_SOCKET, else the one that answers]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What is asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the namespace until told to stop
    Serve(ServeArgs),
    /// Run a command with a lease of its own as TMPDIR, in this process's place
    Run(RunArgs),
    /// Open, show and change sessions
    Session(SessionArgs),
    /// Take and give back leases
    Lease(LeaseArgs),
    /// Would the next lease of a session be had?
    Check(CheckArgs),
    /// What the daemon serves, and which promises this host can't keep
    Status(StatusArgs),
    /// Is a directory really usable as scratch, and if not, why?
    Qualify(QualifyArgs),
    /// Is this host fit, what is missing, and what does that cost?
    Doctor(JsonArgs),
    /// What is left of what has ended, and sweep it away: never anything leased or in use
    Sweep(SweepArgs),
    /// What happens, line by line, for as long as the daemon lives
    Watch(WatchArgs),
    /// Stop the daemon
    Down(DownArgs),
    /// The keeper's other half; only the keeper starts it
    #[command(hide = true)]
    Worker,
    /// Asks the mount on standard input whether anybody serves it; only the keeper starts it
    #[command(hide = true)]
    Probe,
    /// Looks at a directory that may never answer; only `qualify` starts it
    #[command(hide = true)]
    Examine(ExamineArgs),
    /// Makes one check of the host; only `doctor` starts it
    #[command(hide = true)]
    CheckHost(CheckHostArgs),
}

impl Command {
    /// Whether the answer is wanted as JSON.
    pub(crate) const fn json(&self) -> bool {
        match self {
            Self::Serve(args) => args.json,
            Self::Session(args) => args.command.json(),
            Self::Lease(args) => args.command.json(),
            Self::Check(args) => args.json,
            Self::Status(args) => args.json,
            Self::Qualify(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Sweep(args) => args.json,
            Self::Watch(args) => args.json,
            Self::Down(args) => args.json,
            Self::Run(args) => args.json,
            Self::Worker | Self::Probe | Self::Examine(_) | Self::CheckHost(_) => false,
        }
    }
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where the namespace appears [default: /tmp/mecatl; without privilege /tmp/mecatl-UID]
    #[arg(long, value_name = "PATH")]
    pub(crate) mountpoint: Option<PathBuf>,
    /// Where files are kept: `tmpfs` or `dir:PATH` [default: tmpfs]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<Store>,
    /// Leave after this long without a session, lease, use or connection
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) idle_exit: Option<Duration>,
    /// How much all sessions together may hold in memory: `4G` [default: half of what there is]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) total: Option<u64>,
    /// The SELinux context of the mount
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
    /// Write a newline to this descriptor once it serves, or the fault as JSON
    #[arg(long, value_name = "FD", hide = true)]
    pub(crate) ready_fd: Option<RawFd>,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The session to run in [default: one for this command]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["size", "inodes", "mode", "guard"])]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// The generation's own directory, or one for this command alone
    #[arg(long, value_enum, default_value_t = LeaseKindArg::Shared)]
    pub(crate) lease: LeaseKindArg,
    /// Give the command a mount namespace of its own in which its lease is /tmp. A daemon whose
    /// socket is below /tmp can't be reached from there; HOLDFAST_SOCKET then isn't set
    #[arg(long)]
    pub(crate) bind_tmp: bool,
    /// Write the fault as JSON to this descriptor where storage can't be had
    #[arg(long, value_name = "FD")]
    pub(crate) status_fd: Option<RawFd>,
    /// Tell of a fault as JSON on standard error; standard output is the command's
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

fn at_least_one() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..)
}

/// The policy of a session.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PolicyArgs {
    /// How much all generations of the session together may hold: `64M`, `2G`
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// How many inodes all generations of the session together may have
    #[arg(long, value_parser = at_least_one())]
    pub(crate) inodes: Option<u64>,
    /// Who may enter: the owner alone, or children that dropped their privileges too
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeArg>,
    /// Who of the same user may remove what members made
    #[arg(long, value_enum)]
    pub(crate) guard: Option<GuardArg>,
}

/// The mode of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// 0700: the owner alone.
    Private,
    /// 1777: a child that dropped its privileges too.
    Shared,
}

/// The guard of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GuardArg {
    /// Modes decide, as on any filesystem.
    Open,
    /// Others of the same user can't remove or rename what members made.
    Sticky,
    /// Only members change anything.
    Members,
}

/// What a lease is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LeaseKindArg {
    /// The generation's own directory.
    Shared,
    /// A directory of its own.
    Private,
}

/// `session …`
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    #[command(subcommand)]
    pub(crate) command: SessionCommand,
}

/// What is asked of sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Open a session, or attach to the open one of that name
    Open(SessionOpenArgs),
    /// The caller's sessions; for root all
    List(JsonArgs),
    /// One session
    Show(SessionArg),
    /// Retire the current generation; the next lease makes a fresh one
    Rotate(SessionArg),
    /// Change the limits of a session
    Resize(SessionResizeArgs),
    /// Seal a session
    Close(SessionCloseArgs),
}

impl SessionCommand {
    const fn json(&self) -> bool {
        match self {
            Self::Open(args) => args.json,
            Self::List(args) => args.json,
            Self::Show(args) | Self::Rotate(args) => args.json,
            Self::Resize(args) => args.json,
            Self::Close(args) => args.json,
        }
    }
}

/// Flags of `session open`.
#[derive(Debug, Args)]
pub(crate) struct SessionOpenArgs {
    /// A label: 1 to 128 bytes
    pub(crate) name: Option<String>,
    /// Whose session it is; only root may name somebody else
    #[arg(long, value_name = "UID")]
    pub(crate) uid: Option<u32>,
    /// The session lives as long as this process
    #[arg(long, value_name = "PID", conflicts_with = "linger")]
    pub(crate) owner_pid: Option<u32>,
    /// The session lives until it has been idle for this long [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub(crate) linger: Option<Duration>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of commands that name one session.
#[derive(Debug, Args)]
pub(crate) struct SessionArg {
    /// Name or id
    pub(crate) session: String,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `session resize`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("limits").args(["size", "inodes"]).required(true).multiple(true)))]
pub(crate) struct SessionResizeArgs {
    /// Name or id
    pub(crate) session: String,
    /// How much all generations of the session together may hold
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// How many inodes all generations of the session together may have
    #[arg(long, value_parser = at_least_one())]
    pub(crate) inodes: Option<u64>,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `session close`.
#[derive(Debug, Args)]
pub(crate) struct SessionCloseArgs {
    /// Name or id
    pub(crate) session: String,
    /// End its leases too
    #[arg(long)]
    pub(crate) force: bool,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lease …`
#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    #[command(subcommand)]
    pub(crate) command: LeaseCommand,
}

/// What is asked of leases.
#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// Take a lease
    Acquire(LeaseAcquireArgs),
    /// Bind a lease to a process: it ends when that does
    Bind(LeaseBindArgs),
    /// Give a lease back
    Release(LeaseArg),
    /// The caller's leases; for root all
    List(JsonArgs),
}

impl LeaseCommand {
    const fn json(&self) -> bool {
        match self {
            Self::Acquire(args) => args.json,
            Self::Bind(args) => args.json,
            Self::Release(args) => args.json,
            Self::List(args) => args.json,
        }
    }
}

/// Flags of `lease acquire`.
#[derive(Debug, Args)]
pub(crate) struct LeaseAcquireArgs {
    /// Name or id of the session
    pub(crate) session: String,
    /// Bind it to this process
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// The generation's own directory, or one for this lease alone
    #[arg(long, value_enum, default_value_t = LeaseKindArg::Shared)]
    pub(crate) kind: LeaseKindArg,
    /// Examine its directory from here, and have the lease keep the record
    #[arg(long)]
    pub(crate) qualify: bool,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `lease bind`.
#[derive(Debug, Args)]
pub(crate) struct LeaseBindArgs {
    /// The lease's id
    pub(crate) lease: String,
    /// The process
    pub(crate) pid: u32,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of commands that name one lease.
#[derive(Debug, Args)]
pub(crate) struct LeaseArg {
    /// The lease's id
    pub(crate) lease: String,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Name or id of the session
    pub(crate) session: String,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `qualify`.
#[derive(Debug, Args)]
pub(crate) struct QualifyArgs {
    /// The directory
    pub(crate) path: PathBuf,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `sweep`.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Show the plan and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Begin behind the event of this number [default: behind the last one]
    #[arg(long, value_name = "NUMBER", conflicts_with = "all")]
    pub(crate) after: Option<u64>,
    /// Begin with everything that the daemon still knows
    #[arg(long)]
    pub(crate) all: bool,
    /// Tell as JSON, each event on a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `examine` is told.
#[derive(Debug, Args)]
pub(crate) struct ExamineArgs {
    /// The directory
    pub(crate) path: PathBuf,
}

/// What `check-host` is told.
#[derive(Debug, Args)]
pub(crate) struct CheckHostArgs {
    /// The check
    pub(crate) name: String,
}

/// Flags of `down`.
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Take no new session and wait until the last one has ended
    #[arg(long, conflicts_with = "force")]
    pub(crate) drain: bool,
    /// Don't wait for what lives; sessions in a directory are back at the next start
    #[arg(long)]
    pub(crate) force: bool,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of commands that take nothing else.
#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_two_dashes_is_the_commands_own() {
        let cli = Cli::try_parse_from([
            "holdfast", "run", "--lease", "private", "--", "bash", "--socket", "-c", "x",
        ])
        .expect("a valid command line");
        let Command::Run(args) = cli.command else { panic!("not run") };
        assert_eq!(args.command, ["bash", "--socket", "-c", "x"]);
        assert_eq!(args.lease, LeaseKindArg::Private);
        assert!(!args.json);
        assert_eq!(cli.socket, None);
    }

    #[test]
    fn a_socket_may_be_named_after_the_command() {
        let cli = Cli::try_parse_from(["holdfast", "status", "--socket", "/s", "--json"])
            .expect("a valid command line");
        assert_eq!(cli.socket.as_deref(), Some("/s".as_ref()));
        assert!(cli.command.json());
    }

    #[test]
    fn limits_and_times_of_nothing_are_refused() {
        let parses = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        assert!(parses("holdfast session resize s --inodes 5"));
        assert!(parses("holdfast session resize s --size 1M --inodes 5"));
        assert!(parses("holdfast session open s --linger 1s"));
        for line in [
            "holdfast session resize s",
            "holdfast session resize s --inodes 0",
            "holdfast session open s --inodes 0",
            "holdfast session open s --linger 0s",
            "holdfast run --inodes 0 -- true",
        ] {
            assert!(!parses(line), "{line}");
        }
    }

    #[test]
    fn a_session_has_its_policy_already() {
        let refused = Cli::try_parse_from([
            "holdfast",
            "run",
            "--session",
            "a",
            "--size",
            "1M",
            "--",
            "true",
        ]);
        assert!(refused.is_err());
    }
}
