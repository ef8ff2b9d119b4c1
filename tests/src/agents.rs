//! A small agent harness: a client of the control socket that does what such programs do.
//!
//! An agent has a session, finds out before each prompt which tools there are, and runs each Bash
//! call under a lease of its own. It must never drop a tool that can't be had from its list: the
//! tool stays there, with the reason.

use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use holdfast::control::client::Client;
use holdfast::control::wire;
use holdfast::fault::FaultReport;

use crate::command::{Program, Running};
use crate::stage::Stage;

/// Whether an agent has a use for Bash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// Without one it can't begin.
    Needed,
    /// It begins without one too, and takes it when it's there.
    Wanted,
    /// It never asks for one.
    Unwanted,
}

/// One line of the list of tools that a model is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tool {
    /// It can be called.
    Ready(&'static str),
    /// It can't be called at present; the code of the fault says why.
    Faulted(&'static str, String),
}

/// The tool that needs no storage.
pub const READ: &str = "Read";
/// The tool that does.
pub const BASH: &str = "Bash";

/// An agent of the user of a stage.
#[derive(Debug)]
pub struct Agent<'a> {
    stage: &'a Stage,
    client: Client,
    shell: Shell,
    /// The id of its session.
    pub session: String,
    token: String,
}

/// A Bash call that goes on.
#[derive(Debug)]
pub struct Call {
    /// The shell.
    pub running: Running,
    /// Its own lease.
    pub lease: wire::Lease,
}

/// A client that the daemon knows as the user of the stage.
///
/// # Errors
///
/// Where no daemon answers there.
pub fn connect(stage: &Stage, socket: &Path) -> anyhow::Result<Client> {
    // The kernel tells whoever connects, and not who asks later.
    stage.user.act(|| Client::connect(socket).map_err(complain))
}

/// A fault where none is expected.
#[must_use]
pub fn complain(report: FaultReport) -> anyhow::Error {
    anyhow!("{}: {} ({:?})", report.code, report.message, report.cause)
}

impl<'a> Agent<'a> {
    /// Opens a session for an agent; where it needs a shell that can't be had, there is no agent,
    /// and why is told.
    ///
    /// # Errors
    ///
    /// Where the daemon can't be asked.
    pub fn begin(
        stage: &'a Stage,
        socket: &Path,
        name: &str,
        shell: Shell,
    ) -> anyhow::Result<Result<Self, FaultReport>> {
        let mut client = connect(stage, socket)?;
        let open = wire::OpenSession { name: Some(name.to_owned()), ..Default::default() };
        let opened = client.call(&open).map_err(complain)?;
        ensure!(!opened.attached, "{name} is somebody else's");
        let (session, token) = (opened.session.id, opened.token);
        let mut agent = Self { stage, client, shell, session, token };
        if shell == Shell::Needed
            && let Err(report) = agent.check()
        {
            agent.end()?;
            return Ok(Err(report));
        }
        Ok(Ok(agent))
    }

    /// The list of tools, as it stands before a prompt.
    pub fn tools(&mut self) -> Vec<Tool> {
        let mut tools = vec![Tool::Ready(READ)];
        if self.shell != Shell::Unwanted {
            tools.push(match self.check() {
                Ok(()) => Tool::Ready(BASH),
                Err(report) => Tool::Faulted(BASH, report.code),
            });
        }
        tools
    }

    fn check(&mut self) -> Result<(), FaultReport> {
        self.client.call(&wire::Check { session: self.session.clone() }).map(drop)
    }

    /// Begins a Bash call under a lease of its own; where no lease can be had, nothing is started,
    /// and why is told.
    ///
    /// # Errors
    ///
    /// Where anything else goes wrong.
    pub fn call(&mut self, script: &str) -> anyhow::Result<Result<Call, FaultReport>> {
        ensure!(self.shell != Shell::Unwanted, "it has no use for a shell");
        let acquire = wire::AcquireLease {
            session: self.session.clone(),
            hold: Some(wire::Hold::Nothing),
            ..Default::default()
        };
        let wire::AcquiredLease { lease, environment, .. } = match self.client.call(&acquire) {
            Ok(acquired) => acquired,
            Err(report) => return Ok(Err(report)),
        };
        // It begins at a word, so that nothing is done before the lease hangs on it.
        let mut program = self.stage.program(Program::bash(&format!("read -r _\n{script}")));
        for (name, value) in &environment {
            program = program.env(name, value);
        }
        let mut running = program.start()?;
        let bind = wire::BindLease { lease: lease.id.clone(), pid: Some(running.id()) };
        let lease = self.client.call(&bind).map_err(complain)?.lease;
        running.say("begin")?;
        Ok(Ok(Call { running, lease }))
    }

    /// Waits for the end of a call, and gives its lease back.
    ///
    /// # Errors
    ///
    /// Where the call failed, or its receipt is another's.
    pub fn finish(&mut self, call: Call) -> anyhow::Result<String> {
        let Call { running, lease } = call;
        let finished = running.finish()?;
        let released = self.client.call(&wire::ReleaseLease { lease: lease.id.clone() });
        let receipt = released.map_err(complain)?.receipt;
        ensure!(receipt.lease == lease.id, "{receipt:?} for {lease:?}");
        finished.success()
    }

    /// Runs a Bash call to its end.
    ///
    /// # Errors
    ///
    /// Where it can't be had, or fails.
    pub fn bash(&mut self, script: &str) -> anyhow::Result<String> {
        let call = self.call(script)?.map_err(complain)?;
        self.finish(call)
    }

    /// How one of its leases stands.
    ///
    /// # Errors
    ///
    /// Where it has ended.
    pub fn lease(&mut self, call: &Call) -> anyhow::Result<wire::Lease> {
        let check = wire::CheckLease { lease: call.lease.id.clone() };
        Ok(self.client.call(&check).map_err(complain)?.lease)
    }

    /// What a harness does when it is loaded anew: it retains its session before it lets it go.
    /// How the session stands afterwards.
    ///
    /// # Errors
    ///
    /// Where the session is not what it was.
    pub fn rebuild(&mut self) -> anyhow::Result<wire::Session> {
        let session = || self.session.clone();
        let retain = wire::RetainSession { session: session(), ..Default::default() };
        let token = self.client.call(&retain).map_err(complain)?.token;
        let before = std::mem::replace(&mut self.token, token);
        let release = wire::ReleaseSession { session: session(), token: before };
        self.client.call(&release).map_err(complain)?;
        let show = wire::ShowSession { session: session() };
        let shown = self.client.call(&show).map_err(complain)?.session;
        ensure!(!shown.sealed && shown.owners.len() == 1, "{shown:?}");
        Ok(shown)
    }

    /// Lets its session go.
    ///
    /// # Errors
    ///
    /// Where it isn't there any more.
    pub fn end(mut self) -> anyhow::Result<()> {
        let release = wire::ReleaseSession { session: self.session, token: self.token };
        let ended = self.client.call(&release).map_err(complain);
        ended.map(drop).context("a session went before its agent")
    }
}
