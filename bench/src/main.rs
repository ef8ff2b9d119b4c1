//! Benchmarks of Holdfast against tmpfs and other FUSE filesystems.

fn main() {}
