//! Durable consumers as `nats-jetstream-pull-v1` needs them, in the broker's own form.

use serde_json::{Value, json};

/// How much larger than a payload a message may be.
const AROUND_PAYLOAD_BYTES: u64 = 9_216;
/// Consumers that `latent bench trigger` measures.
const BENCH_CONSUMERS: usize = 258;

/// A consumer to be pulled from, one message at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullConsumer {
    /// Its stream.
    pub stream: String,
    /// Its name.
    pub name: String,
    /// Its one subject.
    pub filter: String,
    /// The largest payload.
    pub payload_bytes_max: u64,
    /// How long the broker waits for a settlement.
    pub ack_wait_millis: u64,
    /// Deliveries of one message.
    pub max_deliver: u64,
}

impl PullConsumer {
    /// What [`Admin::add_consumer`](super::Admin::add_consumer) takes.
    pub fn settings(&self) -> Value {
        json!({
            "durable_name": self.name,
            "filter_subject": self.filter,
            "ack_policy": "explicit",
            "replay_policy": "instant",
            "deliver_policy": "all",
            "max_waiting": 1,
            "max_ack_pending": 1,
            "max_batch": 1,
            "max_expires": 100_000_000,
            "max_bytes": self.payload_bytes_max + AROUND_PAYLOAD_BYTES,
            "ack_wait": self.ack_wait_millis * 1_000_000,
            "max_deliver": self.max_deliver,
        })
    }

    /// Those that `latent bench trigger` asks for, `bench-0` and so on, each of one subject below `subject`.
    pub fn of_the_bench(stream: &str, subject: &str) -> Vec<Self> {
        let of = |number| Self {
            stream: stream.to_owned(),
            name: format!("bench-{number}"),
            filter: format!("{subject}.{number}"),
            payload_bytes_max: 1_024,
            ack_wait_millis: 6_000,
            max_deliver: 5,
        };
        (0..BENCH_CONSUMERS).map(of).collect()
    }
}
