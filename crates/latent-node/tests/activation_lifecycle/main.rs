//! The life of an activation as the users of a node see it: reservation, start, stop, faults, and what is remembered.
//!
//! Guests are scripted, except in `calling`, `guest`, `loading` and `publishing`, where real components run. Every test ends with all accounts at zero.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it needs by failing without it")]

mod calling;
mod crowd;
mod faults;
mod guest;
mod loading;
mod node;
mod publishing;
mod reserving;
mod scripted;
mod starting;
mod stopping;
