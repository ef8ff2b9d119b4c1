//! `holdfast serve`, and what only the keeper starts.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::RawFd;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::Outcome;
use super::args::ServeArgs;
use super::output::Output;
use crate::config::{Flags, Host, Settings};
use crate::control::client::Client;
use crate::control::wire;
use crate::fault::{Fault, FaultReport};
use crate::keeper::{self, Serving};
use crate::mount::answer_probe;
use crate::{sys, worker};

#[derive(Serialize)]
struct Answer<'a> {
    mountpoint: &'a Path,
    socket: &'a Path,
    already: bool,
}

/// Serves until told to stop.
pub(crate) fn run(socket: Option<&Path>, args: &ServeArgs, output: Output) -> Outcome {
    let mut ready = args.ready_fd.map(Ready::new).transpose()?;
    let served = serve(socket, args, output, &mut ready);
    if let (Err(report), Some(ready)) = (&served, ready) {
        ready.fault(report);
    }
    served.map(|()| ExitCode::SUCCESS)
}

fn serve(
    socket: Option<&Path>,
    args: &ServeArgs,
    output: Output,
    ready: &mut Option<Ready>,
) -> Result<(), FaultReport> {
    let host = Host::ask()?;
    let flags = Flags {
        mountpoint: args.mountpoint.clone(),
        socket: socket.map(Path::to_owned),
        store: args.store.clone(),
        idle_exit: args.idle_exit,
        total: args.total,
        context: args.context.clone(),
    };
    let settings = Settings::read(host, flags)?;
    keeper::serve(host, &settings, |serving| {
        announce(serving, output);
        if serving.already {
            compare(serving, &settings, output);
        }
        if let Some(ready) = ready.take() {
            ready.serving();
        }
    })
}

fn announce(serving: &Serving, output: Output) {
    let Serving { mountpoint, socket, already } = serving;
    output.answer(&Answer { mountpoint, socket, already: *already }, |_| {
        let verb = if *already { "already serves" } else { "serves" };
        format!("holdfast {verb} {} at {}", mountpoint.display(), socket.display())
    });
}

/// Says where the daemon that was there isn't what was asked for.
fn compare(serving: &Serving, settings: &Settings, output: Output) {
    let described = Client::connect(&serving.socket);
    let described = described.and_then(|mut client| client.call(&wire::Describe {}));
    let (asked, Ok(found)) = (settings.store.to_string(), described) else { return };
    if found.store != asked {
        let found = found.store;
        output.warn(&format!("it keeps files in {found}, not in {asked} as was asked for here"));
    }
}

/// The descriptor on which whoever started the daemon waits.
struct Ready(File);

impl Ready {
    fn new(descriptor: RawFd) -> Result<Self, Fault> {
        let descriptor = sys::inherited(descriptor).map_err(|errno| Fault::SettingsInvalid {
            place: "--ready-fd".to_owned(),
            reason: errno.to_string(),
        })?;
        Ok(Self(File::from(descriptor)))
    }

    // Whoever has left doesn't wait any more.

    fn serving(mut self) {
        let _ = self.0.write_all(b"\n");
    }

    fn fault(mut self, report: &FaultReport) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            let _ = self.0.write_all(&line);
        }
    }
}

/// The keeper's other half.
pub(crate) fn worker() -> Outcome {
    Ok(worker::run())
}

/// Asks a mount whether anybody serves it.
pub(crate) fn probe() -> Outcome {
    Ok(answer_probe())
}
