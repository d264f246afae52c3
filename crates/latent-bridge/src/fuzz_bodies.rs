//! Bodies of the fuzz targets (D-32): plain functions of bytes, which return for every input and fail only where a promise is broken.
//!
//! Compiled for tests and behind the feature `fuzzing` alone. The tests here replay `fuzz-corpus/` and seeded mutations of it on a stable
//! compiler; the workspace `fuzz/` hands the same functions to a fuzzer. Those of the log's files lie beside what they call.

#[cfg(test)]
mod tests;

use latent_core::MediaType;

use crate::cold::fuzz_bodies::{cold_intent, cold_object};
use crate::cold::segment::fuzz_bodies as cold;
use crate::engine::embedded::fuzz_bodies as log;
use crate::{BridgeManifest, TopicSchema};

/// A body and the folder of `fuzz-corpus/` that its inputs lie in.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The folder's name, and the fuzz target's.
    pub name: &'static str,
    /// Takes any bytes.
    pub body: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "segment", body: log::segment },
    Target { name: "segment_index", body: log::segment_index },
    Target { name: "uid_run", body: log::uid_run },
    Target { name: "watermark", body: log::watermark },
    Target { name: "state_log", body: log::state_log },
    Target { name: "cold_segment", body: cold::cold_segment },
    Target { name: "cold_intent", body: cold_intent },
    Target { name: "cold_object", body: cold_object },
    Target { name: "manifest", body: manifest },
    Target { name: "schema", body: schema },
];

/// Runs the body of this name.
///
/// # Panics
/// When there is none, or when its promise is broken.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    assert!(target.is_some(), "there is no fuzz target {name:?}");
    if let Some(target) = target {
        (target.body)(input);
    }
}

/// What is accepted is written so that it reads back as the same.
fn manifest(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(manifest) = BridgeManifest::from_yaml(text) {
        let again = manifest.to_yaml().and_then(|text| BridgeManifest::from_yaml(&text));
        assert_eq!(again, Ok(manifest), "an accepted manifest reads back as another");
    }
}

/// Longest text of a refusal: its fixed words, a schema's name, and its violations.
const REFUSAL_BYTES_MAX: usize = 4_096;

/// A schema, then, behind the first zero byte, a payload.
fn schema(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let (schema, payload) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let refusal = match TopicSchema::compile("topic", "schema.json", schema) {
        Err(error) => Some(error.to_string()),
        Ok(schema) => schema.check(&MediaType::json(), payload).err().map(|error| error.to_string()),
    };
    let bytes = refusal.map_or(0, |text| text.len());
    assert!(bytes <= REFUSAL_BYTES_MAX, "a refusal of {bytes} bytes");
}
