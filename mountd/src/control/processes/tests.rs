//! Waiting for processes that live, have ended, or never were the ones that were meant.

use tokio::task::LocalSet;

use super::*;
use crate::control::testing::{HANG, Sleeper};

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let limited = async { tokio::time::timeout(HANG, future).await.expect("it hangs") };
    LocalSet::new().block_on(&runtime.expect("a runtime"), limited)
}

fn process(pid: u32) -> Process {
    Process { pid, start: start_of(pid).expect("it lives") }
}

#[test]
fn the_end_of_a_process_is_told_once_however_often_it_is_waited_for() {
    block_on(async {
        let (first, second) = (Sleeper::start(), Sleeper::start());
        let mut processes = Processes::default();
        let (one, two) = (process(first.pid()), process(second.pid()));
        for process in [one, two, one] {
            processes.watch(process);
        }
        first.end();
        assert_eq!(processes.next().await, one);
        second.end();
        assert_eq!(processes.next().await, two);
        assert!(processes.waits.is_empty() && processes.handles.is_empty());
    });
}

#[test]
fn who_is_let_go_is_not_told_of() {
    block_on(async {
        let (first, second) = (Sleeper::start(), Sleeper::start());
        let mut processes = Processes::default();
        let (one, two) = (process(first.pid()), process(second.pid()));
        processes.watch(one);
        processes.watch(two);
        processes.unwatch(one);
        first.end();
        second.end();
        assert_eq!(processes.next().await, two);
    });
}

#[test]
fn another_process_with_the_same_pid_is_not_taken_for_the_one() {
    block_on(async {
        let mut processes = Processes::default();
        let this = process(std::process::id());
        let earlier = Process { start: this.start - 1, ..this };
        for gone in [earlier, Process { pid: 0, start: 1 }, Process { pid: u32::MAX, start: 1 }] {
            processes.watch(gone);
            assert_eq!(processes.next().await, gone);
        }
    });
}

#[test]
fn a_moment_comes_and_can_be_put_off() {
    use holdfast_fs::clock::{Clock as _, Monotonic};
    block_on(async {
        let timer = Timer::new().expect("a timer");
        let begun = Monotonic.now();
        timer.set(Some(begun.after(Duration::from_secs(3600)))).expect("set");
        let soon = begun.after(Duration::from_millis(20));
        timer.set(Some(soon)).expect("set");
        timer.elapsed().await.expect("elapsed");
        assert!(Monotonic.now() >= soon);
        timer.set(Some(Timestamp::default())).expect("set");
        timer.elapsed().await.expect("what is past is there at once");
        timer.set(None).expect("set");
        let waited = tokio::time::timeout(Duration::from_millis(20), timer.elapsed()).await;
        assert!(waited.is_err(), "no moment is one that never comes");
    });
}
