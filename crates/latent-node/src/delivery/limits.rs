//! Bounds of deliveries.

use latent_core::Limit;

/// Runs of one event.
pub const DELIVERIES: Limit =
    Limit { name: "max_deliveries", unit: "count", default: 5, min: 1, max: 100, bounds: "runs of one event by one binding" };
/// Events of one partition in flight.
pub const IN_FLIGHT: Limit = Limit {
    name: "max_in_flight",
    unit: "count",
    default: 8,
    min: 1,
    max: 64,
    bounds: "events of one partition that one binding runs at once",
};
/// First retry delay.
pub const RETRY_DELAY_MILLIS: Limit = Limit {
    name: "retry_delay_millis",
    unit: "ms",
    default: 1_000,
    min: 10,
    max: 600_000,
    bounds: "delay before the second run of an event; it doubles",
};
/// Longest retry delay.
pub const RETRY_DELAY_MAX_MILLIS: Limit = Limit {
    name: "retry_delay_max_millis",
    unit: "ms",
    default: 60_000,
    min: 10,
    max: 3_600_000,
    bounds: "longest delay before a further run, also of one that a handler asks for",
};
/// Deadline of one delivery.
pub const OPERATION_TIMEOUT_MILLIS: Limit = Limit {
    name: "operation_timeout_millis",
    unit: "ms",
    default: 10_000,
    min: 100,
    max: 600_000,
    bounds: "one delivery from reservation to settlement",
};
/// How far a binding looks beyond its first unsettled event.
pub const WINDOW: Limit = Limit {
    name: "delivery_window",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 1_024,
    bounds: "events after the first unsettled one that a binding looks at in one partition",
};
/// Heads asked for at once.
pub const HEADS_PER_PULL: Limit =
    Limit { name: "heads_per_pull", unit: "count", default: 256, min: 1, max: 1_024, bounds: "events listed by one pull" };
/// First wait after a source said no.
pub const SOURCE_BACKOFF_MILLIS: Limit = Limit {
    name: "source_backoff_millis",
    unit: "ms",
    default: 100,
    min: 1,
    max: 30_000,
    bounds: "first wait after the log could not answer; it doubles",
};
/// Longest wait after a source said no.
pub const SOURCE_BACKOFF_MAX_MILLIS: Limit = Limit {
    name: "source_backoff_max_millis",
    unit: "ms",
    default: 30_000,
    min: 1,
    max: 600_000,
    bounds: "longest wait after the log could not answer",
};
/// Events being parked.
pub const PARKS_OPEN: Limit = Limit {
    name: "parks_open",
    unit: "count",
    default: 8,
    min: 1,
    max: 64,
    bounds: "events of one partition that one binding parks at once; after a failure, one",
};
/// First wait after an event could not be parked.
pub const PARK_BACKOFF_MILLIS: Limit = Limit {
    name: "park_backoff_millis",
    unit: "ms",
    default: 500,
    min: 1,
    max: 60_000,
    bounds: "first wait after an event could not be parked; it doubles",
};
/// Longest wait after an event could not be parked.
pub const PARK_BACKOFF_MAX_MILLIS: Limit = Limit {
    name: "park_backoff_max_millis",
    unit: "ms",
    default: 60_000,
    min: 1,
    max: 3_600_000,
    bounds: "longest wait after an event could not be parked",
};
/// Wait after a reservation was refused for good.
pub const REFUSED_WAIT_MILLIS: Limit = Limit {
    name: "refused_wait_millis",
    unit: "ms",
    default: 1_000,
    min: 1,
    max: 60_000,
    bounds: "wait before a binding whose service cannot be called asks again",
};
/// How long a broker waits for a message to be settled or renewed.
pub const ACK_WAIT_MILLIS: Limit = Limit {
    name: "lane_ack_wait_millis",
    unit: "ms",
    default: 30_000,
    min: 3_000,
    max: 3_600_000,
    bounds: "how long a consumer's message stays with the node that has it, unless it is renewed: `ack_wait` of the consumer",
};
/// When a lease is renewed.
pub const RENEW_PERCENT: Limit = Limit {
    name: "lane_renew_percent",
    unit: "percent",
    default: 33,
    min: 5,
    max: 33,
    bounds: "share of `ack_wait` after which a lease is renewed, and as much of it for one pull",
};
/// When a lease is taken as lost.
pub const LAPSE_PERCENT: Limit = Limit {
    name: "lane_lapse_percent",
    unit: "percent",
    default: 10,
    min: 5,
    max: 30,
    bounds: "share of `ack_wait` before its end at which a lease that was not renewed is taken as lost, and clocks may differ by",
};
/// How often a shut gate asks.
pub const GATE_INSPECT_PERCENT: Limit = Limit {
    name: "lane_gate_inspect_percent",
    unit: "percent",
    default: 20,
    min: 5,
    max: 50,
    bounds: "share of `ack_wait` after which a lane that waits for what others hold asks the broker again",
};
/// Messages of one lane.
pub const LANE_HELD: Limit = Limit {
    name: "lane_messages_held",
    unit: "count",
    default: 64,
    min: 1,
    max: 1_024,
    bounds: "messages of one partition that a node holds unsettled for one binding; what is beyond is left to the broker",
};
/// Guest log of a node, at once.
pub const GUEST_LOG_BURST_BYTES: Limit = Limit {
    name: "guest_log_burst_bytes",
    unit: "bytes",
    default: 4_194_304,
    min: 65_536,
    max: 67_108_864,
    bounds: "lines of all functions that go into the node's log at once; what is beyond is left out and counted",
};
/// Guest log of a node, over time.
pub const GUEST_LOG_BYTES_PER_SECOND: Limit = Limit {
    name: "guest_log_bytes_per_second",
    unit: "bytes",
    default: 262_144,
    min: 1_024,
    max: 67_108_864,
    bounds: "lines of all functions that go into the node's log in the long run",
};

/// Every limit of this module.
pub const ALL: &[Limit] = &[
    DELIVERIES,
    IN_FLIGHT,
    RETRY_DELAY_MILLIS,
    RETRY_DELAY_MAX_MILLIS,
    OPERATION_TIMEOUT_MILLIS,
    WINDOW,
    HEADS_PER_PULL,
    SOURCE_BACKOFF_MILLIS,
    SOURCE_BACKOFF_MAX_MILLIS,
    PARKS_OPEN,
    PARK_BACKOFF_MILLIS,
    PARK_BACKOFF_MAX_MILLIS,
    REFUSED_WAIT_MILLIS,
    ACK_WAIT_MILLIS,
    RENEW_PERCENT,
    LAPSE_PERCENT,
    GATE_INSPECT_PERCENT,
    LANE_HELD,
    GUEST_LOG_BURST_BYTES,
    GUEST_LOG_BYTES_PER_SECOND,
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_default_lies_in_its_range() {
        for limit in super::ALL {
            assert!(limit.is_consistent(), "{}", limit.name);
        }
    }
}
