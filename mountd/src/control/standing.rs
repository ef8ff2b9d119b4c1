//! How the namespace stands at the moment that somebody wants a lease.
//!
//! The keeper knows, since it looks after the mount; so it is asked each time, and nothing that it
//! said before is an answer. It must never be waited for without an end.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::watch;

use crate::fault::{Fault, FaultReport};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long where it is known that something is wrong: the keeper may be busy with that, and about
/// to have mended it.
const HASTE: Duration = Duration::from_secs(2);

/// What the keeper said last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    /// The last question that it has answered.
    asked: u64,
    fault: Option<FaultReport>,
}

/// How the namespace stands, as far as the keeper has told.
pub(crate) struct Standing {
    ask: Box<dyn Fn(u64)>,
    /// The last question that was asked.
    asked: Cell<u64>,
    /// The last one that somebody waits for: the keeper gets no second one before it has answered.
    wanted: Cell<u64>,
    told: watch::Sender<Told>,
}

impl Standing {
    /// Nothing is known to be wrong. `ask` sends a question with its number to the keeper.
    pub(crate) fn new(ask: impl Fn(u64) + 'static) -> Self {
        let (asked, wanted) = (Cell::new(0), Cell::new(0));
        Self { ask: Box::new(ask), asked, wanted, told: watch::Sender::default() }
    }

    /// The keeper has said how things stand; `asked` is the last question that this answers.
    pub(crate) fn told(&self, asked: u64, fault: Option<FaultReport>) {
        self.told.send_replace(Told { asked, fault });
        self.ask_next();
    }

    /// Asks what somebody waits for, where nothing is being asked.
    fn ask_next(&self) {
        let (asked, wanted) = (self.asked.get(), self.wanted.get());
        if wanted > asked && self.told.borrow().asked >= asked {
            self.asked.set(wanted);
            (self.ask)(wanted);
        }
    }

    /// What is known to be wrong.
    pub(super) fn fault(&self) -> Option<FaultReport> {
        self.told.borrow().fault.clone()
    }

    /// Asks the keeper.
    ///
    /// # Errors
    /// Why no lease can be had at this moment.
    pub(super) async fn check(&self) -> Result<(), FaultReport> {
        // An answer that is under way may be older than the request.
        let number = self.asked.get() + 1;
        let mut told = self.told.subscribe();
        self.wanted.set(number);
        self.ask_next();
        let known = self.fault();
        let patience = if known.is_some() { HASTE } else { PATIENCE };
        let answered = told.wait_for(|told| told.asked >= number);
        match tokio::time::timeout(patience, answered).await {
            Ok(Ok(told)) => told.fault.clone().map_or(Ok(()), Err),
            // Nothing else can be said than what was said before.
            Ok(Err(_)) | Err(_) => Err(self.fault().unwrap_or_else(|| {
                let socket = std::path::PathBuf::from("the keeper, which looks after the mount");
                Fault::DaemonUnresponsive { socket, waited: PATIENCE }.report()
            })),
        }
    }
}

impl std::fmt::Debug for Standing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Standing")
            .field("told", &*self.told.borrow())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;
    use std::rc::Rc;

    use super::*;

    fn fault() -> FaultReport {
        Fault::MountDetached { mountpoint: PathBuf::from("/m") }.report()
    }

    fn standing() -> (Rc<RefCell<Vec<u64>>>, Standing) {
        let asked = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&asked);
        (asked, Standing::new(move |number| seen.borrow_mut().push(number)))
    }

    #[tokio::test(start_paused = true)]
    async fn each_question_is_asked_anew() {
        let (asked, standing) = standing();
        let answer = |fault| async {
            tokio::task::yield_now().await;
            let number = *asked.borrow().last().expect("asked");
            standing.told(number, fault);
        };
        let (first, ()) = tokio::join!(standing.check(), answer(None));
        assert_eq!(first, Ok(()));
        let (second, ()) = tokio::join!(standing.check(), answer(Some(fault())));
        assert_eq!(second, Err(fault()));
        let (third, ()) = tokio::join!(standing.check(), answer(None));
        assert_eq!(third, Ok(()));
        assert_eq!(*asked.borrow(), [1, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_meanwhile_share_the_next_question() {
        let (asked, standing) = standing();
        let answer = async {
            tokio::task::yield_now().await;
            assert_eq!(*asked.borrow(), [1]);
            standing.told(1, Some(fault()));
            assert_eq!(*asked.borrow(), [1, 2]);
            tokio::task::yield_now().await;
            standing.told(2, None);
        };
        let (first, second, third, ()) =
            tokio::join!(standing.check(), standing.check(), standing.check(), answer);
        assert_eq!((first, second, third), (Err(fault()), Ok(()), Ok(())));
        assert_eq!(*asked.borrow(), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_is_none() {
        let (_, standing) = standing();
        standing.told(0, None);
        assert_eq!(standing.check().await.expect_err("no answer").code, "daemon-unresponsive");
        standing.told(0, Some(fault()));
        assert_eq!(standing.check().await, Err(fault()));
    }
}
