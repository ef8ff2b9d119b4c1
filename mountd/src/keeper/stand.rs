//! Keeps the mount and the socket in place while the worker serves.
//!
//! What is to be done the supervisor decides. Nothing here waits for a path below the mount, nor
//! looks again and again where nothing has changed.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use super::seat::Seat;
use super::{Event, Keeper, Stopped, system, worker_failed};
use crate::channel::{Change, ToKeeper, ToWorker};
use crate::config::Settings;
use crate::fault::{Fault, FaultReport};
use crate::mount::watch::Watch;
use crate::supervisor::{Action, Note, Seen, Sight, Supervisor};

/// How soon it is tried again at the soonest, where nothing tells that something has changed.
const AGAIN: Duration = Duration::from_secs(1);
/// How often it is looked anew before something else has its turn.
const STEPS: usize = 8;

/// How the mount and the socket stand, and who wants to know.
pub(super) struct Stand<'a> {
    settings: &'a Settings,
    seat: &'a mut Seat,
    supervisor: Supervisor,
    table: Watch,
    /// Whether the connection that serves still is one.
    connected: bool,
    /// Since when the namespace is away from its path.
    away: Option<Instant>,
    /// The last question that was asked, and the last one that was answered.
    asked: u64,
    answered: u64,
    /// What the worker was told last.
    told: Option<FaultReport>,
    /// Until when nothing is tried, since the worker could not serve what was begun.
    rests_until: Option<Instant>,
    /// Why the lost socket could not be bound anew, as far as that was told.
    unbound: Option<String>,
}

impl<'a> Stand<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        seat: &'a mut Seat,
        supervisor: Supervisor,
    ) -> Result<Self, FaultReport> {
        let table = Watch::new().map_err(|error| system("watch the table of mounts", &error))?;
        Ok(Self {
            settings,
            seat,
            supervisor,
            table,
            connected: true,
            away: None,
            asked: 0,
            answered: 0,
            told: None,
            rests_until: None,
            unbound: None,
        })
    }

    /// What tells that something may have changed: the table of mounts, and the socket's directory.
    pub(super) fn watched(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.table.as_fd()), Some(self.seat.watch())]
    }
}

impl Keeper {
    /// Keeps what was put up in place, until there is a reason to stop.
    pub(super) fn stand(&mut self, mut stand: Stand<'_>) -> Result<Stopped, FaultReport> {
        loop {
            self.settle(&mut stand);
            let end = (!stand.supervisor.is_content()).then(|| Instant::now() + AGAIN);
            match self.next(Some(&stand), end)? {
                Event::Said(ToKeeper::Stop(why)) => return Ok(Stopped::Worker(why)),
                Event::Said(ToKeeper::Failed(report)) => return Err(report),
                Event::Said(ToKeeper::Look { asked }) => stand.asked = asked,
                Event::Said(ToKeeper::Ready { number }) if number == self.number => {
                    stand.connected = true;
                    stand.supervisor.connected();
                }
                Event::Said(ToKeeper::Unfit { number, report }) if number == self.number => {
                    stand.connected = false;
                    if self.hold.has_ended() {
                        // Somebody was quicker than the worker; that is nothing of its own.
                        stand.supervisor.broken_off();
                    } else {
                        stand.rests_until = Some(Instant::now() + AGAIN);
                        self.refused(&mut stand, &report);
                    }
                    // Nobody serves it: whoever has met it at the path gets an error at once.
                    self.hold.close_connection();
                }
                Event::Said(ToKeeper::Ended { number }) => {
                    stand.connected &= number != self.number;
                }
                Event::Said(message) => tracing::warn!(?message, "out of turn"),
                Event::Ended(status) => return Err(worker_failed(status).into()),
                Event::Signal(number) => return Ok(Stopped::Signal(number)),
                Event::Stirred | Event::Late => {}
            }
        }
    }

