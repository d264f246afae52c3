//! Real guests that publish to the pinned broker through the bounded publisher: each named case of P-058, and what a guest is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "what supports the tests may fail like a test"
)]

mod host;
mod interrupted;
// The node's half without a node, as the publisher's own tests have it.
#[allow(dead_code, reason = "each user of the shared bench needs a part of it")]
#[path = "../../../latent-nats/tests/broker/bench.rs"]
mod nats;
mod publishing;
