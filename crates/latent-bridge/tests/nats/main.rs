//! The engine on a real broker: connecting, provisioning, and what becomes of both when something is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod connecting;
mod provisioning;
