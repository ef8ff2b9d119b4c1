//! Random interleavings against a model that knows the rules, but no bookkeeping: it looks at who
//! is dead and at everything there is, each time anew.

mod checks;
mod world;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index as Pick;

use self::world::Model;
use super::super::*;

const PROCESSES: u32 = 5;
const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug)]
enum Hold {
    By(u32),
    Linger(u64),
}

#[derive(Clone, Copy, Debug)]
enum Bind {
    To(u32),
    Connection(u64),
    Later,
}

/// Who acts is a process that lives, by its slot; what is acted on is picked among what there is.
#[derive(Clone, Debug)]
enum Step {
    Open { by: u32, name: usize, hold: Hold },
    Retain { by: u32, session: Pick, hold: Hold },
    Release { token: Pick },
    ReleaseAgain { token: Pick },
    Rebuild { token: Pick },
    Rotate { session: Pick },
    Close { session: Pick, force: bool },
    Acquire { by: u32, session: Pick, kind: LeaseKind, bind: Bind },
    AcquireInVain { by: u32, session: Pick },
    Bind { lease: Pick, to: u32 },
    GiveBack { lease: Pick },
    GiveBackAgain { lease: Pick },
    Dies { slot: u32 },
    Disconnects { connection: u64 },
    Passes { seconds: u64 },
    Jumps { seconds: u64 },
    Drained { generation: Pick },
    Restarts,
}

fn hold() -> impl Strategy<Value = Hold> {
    prop_oneof![3 => (0..PROCESSES).prop_map(Hold::By), 1 => (1..50_u64).prop_map(Hold::Linger)]
}

fn bind() -> impl Strategy<Value = Bind> {
    prop_oneof![
        2 => (0..PROCESSES).prop_map(Bind::To),
        1 => (0..2_u64).prop_map(Bind::Connection),
        2 => Just(Bind::Later),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let by = || 0..PROCESSES;
    let kind = || prop_oneof![Just(LeaseKind::Shared), Just(LeaseKind::Private)];
    prop_oneof![
        4 => (by(), 0..NAMES.len(), hold()).prop_map(|(by, name, hold)| Step::Open { by, name, hold }),
        3 => (by(), any::<Pick>(), hold())
            .prop_map(|(by, session, hold)| Step::Retain { by, session, hold }),
        3 => any::<Pick>().prop_map(|token| Step::Release { token }),
        1 => any::<Pick>().prop_map(|token| Step::ReleaseAgain { token }),
        2 => any::<Pick>().prop_map(|token| Step::Rebuild { token }),
        2 => any::<Pick>().prop_map(|session| Step::Rotate { session }),
        1 => (any::<Pick>(), any::<bool>())
            .prop_map(|(session, force)| Step::Close { session, force }),
        6 => (by(), any::<Pick>(), kind(), bind())
            .prop_map(|(by, session, kind, bind)| Step::Acquire { by, session, kind, bind }),
        1 => (by(), any::<Pick>()).prop_map(|(by, session)| Step::AcquireInVain { by, session }),
        3 => (any::<Pick>(), 0..PROCESSES).prop_map(|(lease, to)| Step::Bind { lease, to }),
        3 => any::<Pick>().prop_map(|lease| Step::GiveBack { lease }),
        1 => any::<Pick>().prop_map(|lease| Step::GiveBackAgain { lease }),
        3 => (0..PROCESSES).prop_map(|slot| Step::Dies { slot }),
        1 => (0..2_u64).prop_map(|connection| Step::Disconnects { connection }),
        2 => (0..40_u64).prop_map(|seconds| Step::Passes { seconds }),
        1 => (0..40_u64).prop_map(|seconds| Step::Jumps { seconds }),
        3 => any::<Pick>().prop_map(|generation| Step::Drained { generation }),
        1 => Just(Step::Restarts),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_rules_hold(steps in vec(step(), 1..150)) {
        let mut model = Model::new();
        for step in &steps {
            model.take(step)?;
            model.settle();
            model.check_effects()?;
            model.check()?;
            model.check_kept()?;
        }
        model.end()?;
    }
}
