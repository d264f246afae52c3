//! `cargo xtask fuzz`: seeded mutations of the committed corpora for a while, on a stable compiler. The tests hold the loop; this only
//! gives it time. `fuzz/` has the targets for a real fuzzer.

use std::path::Path;

use crate::failure::Failure;
use crate::process::{cargo, run_step};

/// Tells the tests how long to mutate.
const SECONDS_VAR: &str = "LATENT_FUZZ_SECONDS";
/// How long it goes when nobody says.
pub(crate) const SECONDS_DEFAULT: u32 = 60;
/// Crates whose library has a module `fuzz_bodies`.
const CRATES: &[&str] = &["latent-bridge", "latent-nats-proto", "latent-wasmtime"];

/// Runs every body over its corpus and mutations of it, for so many seconds in each crate.
///
/// # Errors
/// [`Failure::Command`] when a body broke; its test has said which, and with which seed.
pub(crate) fn run(root: &Path, seconds: u32) -> Result<(), Failure> {
    CRATES.iter().try_for_each(|name| {
        let mut command = cargo(root);
        command.args(["test", "--locked", "-p", name, "--lib", "fuzz_bodies::"]).env(SECONDS_VAR, seconds.to_string());
        run_step(&format!("{name}, {seconds} s of mutations"), &mut command)
    })
}
