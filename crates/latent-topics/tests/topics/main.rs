//! Topics joined to bindings on a real embedded engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod expiry;
mod parking;
mod publisher;
mod reruns;
mod store;
