//! Runs a sequence in both places, step by step, and makes a failing one shorter.
//!
//! It must leave both directories as empty as they were, unless the process is killed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::fs::{Gid, Uid};
use serde::{Deserialize, Serialize};

use super::compare::{Comparison, Difference, Rules};
use super::coverage::Coverage;
use super::execute::Place;
use super::generate::Recipe;
use super::known::{has_stale_mode, is_unavoidable};
use super::mutation::Mutation;
use super::observe::{Observation, Spot, observe, spots};
use super::operation::{Actor, Operation, Step};
use super::tree::Trees;
use crate::sys;

/// How long a failing sequence may be made shorter.
const SHRINKING: Duration = Duration::from_secs(15);

/// Where and how sequences run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// A directory on what is tested.
    pub subject: PathBuf,
    /// A directory on what is right by definition.
    pub reference: PathBuf,
    /// What is compared.
    pub rules: Rules,
    /// What the subject does wrongly on purpose.
    pub mutation: Option<Mutation>,
    /// After how many steps both places are looked at, and whether the clock has to move on in
    /// between; otherwise the seed decides.
    pub looks: Option<(usize, bool)>,
}

/// The ids of the ordinary users of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Actors {
    ids: [u32; 3],
    now: Actor,
}

/// How a sequence went.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// What was met.
    pub coverage: Coverage,
    /// Where the places differed.
    pub mismatch: Option<Mismatch>,
}

/// The first step after which the places differed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mismatch {
    /// The number of the step; that of the last one and one more for the trees at the end.
    pub step: usize,
    /// The name of the operation.
    pub operation: String,
    /// The step, and what both places answered.
    pub what: String,
    /// The steps of a short sequence that fails likewise.
    pub shrunk: Vec<String>,
}

