//! Durable consumers as `nats-jetstream-pull-v2` needs them, in the broker's own form; and those of a client that is compared with it.

use serde_json::{Value, json};

/// Lanes that `latent bench trigger` measures: eight that work, and 256 that do nothing.
const BENCH_LANES: usize = 264;
/// Clients that it compares with.
const BENCH_PEERS: usize = 2;
/// Messages in flight of such a client: two of its batches.
const PEER_IN_FLIGHT: u32 = 512;
/// A puller that asks for nothing loses its pin after this, as the product's own consumers have it.
const PIN_MILLIS: u64 = 6_000;

/// A consumer that many messages are pulled from at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneConsumer {
    /// Its stream.
    pub stream: String,
    /// Its name.
    pub name: String,
    /// Its one subject.
    pub filter: String,
    /// Its priority group, whose pullers are pinned.
    pub group: Option<String>,
    /// Messages in flight.
    pub max_in_flight: u32,
    /// How long the broker waits for a settlement.
    pub ack_wait_millis: u64,
}

impl LaneConsumer {
    /// What [`Admin::add_consumer`](super::Admin::add_consumer) takes.
    pub fn settings(&self) -> Value {
        let mut settings = json!({
            "durable_name": self.name,
            "filter_subject": self.filter,
            "ack_policy": "explicit",
            "replay_policy": "instant",
            "deliver_policy": "all",
            "max_waiting": 32,
            "max_ack_pending": self.max_in_flight,
            "ack_wait": self.ack_wait_millis * 1_000_000,
            "max_deliver": 13,
        });
        if let (Some(group), Some(settings)) = (&self.group, settings.as_object_mut()) {
            settings.insert("priority_groups".to_owned(), json!([group]));
            settings.insert("priority_policy".to_owned(), json!("pinned_client"));
            settings.insert("priority_timeout".to_owned(), json!(PIN_MILLIS * 1_000_000));
        }
        settings
    }

    /// Those that `latent bench trigger` asks for: `lane-0` and so on, and `peer-0` and so on, each of one subject below `subject`.
    pub fn of_the_bench(stream: &str, subject: &str) -> Vec<Self> {
        let of = |kind: &str, number: usize, group: Option<&str>, max_in_flight| Self {
            stream: stream.to_owned(),
            name: format!("{kind}-{number}"),
            filter: format!("{subject}.{kind}.{number}"),
            group: group.map(str::to_owned),
            max_in_flight,
            ack_wait_millis: 6_000,
        };
        let lanes = (0..BENCH_LANES).map(|number| of("lane", number, Some("latent"), 8));
        lanes.chain((0..BENCH_PEERS).map(|number| of("peer", number, None, PEER_IN_FLIGHT))).collect()
    }
}
