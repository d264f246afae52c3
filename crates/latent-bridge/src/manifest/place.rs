//! Where a field stands in a manifest's text, looked up only when there is an error to tell.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use super::number;
use super::yaml::parse;

/// A field of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Which topic, counted from 0, if it is one's.
    pub(super) topic: Option<usize>,
    pub(super) field: Field,
}

/// Every field that a rule speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    ReplicationFactor,
    Topics,
    Partitions,
    SchemaRef,
    HotHours,
    DedupHours,
    ColdUri,
}

impl Field {
    /// As it is written in a manifest, with what it stands in.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::ReplicationFactor => "replication_factor",
            Self::Topics => "topics",
            Self::Partitions => "partitions",
            Self::SchemaRef => "schema_ref",
            Self::HotHours => "retention.hot_hours",
            Self::DedupHours => "retention.dedup_hours",
            Self::ColdUri => "retention.cold_uri",
        }
    }
}

type At = Option<Spanned<Value>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct ManifestPlaces {
    #[serde(deserialize_with = "written")]
    manifest_version: At,
    name: At,
    #[serde(deserialize_with = "written")]
    replication_factor: At,
    topics: Vec<Spanned<TopicPlaces>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TopicPlaces {
    name: At,
    #[serde(deserialize_with = "written")]
    partitions: At,
    schema_ref: At,
    retention: RetentionPlaces,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RetentionPlaces {
    #[serde(deserialize_with = "written")]
    hot_hours: At,
    dedup_hours: At,
    cold_uri: At,
}

/// A value that is written, even when it is nothing.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<At, D::Error> {
    Spanned::deserialize(deserializer).map(Some)
}

/// Line and column of a field in a text that was parsed before. A field that is not written stands where its topic does.
pub(super) fn locate(text: &str, place: Place) -> Option<(u64, u64)> {
    let places: ManifestPlaces = parse(text).ok()?;
    let location = match place.topic {
        None => match place.field {
            Field::Name => location(&places.name),
            Field::ReplicationFactor => location(&places.replication_factor),
            _ => places.topics.first().map(|topic| topic.referenced),
        },
        Some(at) => {
            let topic = places.topics.get(at)?;
            in_topic(&topic.value, place.field).or(Some(topic.referenced))
        }
    }?;
    Some((location.line(), location.column()))
}

/// Line and column of the first value that is no number where one is needed.
pub(super) fn locate_odd_number(text: &str) -> Option<(u64, u64)> {
    type Read = fn(Value) -> Result<u32, serde_json::Error>;
    let places: ManifestPlaces = parse(text).ok()?;
    let odd = |at: &At, read: Read| at.as_ref().filter(|at| read(at.value.clone()).is_err()).map(|at| at.referenced);
    let in_retention = |retention: &RetentionPlaces| {
        let optional = retention.dedup_hours.clone().filter(|at| !at.value.is_null());
        odd(&retention.hot_hours, number::hot_hours).or_else(|| odd(&optional, number::hot_hours))
    };
    let in_topic = |topic: &TopicPlaces| odd(&topic.partitions, number::partitions).or_else(|| in_retention(&topic.retention));
    let found = odd(&places.manifest_version, number::manifest_version)
        .or_else(|| odd(&places.replication_factor, number::replication_factor))
        .or_else(|| places.topics.iter().find_map(|topic| in_topic(&topic.value)));
    found.map(|location| (location.line(), location.column()))
}

fn in_topic(topic: &TopicPlaces, field: Field) -> Option<Location> {
    match field {
        Field::Partitions => location(&topic.partitions),
        Field::SchemaRef => location(&topic.schema_ref),
        Field::HotHours => location(&topic.retention.hot_hours),
        Field::DedupHours => location(&topic.retention.dedup_hours),
        Field::ColdUri => location(&topic.retention.cold_uri),
        _ => location(&topic.name),
    }
}

fn location(at: &At) -> Option<Location> {
    at.as_ref().map(|spanned| spanned.referenced)
}
