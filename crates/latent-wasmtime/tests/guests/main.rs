//! Real guests on the real engine. One module for each guest, and one for components built from text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what supports the tests may fail like a test")]

mod behave;
mod bench;
mod command;
mod forward;
mod hostile;
mod hostile_results;
mod hostile_shapes;
mod nothing;
mod plain;
mod repeat;
mod written;

latent_test_guests::each_guest_has_tests!();
