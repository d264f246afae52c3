//! Lanes against the pinned broker, under real delivery cycles on a real activation manager whose handler does what the events say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod faults;
mod handler;
mod idle;
mod node;
mod one_node;
mod profile;
mod several_nodes;
mod sizes;
mod world;
