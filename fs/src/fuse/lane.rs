//! Threads for requests that take long, so that those who read requests have none of them: one
//! program that fills or empties a huge file must not make all others wait.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Enough that two slow stores, or users, don't wait for each other.
const THREADS: usize = 2;

type Work = Box<dyn FnOnce() + Send>;

/// The threads; they end with this value.
pub(super) struct Lane(Sender<Work>);

impl Lane {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..THREADS {
            let receiver = Arc::clone(&receiver);
            let name = format!("fuse-long-{number}");
            thread::Builder::new().name(name).spawn(move || serve(&receiver))?;
        }
        Ok(Self(sender))
    }

    /// Does the work there if it is `heavy`, and at once if it isn't.
    pub(super) fn run_if(&self, heavy: bool, work: impl FnOnce() + Send + 'static) {
        if !heavy {
            return work();
        }
        if let Err(refused) = self.0.send(Box::new(work)) {
            (refused.0)();
        }
    }
}

fn serve(receiver: &Mutex<Receiver<Work>>) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(work) => work(),
            Err(_) => return,
        }
    }
}
