//! The engine on a real broker: connecting, provisioning, what it stores and reads, and what becomes of that when something is wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failing helper is a failing test"
)]

mod closing;
mod cluster;
mod cold;
mod cold_crash;
mod cold_expected;
mod cold_holes;
mod cold_republished;
mod cold_segments;
mod cold_trouble;
mod connecting;
#[path = "../../src/cold/doubles.rs"]
mod doubles;
mod failures;
mod foreign;
mod live;
mod outcomes;
mod permissions;
mod provisioning;
mod raw;
mod reading;
#[allow(dead_code, reason = "of the doubles of other tests")]
#[path = "../support/storage.rs"]
mod storage;

/// What the doubles of cold stores name.
mod store {
    pub(crate) use latent_bridge::cold::{ColdError, ColdStore, Listed, PutEnd};
}
