//! Events of a NATS broker that wake functions through `nats-jetstream-pull-v2`, on a broker that is there.
//!
//! `node` is a node's way from consumers to functions and back, `events` what it is given, `peer` the client that people use instead (in
//! builds with the feature `bench-peers`), `idle` what does nothing costs. Each binding is of one topic of one partition. The consumers are
//! made beforehand, as an operator makes them: `lane-0` and so on with a pinned client, and `peer-0` and `peer-1` for the client.

mod events;
mod idle;
mod node;
#[cfg(feature = "bench-peers")]
mod peer;
mod rows;

pub(super) use self::rows::Lanes;

/// Bindings that work together.
const BINDINGS: usize = 8;
/// Bindings that are idle together, behind those.
const MANY: usize = 256;
/// The largest payload, of each binding and so of each consumer.
const PAYLOAD_CEILING_BYTES: u32 = 1_024;
const ACK_WAIT_MILLIS: u64 = 6_000;
/// The priority group of every consumer.
const GROUP: &str = "latent";

/// The consumer, and the binding and the topic that belong to it.
fn lane(number: usize) -> String {
    format!("lane-{number}")
}

/// The one subject of a consumer.
fn filter(subject: &str, number: usize) -> String {
    format!("{subject}.lane.{number}")
}

/// A consumer for the client that people use instead.
#[cfg(feature = "bench-peers")]
fn peer_consumer(number: usize) -> String {
    format!("peer-{number}")
}

#[cfg(feature = "bench-peers")]
fn peer_filter(subject: &str, number: usize) -> String {
    format!("{subject}.peer.{number}")
}
