//! Messages of a NATS broker that wake functions through `nats-jetstream-pull-v1`, on a broker that is there.
//!
//! `ours` is the way of a node from a consumer to a function and back, `wire` the loop by hand, `idle` what does nothing costs. The consumers
//! are made beforehand, as an operator makes them: `bench-0` and so on, with filters below the subject that is named.

pub(super) mod idle;
pub(super) mod ours;
mod rows;
pub(super) mod wire;

pub(super) use self::rows::Bench;

/// Who starts a broker when there is none.
pub(super) const STARTER: &str = "cargo xtask bench trigger";
/// Bindings that are idle together.
const MANY: usize = 256;
/// The largest payload, of each binding and so of each consumer.
const PAYLOAD_CEILING_BYTES: u64 = 1_024;
const OPERATION_TIMEOUT_MILLIS: u64 = 5_000;
const ACK_WAIT_MILLIS: u64 = 6_000;
const MAX_DELIVER: u64 = 5;

/// The consumer, and the binding that belongs to it.
fn consumer(number: usize) -> String {
    format!("bench-{number}")
}

/// The one subject of a consumer.
fn filter(subject: &str, number: usize) -> String {
    format!("{subject}.{number}")
}
