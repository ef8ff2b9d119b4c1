//! The connections to the kernel: the one that serves the path, and those before it on which
//! something is open still.
//!
//! It must never end one that still serves: whoever has a directory open on it would lose it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_fs::fuse::{Connection, Features};
use holdfast_fs::tempfs::{Commons, TempFs};
use rustix::io::Errno;
use tokio::sync::mpsc::UnboundedSender;

use super::event::{Event, start, system};
use super::restore::Lasting;
use crate::fault::Fault;

/// One thread is fastest for one client, and a second one helps where there are more.
const THREADS: usize = 2;

/// There may be this many: all but one are there because somebody has something open on them.
const MOST: usize = 32;

/// The connections, by the keeper's numbers.
pub(super) struct Connections {
    commons: Arc<Commons>,
    happened: UnboundedSender<Event>,
    /// What counts them, beyond this daemon where the store outlives it.
    lasting: Lasting,
    /// Each with its epoch.
    open: BTreeMap<u64, (u64, Arc<TempFs>)>,
}

impl Connections {
    pub(super) const fn new(
        commons: Arc<Commons>,
        lasting: Lasting,
        happened: UnboundedSender<Event>,
    ) -> Self {
        Self { commons, happened, lasting, open: BTreeMap::new() }
    }

    /// Shakes hands on a connection and serves it on threads of its own; its epoch, and what the
    /// kernel offers on it.
    pub(super) fn open(&mut self, number: u64, device: OwnedFd) -> Result<(u64, Features), Fault> {
        if self.open.len() >= MOST {
            let limit = "connections on which something is open still".to_owned();
            return Err(Fault::LimitReached { limit, value: MOST as u64 });
        }
        let refused = |step| move |errno| Fault::System { step, errno };
        let records = TempFs::records().map_err(refused("make the file of inode records"))?;
        let fs = TempFs::new(records, Arc::clone(&self.commons)).map_err(|errno| match errno {
            Errno::FBIG => Fault::System {
                step: "make the file of inode records, larger than the hard limit of file sizes",
                errno,
            },
            errno => refused("map the inode records")(errno),
        })?;
        let fs = Arc::new(fs);
        let epoch = self.lasting.begin_epoch();
        let connection = Connection::open(device, Arc::clone(&fs), THREADS)
            .map_err(|error| system("shake hands with the kernel", &error))?;
        let features = connection.features();
        self.commons.join(Arc::clone(&fs));
        let ended = self.happened.clone();
        let started = start("fuse", move || {
            let end = connection.run();
            let _ = ended.send(Event::ConnectionEnded(number, end));
        });
        if let Err(fault) = started {
            self.commons.leave(&fs);
            return Err(fault);
        }
        self.open.insert(number, (epoch, fs));
        Ok((epoch, features))
    }

    /// A connection has ended; which epoch that was.
    pub(super) fn ended(&mut self, number: u64) -> Option<u64> {
        let (epoch, fs) = self.open.remove(&number)?;
        self.commons.leave(&fs);
        Some(epoch)
    }
}
