//! The publisher against the pinned broker, through real pools, sessions, plans and sealed secrets. No guest: those are in
//! `latent-wasmtime/tests/nats_events`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod bench;
mod bytes;
mod connections;
mod faults;
mod independent;
mod publishing;
mod reported;
