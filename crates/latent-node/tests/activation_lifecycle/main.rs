//! The life of an activation as the users of a node see it: reservation, start, stop, faults, and what is remembered.
//!
//! Guests are scripted, except in `guest`, where a real component runs. Every test ends with all accounts at zero.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it needs by failing without it")]

mod crowd;
mod faults;
mod guest;
mod node;
mod reserving;
mod scripted;
mod starting;
mod stopping;
