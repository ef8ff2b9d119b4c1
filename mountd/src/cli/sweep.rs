//! `holdfast sweep`.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::Outcome;
use super::args::SweepArgs;
use super::output::{Output, ago, bytes, table};
use crate::config::{ClientSocket, Flags, Host, Settings};
use crate::control::client::Client;
use crate::control::wire;
use crate::fault::FaultReport;
use crate::sweep::{self, Kind, Remnant};

/// What is told.
#[derive(Serialize)]
struct Told {
    /// Whether a daemon was there to be asked.
    daemon: bool,
    leftovers: Vec<wire::Leftover>,
    /// What a daemon that is gone has left at the places where one would serve.
    remnants: Vec<Remnant>,
    /// Whether there is more than is told.
    more: bool,
}

/// Shows what is left of what has ended, and sweeps it away unless it is only to be shown.
pub(crate) fn run(socket: Option<&Path>, args: &SweepArgs, output: Output) -> Outcome {
    let host = Host::ask()?;
    let mut told = Told { daemon: false, leftovers: Vec::new(), remnants: Vec::new(), more: false };
    let found = Client::search(&ClientSocket::find(host, socket)?)?;
    if let Ok(mut client) = found {
        // It takes as long as there is much.
        client.set_deadline(None);
        told.daemon = true;
        loop {
            let swept = client.call(&wire::Sweep { dry_run: Some(args.dry_run) })?;
            let done = swept.leftovers.iter().filter(|left| left.swept).count();
            let last = args.dry_run || !swept.more || done == 0;
            if last {
                told.more = swept.more;
                told.leftovers.extend(swept.leftovers);
                break;
            }
            told.leftovers.extend(swept.leftovers.into_iter().filter(|left| left.swept));
        }
    }
    let flags = Flags { socket: socket.map(Path::to_owned), ..Flags::default() };
    let settings = Settings::read(host, flags)?;
    told.remnants = sweep::look(host, &settings);
    let cleared =
        if args.dry_run { Ok(()) } else { sweep::sweep(host, &settings, &mut told.remnants) };
    output.answer(&told, words);
    cleared.map_err(FaultReport::from)?;
    Ok(ExitCode::SUCCESS)
}

fn words(told: &Told) -> String {
    let mut rows: Vec<[String; 6]> = told.leftovers.iter().map(row).collect();
    rows.extend(told.remnants.iter().map(|remnant| {
        let (what, why) = match remnant.kind {
            Kind::StaleMount => ("mount", "nobody serves it"),
            Kind::StaleSocket => ("socket", "nobody listens"),
        };
        let nothing = String::new;
        let path = remnant.path.display().to_string();
        let state = state(false, remnant.swept, false).to_owned();
        [state, what.to_owned(), nothing(), nothing(), path, why.to_owned()]
    }));
    if rows.is_empty() {
        return "nothing is left over".to_owned();
    }
    let mut text = table(["STATE", "WHAT", "SINCE", "HOLDS", "WHERE", "WHY"], &rows);
    if told.more {
        text.push_str("\nthere is more");
    }
    text
}

fn row(left: &wire::Leftover) -> [String; 6] {
    let what = match left.kind {
        wire::LeftoverKind::EndedLease => "lease",
        wire::LeftoverKind::RetiredGeneration | wire::LeftoverKind::UnclaimedGeneration => {
            "generation"
        }
    };
    let holds = match (left.bytes, left.inodes) {
        (Some(size), Some(inodes)) => format!("{}, inodes: {inodes}", bytes(size)),
        _ => String::new(),
    };
    let place = match (&left.path, left.key) {
        (Some(path), _) => path.clone(),
        (None, Some(key)) => format!("{key} in the store"),
        (None, None) => String::new(),
    };
    let why = left.refused.as_ref().unwrap_or(&left.why).clone();
    let state = state(left.busy, left.swept, left.refused.is_some()).to_owned();
    [state, what.to_owned(), left.age_ms.map(ago).unwrap_or_default(), holds, place, why]
}

const fn state(busy: bool, swept: bool, refused: bool) -> &'static str {
    match (swept, busy, refused) {
        (true, _, _) => "swept",
        (false, true, _) => "in use",
        (false, false, true) => "refused",
        (false, false, false) => "left over",
    }
}
