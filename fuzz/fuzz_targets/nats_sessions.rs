//! See `latent_nats_proto::fuzz_bodies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latent_nats_proto::fuzz_bodies::run("nats_sessions", input));
