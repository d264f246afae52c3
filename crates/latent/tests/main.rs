//! The `latent` command as a user or a script meets it: the real program, its own process, an empty environment.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails, its helpers included")]

mod cli;
