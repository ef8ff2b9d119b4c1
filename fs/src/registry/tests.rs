//! The rules of sessions, generations and leases, one by one and at random.

mod desk;
mod keep;
mod leases;
mod model;
mod owners;
mod sessions;
