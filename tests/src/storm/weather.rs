//! What is done to the mount, and when: the only excuse for a failure.
//!
//! It must never excuse what failed while nothing was done.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::GENEROUS;

/// What becomes of what is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// The path is gone; what is open is served.
    Detached,
    /// The connection to the kernel has ended.
    Aborted,
}

/// One thing that was done.
#[derive(Clone, Copy, Debug)]
struct Damage {
    harm: Harm,
    began: Instant,
    /// None while it is being done.
    ended: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    /// How many attacks have begun.
    attacks: u64,
    /// Whether the last one isn't over.
    raging: bool,
    damages: Vec<Damage>,
    /// How many steps tenants have done.
    steps: u64,
    /// Whether everybody is to come to an end.
    stop: bool,
}

/// What is done to the mount, as everybody can look up.
#[derive(Debug, Default)]
pub(super) struct Weather {
    state: Mutex<State>,
    changed: Condvar,
}

impl Weather {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    fn wait(&self, until: Instant, done: impl Fn(&State) -> bool) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let waits = self.changed.wait_timeout_while(self.state(), left, |state| !done(state));
        let (state, _) = waits.unwrap_or_else(PoisonError::into_inner);
        done(&state)
    }

    /// An attack begins.
    pub(super) fn begins(&self) {
        self.change(|state| {
            state.attacks += 1;
            state.raging = true;
        });
    }

    /// Whatever the attack put in the way is away, and the daemon says that all is well.
    pub(super) fn is_over(&self) {
        self.change(|state| {
            state.raging = false;
            for damage in state.damages.iter_mut().filter(|damage| damage.ended.is_none()) {
                damage.ended = Some(Instant::now());
            }
        });
    }

    /// Does something to the mount, which is written down before it is done.
    pub(super) fn harm<T>(&self, harm: Harm, act: impl FnOnce() -> T) -> T {
        let number = self.change(|state| {
            state.damages.push(Damage { harm, began: Instant::now(), ended: None });
            state.damages.len() - 1
        });
        let result = act();
        // A mount whose connection has ended can be at the path until the daemon has taken it away,
        // and whoever comes meanwhile is on a dead one.
        if harm == Harm::Detached {
            self.change(|state| state.damages[number].ended = Some(Instant::now()));
        }
        result
    }

    /// Whether anything of this kind was done between these times.
    pub(super) fn explains(&self, from: Instant, to: Instant, aborted_only: bool) -> bool {
        self.state().damages.iter().rev().any(|damage| {
            let counts = !aborted_only || damage.harm == Harm::Aborted;
            counts && damage.began <= to && damage.ended.is_none_or(|ended| ended >= from)
        })
    }

    /// Tries something; `None` where it failed and an attack went on at that time.
    pub(super) fn attempt<T>(
        &self,
        act: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Option<T>> {
        let sight = |state: &State| (state.attacks, state.raging);
        let before = sight(&self.state());
        match act() {
            Ok(done) => Ok(Some(done)),
            Err(_) if before.1 || sight(&self.state()) != before => Ok(None),
            Err(error) => {
                let calm = self.state().damages.last().and_then(|damage| damage.ended);
                let calm = calm.map(|ended| ended.elapsed());
                let attack = before.0;
                Err(error).with_context(|| {
                    format!(
                        "nothing was being done to the mount since attack {attack}, for {calm:?}"
                    )
                })
            }
        }
    }

    /// Tries something again after each attack that it failed in.
    pub(super) fn insist<T>(
        &self,
        mut act: impl FnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let until = Instant::now() + GENEROUS;
        loop {
            if let Some(done) = self.attempt(&mut act)? {
                return Ok(done);
            }
            ensure!(self.wait(until, |state| !state.raging), "no attack may last so long");
        }
    }

    /// A tenant has done something.
    pub(super) fn note_step(&self) {
        self.change(|state| state.steps += 1);
    }

    /// Waits until tenants have done so many steps more; whether they have.
    pub(super) fn lets_live(&self, steps: u64) -> bool {
        let wanted = self.state().steps + steps;
        self.wait(Instant::now() + GENEROUS, |state| state.steps >= wanted || state.stop)
    }

    /// Everybody is to come to an end.
    pub(super) fn stop(&self) {
        self.change(|state| state.stop = true);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().stop
    }
}

/// Whether a fault is one of those that an attack leads to.
pub(super) fn is_of_the_mount(code: &str) -> bool {
    // The helper of an ordinary user is refused where the directory goes while it is about it.
    code.starts_with("mountpoint-")
        || ["mount-detached", "connection-aborted", "fusermount-refused"].contains(&code)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn only_an_attack_excuses_a_failure() {
        let weather = Weather::default();
        let fails = || -> anyhow::Result<()> { bail!("it fails") };
        assert!(weather.attempt(fails).is_err());
        weather.begins();
        assert!(matches!(weather.attempt(fails), Ok(None)));
        weather.is_over();
        assert!(weather.attempt(fails).is_err());
        let comes_meanwhile = || -> anyhow::Result<()> {
            weather.begins();
            weather.is_over();
            bail!("it fails")
        };
        assert!(matches!(weather.attempt(comes_meanwhile), Ok(None)));
    }

    #[test]
    fn what_was_done_before_explains_nothing() {
        let weather = Weather::default();
        let before = Instant::now();
        weather.harm(Harm::Detached, || ());
        let after = Instant::now();
        assert!(weather.explains(before, after, false));
        assert!(!weather.explains(before, after, true), "it ended no connection");
        while Instant::now() == after {}
        assert!(!weather.explains(Instant::now(), Instant::now(), false));
        weather.harm(Harm::Aborted, || {
            assert!(weather.explains(Instant::now(), Instant::now(), true), "it is being done");
        });
    }
}
