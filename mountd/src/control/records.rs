//! The records of examinations that leases keep: in the memory of the control plane alone, since
//! nothing is decided by them.
//!
//! It must never hold more than its bounds, nor must one user's records drive out another's.

use std::collections::BTreeMap;

use super::wire::Qualification;
use crate::fault::Fault;

/// Bytes of one record. An honest one with long paths has a few thousand.
pub(super) const LONGEST: usize = 16 * 1024;
/// Records of one user.
const MOST_OF_UID: usize = 1024;
/// Records of all users.
const MOST: usize = 4096;

/// What is kept, by the lease's id.
#[derive(Debug, Default)]
pub(super) struct Records {
    of: BTreeMap<String, Kept>,
}

#[derive(Debug)]
struct Kept {
    uid: u32,
    record: Qualification,
}

impl Records {
    /// Keeps a record for a lease of a user. Those of leases that have ended stay for whoever asks
    /// for the receipt, until there is no more room: `lives` tells them apart.
    ///
    /// # Errors
    /// Where the record is too long, or there are as many as there may be.
    pub(super) fn keep(
        &mut self,
        lease: String,
        uid: u32,
        record: Qualification,
        lives: impl Fn(&str) -> bool,
    ) -> Result<(), Fault> {
        let length = serde_json::to_vec(&record).map_or(usize::MAX, |text| text.len());
        if length > LONGEST {
            let reason = format!("`record` has more than {LONGEST} bytes");
            return Err(Fault::RequestInvalid { reason });
        }
        if !self.of.contains_key(&lease) && self.full(uid).is_some() {
            self.of.retain(|lease, _| lives(lease));
            if let Some((limit, value)) = self.full(uid) {
                let value = u64::try_from(value).unwrap_or(u64::MAX);
                return Err(Fault::LimitReached { limit: limit.to_owned(), value });
            }
        }
        self.of.insert(lease, Kept { uid, record });
        Ok(())
    }

    /// What a lease keeps.
    pub(super) fn of(&self, lease: &str) -> Option<Qualification> {
        self.of.get(lease).map(|kept| kept.record.clone())
    }

    /// The limit that is reached for this user.
    fn full(&self, uid: u32) -> Option<(&'static str, usize)> {
        if self.of.len() >= MOST {
            return Some(("qualification records", MOST));
        }
        let own = self.of.values().filter(|kept| kept.uid == uid).count();
        (own >= MOST_OF_UID).then_some(("qualification records per uid", MOST_OF_UID))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qualify;

    fn keep(records: &mut Records, number: usize, uid: u32, alive: bool) -> Result<(), Fault> {
        let record = qualify::refused("store-full");
        records.keep(format!("lease-{number}"), uid, record, |_| alive)
    }

    #[test]
    fn the_last_record_of_a_lease_stands() {
        let mut records = Records::default();
        assert_eq!(records.of("lease-1"), None);
        keep(&mut records, 1, 7, true).expect("kept");
        records.keep("lease-1".into(), 7, qualify::refused("stopping"), |_| true).expect("kept");
        let kept = records.of("lease-1").expect("kept");
        assert_eq!(kept.fault.as_deref(), Some("stopping"));
    }

    #[test]
    fn records_of_ended_leases_make_room_and_others_do_not() {
        let mut records = Records::default();
        for number in 0..MOST_OF_UID {
            keep(&mut records, number, 7, true).expect("there is room");
        }
        let refused = keep(&mut records, MOST_OF_UID, 7, true).expect_err("no more");
        assert_eq!(refused.code(), "limit-reached");
        keep(&mut records, 0, 7, true).expect("it has its place");
        keep(&mut records, 2 * MOST_OF_UID, 8, true).expect("another user's room");
        keep(&mut records, MOST_OF_UID, 7, false).expect("the others have ended");
        assert_eq!(records.of("lease-0"), None);
    }

    #[test]
    fn a_record_has_a_longest() {
        let mut record = qualify::refused("store-full");
        record.path = Some("x".repeat(LONGEST));
        let refused = Records::default().keep("l".into(), 7, record, |_| true);
        assert_eq!(refused.expect_err("too long").code(), "request-invalid");
    }
}
