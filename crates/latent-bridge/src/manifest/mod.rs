//! The manifest: what a bridge consists of, as plain data. It alone is enough to stand up an identical bridge.
//!
//! `yaml` turns text into it and back, `validate` holds every rule, and [`MANIFEST_SCHEMA`] says them to editors. Invariant: `from_yaml(to_yaml(m)) == m` for every `m` that
//! [`BridgeManifest::validate`] accepts.

mod error;
mod number;
mod place;
mod validate;
mod yaml;

use serde::{Deserialize, Serialize};

use crate::limits;

pub use error::ManifestError;

/// The one version of the manifest's form.
pub const MANIFEST_VERSION: u32 = 1;

/// JSON Schema (draft 7) of a manifest, for editors. It accepts what [`BridgeManifest::from_yaml`] accepts, but for the rules that its
/// `$comment` names: no JSON Schema can say them.
pub const MANIFEST_SCHEMA: &str = include_str!("../../schema/bridge-manifest.schema.json");

/// A bridge: its name and its topics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BridgeManifest {
    /// [`MANIFEST_VERSION`].
    #[serde(deserialize_with = "number::manifest_version")]
    pub manifest_version: u32,
    /// Name of the deployment. It is the namespace of uids that the host derives, so changing it changes every derived uid.
    pub name: String,
    /// Copies on a cluster; the embedded engine keeps one whatever is asked for.
    #[serde(default = "replication_factor_default", deserialize_with = "number::replication_factor")]
    pub replication_factor: u32,
    /// The topics, at least one.
    pub topics: Vec<TopicSpec>,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicSpec {
    /// Name: tokens joined by single dots (D-04), at most 120 bytes.
    pub name: String,
    /// Number of partitions. It cannot be changed later (D-21).
    #[serde(deserialize_with = "number::partitions")]
    pub partitions: u32,
    /// How long events stay, and where they go then.
    #[serde(default)]
    pub retention: RetentionSpec,
    /// JSON Schema of the payloads, as a path relative to the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_ref: Option<String>,
}

/// How long events stay, and where they go then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionSpec {
    /// Hours an event stays in hot storage.
    #[serde(default = "hot_hours_default", deserialize_with = "number::hot_hours")]
    pub hot_hours: u32,
    /// Hours a cluster remembers uids; as long as `hot_hours` when not given, and never longer.
    #[serde(default, deserialize_with = "number::optional_hours", skip_serializing_if = "Option::is_none")]
    pub dedup_hours: Option<u32>,
    /// Where expired events are archived: a folder, or the URI of a store. A folder that is relative is so to the working directory of the
    /// program; `latent` makes it relative to the manifest's folder as it reads one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_uri: Option<String>,
    /// Form of the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_format: Option<ColdFormat>,
}

/// Form of the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColdFormat {
    /// One object for each event.
    Objects,
    /// Many events in each object.
    Segments,
}

impl Default for RetentionSpec {
    fn default() -> Self {
        Self { hot_hours: hot_hours_default(), dedup_hours: None, cold_uri: None, cold_format: None }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the limit's range ends at 5")]
const fn replication_factor_default() -> u32 {
    limits::REPLICATION_FACTOR.default as u32
}

#[allow(clippy::cast_possible_truncation, reason = "the limit's range ends at 87,600")]
const fn hot_hours_default() -> u32 {
    limits::HOT_HOURS.default as u32
}
