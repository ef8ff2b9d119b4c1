//! What is asked of the books as of a ground and a ledger.
//!
//! It must never do more than a ground would.

use super::*;

impl Ground for Books {
    fn holds_limits(&self) -> bool {
        !self.open().boundless
    }

    fn grain(&self) -> u64 {
        1
    }

    fn raise_session(&self, session: &SessionId, owner: Owner) -> Result<u64, GroundError> {
        let mut pages = self.open();
        let inode = pages.step(Step::Session)?;
        assert!(pages.sessions.insert(*session, owner).is_none(), "a session raised twice");
        Ok(inode)
    }

    fn raise_generation(
        &self,
        session: &SessionId,
        number: u32,
        key: GenerationKey,
        room: Room,
        owner: Owner,
    ) -> Result<u64, GroundError> {
        let mut pages = self.open();
        let inode = pages.step(Step::Generation)?;
        assert!(pages.sessions.contains_key(session), "a generation without its session");
        let tree = Tree { session: *session, number, room, owner, leases: BTreeSet::new() };
        pages.disk.insert(key, (inode, tree.clone()));
        assert!(pages.trees.insert(key, tree).is_none(), "a generation raised twice");
        Ok(inode)
    }

    fn raise_lease(
        &self,
        key: GenerationKey,
        lease: &LeaseId,
        _owner: Owner,
    ) -> Result<u64, GroundError> {
        let mut pages = self.open();
        let inode = pages.step(Step::Lease)?;
        assert!(!pages.draining.contains_key(&key), "a lease on what was given away");
        let tree = pages.trees.get_mut(&key).expect("a lease is on a generation");
        assert!(tree.leases.insert(*lease), "a lease raised twice");
        let (_, tree) = pages.disk.get_mut(&key).expect("what is raised is on the disk");
        tree.leases.insert(*lease);
        Ok(inode)
    }

    fn take_back_lease(&self, key: GenerationKey, lease: &LeaseId) {
        assert!(self.end_lease(key, lease).is_some());
        let mut pages = self.open();
        pages.ended.remove(lease);
        let (_, tree) = pages.disk.get_mut(&key).expect("what is raised is on the disk");
        assert!(tree.leases.remove(lease), "a lease taken back twice");
    }

    fn restore_session(
        &self,
        session: &SessionId,
        owner: Owner,
        inode: u64,
    ) -> Result<(), GroundError> {
        let mut pages = self.open();
        pages.step(Step::Session)?;
        pages.inodes = pages.inodes.max(inode);
        assert!(pages.sessions.insert(*session, owner).is_none(), "a session restored twice");
        Ok(())
    }

    fn restore_generation(
        &self,
        session: &SessionId,
        number: u32,
        key: GenerationKey,
        inode: u64,
    ) -> Result<Found, GroundError> {
        let mut pages = self.open();
        pages.step(Step::Generation)?;
        assert!(pages.sessions.contains_key(session), "a generation without its session");
        let found = pages.disk.get(&key).filter(|(there, _)| *there == inode);
        let Some((_, tree)) = found.cloned() else {
            return Ok(Found::Missing("it isn't there"));
        };
        assert_eq!((tree.session, tree.number), (*session, number));
        let tree = Tree { leases: BTreeSet::new(), ..tree };
        assert!(pages.trees.insert(key, tree).is_none(), "a generation restored twice");
        Ok(Found::Whole)
    }

    fn restore_lease(
        &self,
        key: GenerationKey,
        lease: &LeaseId,
        _inode: u64,
    ) -> Result<Found, GroundError> {
        let mut pages = self.open();
        pages.step(Step::Lease)?;
        if !pages.disk[&key].1.leases.contains(lease) {
            return Ok(Found::Missing("it isn't there"));
        }
        let tree = pages.trees.get_mut(&key).expect("a lease is on a generation");
        assert!(tree.leases.insert(*lease), "a lease restored twice");
        Ok(Found::Whole)
    }

    fn end_lease(&self, key: GenerationKey, lease: &LeaseId) -> Option<u64> {
        let mut pages = self.open();
        let tree = pages.trees.get_mut(&key).expect("a lease ends before its generation");
        assert!(tree.leases.remove(lease), "a lease ended twice");
        pages.ended.insert(*lease, key);
        Some(1)
    }

    fn drain(&self, key: GenerationKey, gone: Gone, stuck: Stuck) {
        let mut pages = self.open();
        let tree = pages.trees.get(&key).expect("only what is there is drained");
        assert!(tree.leases.is_empty(), "a leased generation was given away");
        assert!(pages.draining.insert(key, gone).is_none(), "a generation drained twice");
        pages.stuck.insert(key, stuck);
    }

    fn lower_session(&self, session: &SessionId) {
        let mut pages = self.open();
        assert!(pages.sessions.remove(session).is_some(), "a session lowered twice");
        assert!(pages.trees.values().all(|tree| tree.session != *session), "it has generations");
    }

    fn resize(&self, key: GenerationKey, room: Room) -> Result<(), GroundError> {
        let mut pages = self.open();
        pages.step(Step::Resize)?;
        if let Some(tree) = pages.trees.get_mut(&key) {
            tree.room = room;
        }
        Ok(())
    }

    fn used(&self, key: GenerationKey) -> Result<Usage, GroundError> {
        let mut pages = self.open();
        pages.step(Step::Used)?;
        Ok(pages.used.get(&key).copied().unwrap_or_default())
    }

    fn is_written(&self, key: GenerationKey, take_note: bool) -> bool {
        let mut pages = self.open();
        if take_note { pages.written.remove(&key) } else { pages.written.contains(&key) }
    }

    fn sweep_lease(
        &self,
        key: GenerationKey,
        lease: &LeaseId,
        inode: u64,
        sweep: bool,
    ) -> Result<Remains, GroundError> {
        let mut pages = self.open();
        assert!(!pages.trees[&key].leases.contains(lease), "a lease was swept that has not ended");
        assert_eq!((pages.ended.get(lease), inode), (Some(&key), 1));
        let usage = Usage { bytes: 10, inodes: 1 };
        Ok(if pages.in_use.contains(lease) {
            Remains::InUse(usage)
        } else if sweep {
            pages.ended.remove(lease);
            Remains::Swept(usage)
        } else {
            Remains::Unused(usage)
        })
    }

    fn unclaimed(
        &self,
        first: GenerationKey,
        claimed: &dyn Fn(GenerationKey) -> bool,
    ) -> Result<Vec<Unclaimed>, GroundError> {
        let unclaimed = self.open().unclaimed.clone();
        let is_left = |found: &Unclaimed| found.key < first && !claimed(found.key);
        Ok(unclaimed.into_iter().filter(is_left).collect())
    }

    fn sweep_generation(&self, key: GenerationKey) -> Result<(), GroundError> {
        let mut pages = self.open();
        assert!(!pages.trees.contains_key(&key), "a generation was swept that is a session's");
        pages.unclaimed.retain(|found| found.key != key);
        Ok(())
    }
}

impl Ledger for Books {
    fn keep(&self, session: &SessionRecord) -> Result<(), GroundError> {
        let mut pages = self.open();
        pages.step(Step::Keep)?;
        pages.kept.insert(session.id(), session.clone());
        Ok(())
    }

    fn strike(&self, session: SessionId) -> Result<(), GroundError> {
        let mut pages = self.open();
        pages.step(Step::Keep)?;
        pages.kept.remove(&session);
        Ok(())
    }
}
