//! Triggers against the pinned broker, on a real activation manager whose functions do what the test says. Real guests are in
//! `latent-wasmtime/tests/nats_triggers`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod authority;
mod bench;
mod bytes;
mod deliveries;
mod many;
mod outcomes;
mod profile;
mod redelivery;
mod settling;
