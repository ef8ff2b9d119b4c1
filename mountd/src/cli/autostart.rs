//! Starts a daemon in the background where none answers.
