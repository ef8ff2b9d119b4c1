//! Sweeping: on a thread of its own, since it takes as long as what is left over is large.
//!
//! It must never be done twice at a time, nor keep other clients waiting.

use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;

use super::Dispatch;
use crate::control::show::leftover;
use crate::control::wire;
use crate::fault::Fault;

/// How much is told in one answer.
const MOST: usize = 256;

impl Dispatch {
    pub(super) async fn sweep(&self, asked: &wire::Sweep) -> Result<wire::Swept, Fault> {
        self.refuse_while_stopping()?;
        let _alone = self.state.sweeping.lock().await;
        let (namespace, peer) = (Arc::clone(&self.state.namespace), self.peer);
        let sweep = !asked.dry_run.unwrap_or(false);
        let (tell, told) = oneshot::channel();
        let work = move || {
            // Whoever asked may have left.
            let _ = tell.send(namespace.sweep(&peer, sweep, MOST));
        };
        let started = thread::Builder::new().name("sweep".into()).spawn(work);
        let step = "start a thread";
        let system = |errno| Fault::System { step, errno };
        started.map_err(|error| {
            system(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
        })?;
        let (found, more) = told.await.map_err(|_| Fault::Stopping)?;
        let show = self.state.show();
        Ok(wire::Swept { leftovers: found.iter().map(|one| leftover(&show, one)).collect(), more })
    }
}
