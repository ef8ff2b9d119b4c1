//! Leases with the records that they keep.
//!
//! It must never decide by a record: it is what a client says.

use holdfast_fs::registry::Peer;

use super::{Declined, Dispatch};
use crate::control::show::receipt;
use crate::control::wire;

impl Dispatch {
    /// Has a lease that has not ended keep a record.
    pub(super) fn qualify(&self, asked: wire::Qualify) -> Result<wire::Nothing, Declined> {
        let namespace = &self.state.namespace;
        let lease = namespace.check_lease(&self.peer, &asked.lease)?;
        let everybody = Peer { uid: 0, ..self.peer };
        let lives = |id: &str| namespace.check_lease(&everybody, id).is_ok();
        let mut records = self.state.records.borrow_mut();
        records.keep(lease.id.to_string(), lease.uid, *asked.record, lives)?;
        Ok(wire::Nothing {})
    }

    pub(super) fn check_lease(&self, lease: &str) -> Result<wire::ShownLease, Declined> {
        let view = self.state.namespace.check_lease(&self.peer, lease)?;
        let lease = self.state.show().lease(&view);
        let qualification = self.state.records.borrow().of(&lease.id);
        Ok(wire::ShownLease { lease, qualification })
    }

    pub(super) fn release_lease(&self, lease: &str) -> Result<wire::ReleasedLease, Declined> {
        let mut receipt = receipt(&self.state.namespace.release_lease(&self.peer, lease)?);
        receipt.qualification = self.state.records.borrow().of(&receipt.lease);
        Ok(wire::ReleasedLease { receipt })
    }
}
