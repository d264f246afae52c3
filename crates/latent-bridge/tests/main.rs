//! Public behaviour of the bridge. One binary, so that it links once.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a failing helper is a failing test")]

mod cold;
mod contract;
mod embedded;
mod manifest;
mod support;
