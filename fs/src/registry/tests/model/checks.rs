//! What has to hold after each step, and at the end of everything.
//!
//! It must never change the model but by taking steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::super::super::*;
use super::super::desk::*;
use super::world::Model;
use super::{PROCESSES, Step};
use crate::saved::record::{Lasting, read};

impl Model {
    /// The effects since the last step keep their promises.
    pub(super) fn check_effects(&mut self) -> Result<(), TestCaseError> {
        for effect in self.desk.followed() {
            match effect {
                Effect::LeaseEnded { lease, .. } => prop_assert!(self.ended.contains(&lease)),
                Effect::Drain(key) => {
                    prop_assert!(self.drained.insert(key), "drained twice");
                    let leased = self.sessions.values().any(|session| {
                        session
                            .generations
                            .iter()
                            .any(|(number, (there, _))| *there == key && session.leased(*number))
                    });
                    prop_assert!(!leased, "a leased generation was given away");
                }
                Effect::LowerSession(id) => prop_assert!(self.lowered.contains(&id)),
                Effect::Watch(process) => prop_assert!(self.watched.insert(process)),
                Effect::Unwatch(process) => prop_assert!(self.watched.remove(&process)),
            }
        }
        Ok(())
    }

    /// The registry shows what the model says.
    pub(super) fn check(&self) -> Result<(), TestCaseError> {
        let root = peer(0, 1);
        let views = self.desk.registry.sessions(&root);
        let ids: Vec<_> = views.iter().map(|view| view.id).collect();
        prop_assert_eq!(ids, self.sessions.keys().copied().collect::<Vec<_>>());
        let mut watched = BTreeSet::new();
        let mut draining = BTreeSet::new();
        for view in &views {
            let session = &self.sessions[&view.id];
            prop_assert_eq!(view.sealed, session.sealed);
            prop_assert_eq!(view.active, session.active);
            let holders: Vec<_> = view.tokens.iter().map(|token| token.holder).collect();
            prop_assert_eq!(holders, session.tokens.values().copied().collect::<Vec<_>>());
            let shown: BTreeMap<_, _> = view
                .generations
                .iter()
                .map(|generation| (generation.number, (generation.key, generation.retired)))
                .collect();
            prop_assert_eq!(&shown, &session.generations);
            for (key, _) in session.generations.values().filter(|(_, retired)| *retired) {
                let given = self.drained.contains(key);
                let due = session.drains().any(|drains| drains == *key);
                prop_assert_eq!(given, due, "retired: drained if and only if not leased");
            }
            draining.extend(session.drains());
            watched.extend(session.tokens.values().filter_map(|holder| match holder {
                Holder::Process(process) => Some(*process),
                Holder::Linger { .. } => None,
            }));
            watched.extend(session.leases.values().filter_map(|lease| match lease.binding {
                Binding::Process(process) => Some(process),
                Binding::Connection(_) => None,
                Binding::Unbound => {
                    Some(lease.asked_by).filter(|process| !self.dead.contains(process))
                }
            }));
        }
        let generations = || views.iter().flat_map(|view| &view.generations);
        let counts = Counts {
            sessions: views.len(),
            sealed: views.iter().filter(|view| view.sealed).count(),
            generations: generations().count(),
            retired: generations().filter(|generation| generation.retired).count(),
            leases: views.iter().map(|view| view.leases).sum(),
            tokens: views.iter().map(|view| view.tokens.len()).sum(),
            processes: watched.len(),
        };
        prop_assert_eq!(self.desk.registry.counts(), counts);
        let leases: BTreeMap<_, _> = self
            .desk
            .registry
            .leases(&root)
            .iter()
            .map(|lease| (lease.id, (lease.session, lease.generation, lease.binding)))
            .collect();
        let expected: BTreeMap<_, _> = self
            .sessions
            .iter()
            .flat_map(|(id, session)| {
                session
                    .leases
                    .iter()
                    .map(|(lease, model)| (*lease, (*id, model.generation, model.binding)))
            })
            .collect();
        prop_assert_eq!(leases, expected);
        let registry = &self.desk.registry;
        prop_assert_eq!(registry.draining().into_iter().collect::<BTreeSet<_>>(), draining);
        prop_assert_eq!(registry.watched().into_iter().collect::<BTreeSet<_>>(), watched.clone());
        prop_assert_eq!(&self.watched, &watched);
        Ok(())
    }

    /// What is kept is all there is, and a registry that goes on with it is the same but for what
    /// has ended.
    pub(super) fn check_kept(&mut self) -> Result<(), TestCaseError> {
        self.keep_changes();
        let kept = self.kept.values().map(|(lasting, passing)| {
            read::<Lasting>(lasting).unwrap().join(Some(read(passing).unwrap()))
        });
        let registry = &self.desk.registry;
        let first = GenerationKey::FIRST;
        let again = Registry::of_kept(Bounds::default(), first, kept.collect()).unwrap();
        prop_assert_eq!(&again.sessions, &registry.sessions);
        prop_assert_eq!(&again.index, &registry.index);
        let used = registry.index.generations() > 0;
        prop_assert!(!used || again.next_key <= registry.next_key);
        Ok(())
    }

    /// When everybody is dead and everything drained, nothing is left.
    pub(super) fn end(&mut self) -> Result<(), TestCaseError> {
        for slot in 0..PROCESSES {
            self.take(&Step::Dies { slot })?;
        }
        for connection in 0..2 {
            self.take(&Step::Disconnects { connection })?;
        }
        self.settle();
        // Only unbound leases of sessions that linger are left: they are given back.
        for (id, lease) in self.leases() {
            self.desk.give_back(&self.stranger(), lease).unwrap();
            self.session(id).leases.remove(&lease);
            self.ended.push(lease);
        }
        self.desk.now = self.desk.now.after(Duration::from_secs(1000));
        self.desk.tick();
        for key in self.desk.registry.draining() {
            prop_assert!(self.desk.drained(key));
        }
        prop_assert_eq!(self.desk.registry.counts(), Counts::default());
        Ok(())
    }
}
