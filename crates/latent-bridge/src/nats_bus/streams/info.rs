//! A stream as the broker describes it. The configuration stays as it came, so that what this client does not know survives an update.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The answer to `STREAM.INFO`, as far as it is looked at.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(in crate::nats_bus) struct StreamInfo {
    pub(in crate::nats_bus) config: Map<String, Value>,
    /// The broker's text; another one means another stream of the same name.
    pub(in crate::nats_bus) created: String,
    pub(in crate::nats_bus) state: StreamState,
    /// Who answers for the stream. Left out by some servers that are alone.
    #[serde(default)]
    pub(in crate::nats_bus) cluster: Option<ClusterState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(in crate::nats_bus) struct ClusterState {
    #[serde(default)]
    leader: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(in crate::nats_bus) struct StreamState {
    #[serde(default)]
    pub(in crate::nats_bus) messages: u64,
    #[serde(default)]
    pub(in crate::nats_bus) first_seq: u64,
    #[serde(default)]
    pub(in crate::nats_bus) last_seq: u64,
}

/// The broker leaves out what has its default value.
impl StreamInfo {
    /// False while a stream's servers elect its leader. Each of them then answers for itself, and one that has just started says that
    /// there is nothing: such a state is no state of the stream.
    pub(in crate::nats_bus) fn is_of_leader(&self) -> bool {
        self.cluster.as_ref().is_none_or(|cluster| cluster.leader.as_ref().is_some_and(|leader| !leader.is_empty()))
    }

    pub(super) fn number(&self, field: &str) -> u64 {
        self.config.get(field).and_then(Value::as_u64).unwrap_or_default()
    }

    pub(super) fn text<'s>(&'s self, field: &str, default: &'s str) -> &'s str {
        self.config.get(field).and_then(Value::as_str).unwrap_or(default)
    }

    pub(super) fn subjects(&self) -> Vec<&str> {
        self.config.get("subjects").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }
}
