//! Who tried, as `/proc` tells it.

use std::thread;

use rustix::thread::gettid;

use super::*;

#[test]
fn a_thread_is_known_by_its_process_and_program() {
    let tell = || {
        let thread = gettid().as_raw_nonzero().get().unsigned_abs();
        assert_ne!(thread, std::process::id());
        process_of(thread)
    };
    let pid = thread::spawn(tell).join().expect("it didn't panic");
    assert_eq!(pid, Some(std::process::id()));
    let own = std::env::current_exe().expect("a file");
    let name = own.file_name().and_then(|name| name.to_str()).expect("a name");
    assert_eq!(executable(std::process::id()).as_deref(), Some(name));
    assert_eq!(process_of(0), None, "one that can't be seen from here");
}

#[test]
fn a_name_can_be_shown_whatever_it_is() {
    assert_eq!(plain("/usr/bin/rm"), "rm");
    assert_eq!(plain("/usr/bin/rm (deleted)"), "rm");
    assert_eq!(plain("rm\n"), "rm");
    assert_eq!(plain("/a/\u{1b}[2J\n\u{9b}x"), "\u{fffd}[2J\u{fffd}\u{fffd}x");
}