    /// Looks, and does what is to be done, until nothing is.
    fn settle(&mut self, stand: &mut Stand<'_>) {
        // Before looking, so that nothing that comes after it is missed.
        stand.seat.seen();
        for _ in 0..STEPS {
            let path = self.hold.see();
            // The worker may not have noticed yet.
            let connected = stand.connected && self.hold.is_connected(&path);
            let (attachable, socket) = (self.hold.is_attachable(), stand.seat.is_found());
            let seen = Seen { connected, attachable, path, socket };
            let rests = stand.rests_until.is_some_and(|until| Instant::now() < until);
            if rests && seen.path == Sight::Free {
                break;
            }
            let actions = stand.supervisor.step(&seen);
            let (mut done, mut refused) = (false, false);
            for action in actions {
                match self.act(stand, action) {
                    Ok(did) => done |= did,
                    Err(fault) => {
                        self.refused(stand, &fault.report());
                        refused = true;
                    }
                }
            }
            if refused || !done {
                break;
            }
        }
        self.answer(stand);
    }

    /// Carries one action out; whether there is something new to be seen.
    fn act(&mut self, stand: &mut Stand<'_>, action: Action) -> Result<bool, Fault> {
        match action {
            Action::Note(note) => {
                self.note(stand, note);
                return Ok(false);
            }
            Action::PutBack => {
                self.check_place(stand.seat)?;
                self.hold.attach()?;
            }
            Action::ClearAway => self.hold.clear_away()?,
            Action::Renew => {
                self.check_place(stand.seat)?;
                self.connect()?;
            }
            Action::BindSocket => {
                if let Err(fault) = stand.seat.take_again(self.host, stand.settings) {
                    // The mount is well all the same.
                    let cause = Some(fault.cause());
                    if stand.unbound != cause {
                        tracing::warn!(cause, "the lost socket can't be bound anew");
                        stand.unbound = cause;
                    }
                    return Ok(false);
                }
                stand.unbound = None;
                if let Some(worker) = &self.worker {
                    worker.tell(&ToWorker::Listen, &[stand.seat.listener()]);
                }
                tracing::warn!("the socket was lost, and is bound anew");
                self.tell(&ToWorker::Happened(Change::SocketBound));
            }
        }
        Ok(true)
    }

    /// Checks the path for a mount that is to go there, and keeps in mind what was made for it.
    fn check_place(&mut self, seat: &mut Seat) -> Result<(), Fault> {
        self.hold.check(|_| false)?;
        seat.remember_made(self.hold.made());
        Ok(())
    }

    fn refused(&self, stand: &mut Stand<'_>, report: &FaultReport) {
        for action in stand.supervisor.refused(report, stand.connected) {
            if let Action::Note(note) = action {
                self.note(stand, note);
            }
        }
    }

    /// Tells the operator, and whoever watches.
    fn note(&self, stand: &mut Stand<'_>, note: Note) {
        let mountpoint = self.hold.path().display();
        let change = match note {
            Note::Detached => {
                tracing::warn!(%mountpoint, "somebody has detached the mount");
                stand.away.get_or_insert_with(Instant::now);
                Change::Detached
            }
            Note::Aborted => {
                tracing::error!(%mountpoint, "somebody has ended the connection to the kernel");
                stand.away.get_or_insert_with(Instant::now);
                Change::Aborted
            }
            Note::Reattached => {
                let took = stand.away.take().map_or(Duration::ZERO, |since| since.elapsed());
                tracing::info!(%mountpoint, ?took, "the same mount is back");
                Change::Reattached { took }
            }
            Note::Remounted => {
                let took = stand.away.take().map_or(Duration::ZERO, |since| since.elapsed());
                tracing::info!(%mountpoint, ?took, "a new mount over the same store is back");
                Change::Remounted { took }
            }
            Note::Raised(report) => {
                let FaultReport { code, message, remedy, cause } = &report;
                let cause = cause.as_deref().unwrap_or(message);
                tracing::error!(%mountpoint, code, cause, remedy, "no lease can be had");
                Change::FaultRaised(report)
            }
            Note::Cleared(code) => {
                tracing::info!(%mountpoint, code, "what was in the way is gone");
                Change::FaultCleared { code }
            }
        };
        self.tell(&ToWorker::Happened(change));
    }

    /// Tells the worker how things stand, where that has changed or was asked. Where the answer is
    /// about to change by itself, whoever asked waits for that.
    fn answer(&self, stand: &mut Stand<'_>) {
        let fault = stand.supervisor.standing();
        if !stand.supervisor.is_in_between() {
            if stand.asked == stand.answered && fault == stand.told {
                return;
            }
            stand.answered = stand.asked;
        } else if fault == stand.told {
            return;
        }
        self.tell(&ToWorker::Stands { asked: stand.answered, fault: fault.clone() });
        stand.told = fault;
    }
}
