//! What a manifest wants of the broker: names, subjects and settings of each topic's stream (B-050, B-051). Pure.

use serde_json::{Value, json};

use crate::{BridgeManifest, BusError, RetentionSpec, TopicSpec};

const NANOS_PER_HOUR: u64 = 3_600 * 1_000_000_000;

/// The stream of a topic: `av_` and the name, with `_` for `.`.
pub fn stream_name(topic: &str) -> String {
    format!("av_{}", topic.replace('.', "_"))
}

/// The subject of a partition: `<topic>.p<N>`.
pub fn subject(topic: &str, partition: u32) -> String {
    format!("{topic}.p{partition}")
}

/// The settings that the manifest owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Desired {
    pub(super) topic: String,
    pub(super) stream: String,
    pub(super) partitions: u32,
    pub(super) subjects: Vec<String>,
    pub(super) max_age_nanos: u64,
    pub(super) duplicate_window_nanos: u64,
    pub(super) replicas: u32,
}

impl Desired {
    /// Of every topic, in the manifest's order.
    pub(super) fn all(manifest: &BridgeManifest) -> Result<Vec<Self>, BusError> {
        manifest.topics.iter().map(|topic| Self::of(topic, manifest.replication_factor)).collect()
    }

    fn of(topic: &TopicSpec, replicas: u32) -> Result<Self, BusError> {
        let (max_age_nanos, duplicate_window_nanos) = windows(&topic.retention)?;
        Ok(Self {
            topic: topic.name.clone(),
            stream: stream_name(&topic.name),
            partitions: topic.partitions,
            subjects: (0..topic.partitions).map(|partition| subject(&topic.name, partition)).collect(),
            max_age_nanos,
            duplicate_window_nanos,
            replicas,
        })
    }

    /// What a new stream is made of. Single records are read directly, so that is allowed; all else is left to the broker.
    pub(super) fn new_config(&self) -> Value {
        json!({
            "name": self.stream,
            "subjects": self.subjects,
            "retention": "limits",
            "storage": "file",
            "max_age": self.max_age_nanos,
            "duplicate_window": self.duplicate_window_nanos,
            "num_replicas": self.replicas,
            "allow_direct": true,
        })
    }
}

/// How long records and their uids are kept, in nanoseconds as the broker counts.
fn windows(retention: &RetentionSpec) -> Result<(u64, u64), BusError> {
    let nanos = |hours: u32| {
        let nanos = u64::from(hours).checked_mul(NANOS_PER_HOUR).filter(|nanos| i64::try_from(*nanos).is_ok());
        nanos.ok_or_else(|| BusError::Backend("NATS retention overflow".to_owned()))
    };
    Ok((nanos(retention.hot_hours)?, nanos(retention.dedup_hours.unwrap_or(retention.hot_hours))?))
}

#[cfg(test)]
impl Desired {
    pub(super) fn of_two_partitions(topic: &str) -> Self {
        let text = format!(
            "manifest_version: 1\nname: x\ntopics:\n- name: {topic}\n  partitions: 2\n  retention: {{ hot_hours: 2, dedup_hours: 1 }}\n"
        );
        Self::all(&BridgeManifest::from_yaml(&text).unwrap()).unwrap().remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(hot_hours: u32, dedup_hours: Option<u32>) -> TopicSpec {
        let text = "manifest_version: 1\nname: x\ntopics:\n- name: a.b\n  partitions: 2\n";
        let mut topic = BridgeManifest::from_yaml(text).unwrap().topics.remove(0);
        topic.retention = RetentionSpec { hot_hours, dedup_hours, ..topic.retention };
        topic
    }

    #[test]
    fn a_topic_is_one_stream_with_a_subject_for_each_partition() {
        let desired = Desired::of(&topic(720, Some(2)), 3).unwrap();
        assert_eq!((desired.stream.as_str(), desired.replicas), ("av_a_b", 3));
        assert_eq!(desired.subjects, ["a.b.p0", "a.b.p1"]);
        assert_eq!((desired.max_age_nanos, desired.duplicate_window_nanos), (720 * NANOS_PER_HOUR, 2 * NANOS_PER_HOUR));
    }

    #[test]
    fn ids_are_remembered_as_long_as_records_unless_the_manifest_says_less() {
        let desired = Desired::of(&topic(87_600, None), 1).unwrap();
        assert_eq!(desired.max_age_nanos, 315_360_000_000_000_000);
        assert_eq!(desired.duplicate_window_nanos, desired.max_age_nanos);
    }

    #[test]
    fn more_hours_than_the_broker_can_count_are_an_error() {
        let last = u32::try_from(i64::MAX.unsigned_abs() / NANOS_PER_HOUR).unwrap();
        assert!(Desired::of(&topic(last, None), 1).is_ok());
        for broken in [topic(last + 1, Some(1)), topic(u32::MAX, None), topic(1, Some(u32::MAX))] {
            let error = Desired::of(&broken, 1).unwrap_err();
            assert!(error.to_string().contains("NATS retention overflow"), "{error}");
        }
    }

    #[test]
    fn a_new_stream_says_what_the_manifest_owns_and_little_else() {
        let config = Desired::of(&topic(1, None), 1).unwrap().new_config();
        let expected = json!({
            "name": "av_a_b", "subjects": ["a.b.p0", "a.b.p1"], "retention": "limits", "storage": "file",
            "max_age": 3_600_000_000_000_u64, "duplicate_window": 3_600_000_000_000_u64, "num_replicas": 1, "allow_direct": true,
        });
        assert_eq!(config, expected);
    }
}
