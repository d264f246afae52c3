//! Topics joined to bindings on a real embedded engine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod store;
