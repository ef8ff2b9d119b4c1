//! The control socket: what clients ask of the daemon, and how they ask it.
