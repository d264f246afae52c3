//! Triggers with everything real: the pinned broker over TLS, the parts of a node, and WebAssembly guests. Each case of T-061 by its name,
//! what guests of every kind leave behind, and nodes that are killed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "what supports the tests may fail like a test"
)]

mod busy;
mod changes;
mod faults;
mod hostile;
mod killed;
mod node;
mod outcomes;
mod process;
mod shutdown;
mod world;
