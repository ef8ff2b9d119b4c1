//! The differential test: the same system calls in two directories, answers and effects compared.
//!
//! The reference is a plain tmpfs and right by definition; nothing here may know what the subject
//! is. One sequence runs in one process, so that whoever started it can end it when it hangs.

pub mod batch;
pub mod compare;
pub mod coverage;
pub mod execute;
pub mod generate;
pub mod known;
pub mod mutation;
pub mod observe;
pub mod operation;
mod run;
pub mod tree;
mod values;

pub use run::{Actors, Mismatch, Setting, Verdict, run, run_and_shrink};
