//! What the end-to-end tests share: a real daemon, a real mount, real Bash.