/// Runs the steps, and where they fail looks for a shorter sequence that does so too.
///
/// # Errors
///
/// Where the places can't be set up.
pub fn run_and_shrink(
    recipe: Recipe,
    steps: &[Step],
    setting: &Setting,
) -> anyhow::Result<Verdict> {
    let mut verdict = run(recipe, steps, setting)?;
    let Some(mismatch) = &mut verdict.mismatch else { return Ok(verdict) };
    let until = Instant::now() + SHRINKING;
    // A look after each step names the culprit, and needs no waiting.
    let mut setting = setting.clone();
    setting.looks = Some((1, false));
    match run(recipe, steps, &setting)?.mismatch {
        Some(earlier) => *mismatch = earlier,
        None => setting.looks = None,
    }
    let end = steps.len().min(mismatch.step + 1);
    let mut shortest = steps[..end].to_vec();
    let mut size = shortest.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at + size <= shortest.len() && Instant::now() < until {
            let mut fewer = shortest.clone();
            fewer.drain(at..at + size);
            let again = run(recipe, &fewer, &setting)?.mismatch;
            if again.is_some_and(|again| again.operation == mismatch.operation) {
                shortest = fewer;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    mismatch.shrunk =
        shortest.iter().map(|step| format!("{:?} {:?}", step.actor, step.operation)).collect();
    Ok(verdict)
}

/// Runs the steps once.
///
/// # Errors
///
/// Where the places can't be set up.
pub fn run(recipe: Recipe, steps: &[Step], setting: &Setting) -> anyhow::Result<Verdict> {
    let umask = sys::set_umask(0);
    let subject = Nest::new(&setting.subject, recipe.seed)?;
    let reference = Nest::new(&setting.reference, recipe.seed)?;
    let mut runner = Runner::new(recipe, steps, setting, &subject, &reference)?;
    let mut verdict = Verdict::default();
    for (number, step) in steps.iter().enumerate() {
        let difference = runner.step(number, step, &mut verdict.coverage);
        if let Some(what) = difference {
            verdict.mismatch = Some(Mismatch {
                step: number,
                operation: step.operation.name().to_owned(),
                what,
                shrunk: Vec::new(),
            });
            break;
        }
    }
    if verdict.mismatch.is_none() {
        verdict.mismatch = runner.trees().map(|what| Mismatch {
            step: steps.len(),
            operation: "tree".to_owned(),
            what,
            shrunk: Vec::new(),
        });
    }
    runner.actors.become_actor(Actor::Starter)?;
    drop(runner);
    sys::set_umask(umask);
    reference.remove()?;
    subject.remove()?;
    Ok(verdict)
}

struct Runner {
    subject: Place,
    reference: Place,
    comparison: Comparison,
    actors: Actors,
    spots: Vec<Spot>,
    mutation: Option<Mutation>,
    /// After how many steps both places are looked at; looking refreshes what a kernel caches.
    looks_every: usize,
    /// Whether times are told apart by letting the clock of the file systems move on.
    ticks: bool,
}

impl Runner {
    fn new(
        recipe: Recipe,
        steps: &[Step],
        setting: &Setting,
        subject: &Nest,
        reference: &Nest,
    ) -> anyhow::Result<Self> {
        let (subject, reference) = (Place::at(subject.inner())?, Place::at(reference.inner())?);
        // Waiting for the clock between any two steps takes seconds; so it's for some sequences.
        let kinds = [(1, true), (1, false), (3, false), (20, false)];
        let kind = match recipe.seed % 12 {
            0 => kinds[0],
            1..6 => kinds[1],
            6..9 => kinds[2],
            _ => kinds[3],
        };
        let (looks_every, ticks) = setting.looks.unwrap_or(kind);
        let mut rules = setting.rules;
        rules.time_relations = rules.time_relations && ticks;
        Ok(Self {
            subject,
            reference,
            comparison: Comparison::new(rules),
            actors: Actors { ids: recipe.ids, now: Actor::Starter },
            spots: spots(steps),
            mutation: setting.mutation,
            looks_every,
            ticks: rules.time_relations,
        })
    }

    fn step(&mut self, number: usize, step: &Step, coverage: &mut Coverage) -> Difference {
        let operation = &step.operation;
        let keeps = step.actor == Actor::Starter && self.actors.ids[0] == 0;
        if self.comparison.leaves_out(operation, &self.reference)
            || is_unavoidable(operation, keeps, &self.reference)
        {
            return None;
        }
        let prepared = self.prepare(operation).and_then(|()| self.actors.become_actor(step.actor));
        if let Err(error) = prepared {
            return Some(format!("step {number}, {step:?}: {error:#}"));
        }
        if self.ticks {
            wait_for_tick();
        }
        let reference = self.reference.execute(operation);
        let wrong = self.mutation.map(|mutation| mutation.of(operation));
        let subject = self.subject.execute(wrong.as_ref().unwrap_or(operation));
        self.settle(operation);
        if let Err(error) = self.actors.become_actor(Actor::Starter) {
            return Some(format!("step {number}, {step:?}: {error:#}"));
        }
        coverage.count(operation.name(), reference.as_ref().err().copied());
        self.comparison.note(operation, &self.reference);

        let difference = self
            .comparison
            .outcomes(operation, &subject, &reference, &self.reference)
            .or_else(|| if number.is_multiple_of(self.looks_every) { self.look() } else { None })?;
        Some(format!(
            "step {number}: {:?} {operation:?}\n  subject   {subject:?}\n  reference {reference:?}\n\
             {difference}",
            step.actor
        ))
    }

    /// Brings about now what the kernel would do at some time.
    fn settle(&mut self, operation: &Operation) {
        if let Some(target) = has_stale_mode(operation) {
            let _ = self.subject.attributes(target);
        }
        if let Operation::MapWrite { map, .. } = operation
            && self.comparison.has_a_cache_between()
        {
            for place in [&mut self.subject, &mut self.reference] {
                drop(place.execute(&Operation::MapSync { map: *map }));
            }
        }
    }

    /// What concerns the process or the kernel as a whole.
    fn prepare(&self, operation: &Operation) -> anyhow::Result<()> {
        match operation {
            Operation::SetUmask { mask } => {
                sys::set_umask(*mask);
            }
            // Not allowed everywhere; then nothing is forgotten.
            Operation::ForgetCaches => drop(fs::write("/proc/sys/vm/drop_caches", "2")),
            _ => {}
        }
        Ok(())
    }

    fn look(&mut self) -> Difference {
        let subject: Observation = observe(&self.subject, &self.spots);
        let reference = observe(&self.reference, &self.spots);
        self.comparison.observations(&subject, &reference)
    }

    fn trees(&mut self) -> Difference {
        if let Some(difference) = self.look() {
            return Some(difference);
        }
        self.subject.let_go();
        self.reference.let_go();
        let mut trees = Trees {
            subject: &self.subject,
            reference: &self.reference,
            comparison: &mut self.comparison,
        };
        trees.differ_at(&".".into())
    }
}

impl Actors {
    /// Gives the calling thread the credentials of an actor.
    fn become_actor(&mut self, actor: Actor) -> anyhow::Result<()> {
        if actor == self.now {
            return Ok(());
        }
        let root = Uid::ROOT;
        let [_, member, stranger] = self.ids;
        let (uid, groups) = match actor {
            Actor::Starter => (0, vec![]),
            Actor::Member => (member, vec![member, stranger]),
            Actor::Stranger => (stranger, vec![]),
        };
        let gid = Gid::from_raw(uid);
        let groups: Vec<Gid> = groups.into_iter().map(Gid::from_raw).collect();
        let change = || {
            // The saved one stays root's, which is the way back.
            rustix::thread::set_thread_res_uid(root, root, root)?;
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_res_gid(gid, gid, Gid::ROOT)?;
            rustix::thread::set_thread_res_uid(Uid::from_raw(uid), Uid::from_raw(uid), root)
        };
        change().with_context(|| format!("the process can't act as {actor:?}"))?;
        self.now = actor;
        Ok(())
    }
}

/// Waits until the clock from which files get their times has moved on.
fn wait_for_tick() {
    use rustix::time::{ClockId, clock_gettime};
    let before = clock_gettime(ClockId::RealtimeCoarse);
    while clock_gettime(ClockId::RealtimeCoarse) == before {
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Directories around that of a sequence, for paths that lead out of it by one or two levels.
struct Nest(PathBuf);

impl Nest {
    fn new(at: &Path, seed: u64) -> anyhow::Result<Self> {
        let outer = at.join(format!("{seed:x}"));
        let mut path = outer.clone();
        for name in ["", "o", "p", "q"] {
            path.push(name);
            fs::create_dir(&path).with_context(|| format!("{} can't be made", path.display()))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
        }
        Ok(Self(outer))
    }

    fn inner(&self) -> PathBuf {
        self.0.join("o/p/q")
    }

    /// Removes everything, also what its owner can't read.
    fn remove(self) -> anyhow::Result<()> {
        remove(&self.0).with_context(|| format!("{} can't be removed", self.0.display()))
    }
}

fn remove(path: &Path) -> anyhow::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir(path)?;
    Ok(())
}
