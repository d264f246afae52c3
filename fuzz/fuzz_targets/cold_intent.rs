//! See `latent_bridge::fuzz_bodies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latent_bridge::fuzz_bodies::run("cold_intent", input));
