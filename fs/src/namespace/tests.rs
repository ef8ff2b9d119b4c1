//! The namespace on a ground that keeps books and fails when it is told to.

mod books;
mod failures;
mod restore;
mod rules;
mod sweep;
