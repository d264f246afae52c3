//! See `latent_wasmtime::fuzz_bodies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latent_wasmtime::fuzz_bodies::run("component", input));
