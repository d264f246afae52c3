//! The limits of lanes.

use latent_core::Limit;

/// Lanes of one configuration: a topic counts once for each partition.
pub const LANES: Limit = Limit {
    name: "lanes",
    unit: "count",
    default: 1,
    min: 1,
    max: 4_096,
    bounds: "partitions and streams that one configuration pulls from",
};
/// Lanes that keep a pull open (T-107).
pub const HOT: Limit = Limit {
    name: "lanes_hot",
    unit: "count",
    default: 16,
    min: 1,
    max: 256,
    bounds: "lanes of one tenant that keep a pull open while nothing comes; all others share a sweep of inspections",
};
/// How long a lane stays hot (T-107).
pub const HOT_MILLIS: Limit = Limit {
    name: "lane_hot_ms",
    unit: "ms",
    default: 30_000,
    min: 1_000,
    max: 600_000,
    bounds: "how long after its last message a lane keeps a pull open",
};
/// One round of the sweep (T-107).
pub const SWEEP_MILLIS: Limit = Limit {
    name: "lane_sweep_ms",
    unit: "ms",
    default: 500,
    min: 50,
    max: 60_000,
    bounds: "shortest time between two inspections of a lane that has nothing to do",
};
/// How fast the sweep asks (T-107).
pub const SWEEP_RATE: Limit = Limit {
    name: "lane_sweep_rate",
    unit: "count",
    default: 100,
    min: 1,
    max: 10_000,
    bounds: "inspections a second of one tenant's lanes that have nothing to do; with more lanes a round takes longer",
};
/// Inspections of the sweep under way.
pub const SWEEP_OPEN: Limit = Limit {
    name: "lane_sweep_open",
    unit: "count",
    default: 32,
    min: 1,
    max: 256,
    bounds: "inspections of one tenant's sweep that are not answered",
};
/// How long an inspection is believed (T-106).
pub const PROFILE_MILLIS: Limit = Limit {
    name: "lane_profile_ms",
    unit: "ms",
    default: 30_000,
    min: 30_000,
    max: 30_000,
    bounds: "how long a consumer is taken to be as it was seen",
};
/// Wait for an answer.
pub const ANSWER_MILLIS: Limit = Limit {
    name: "lane_answer_ms",
    unit: "ms",
    default: 5_000,
    min: 100,
    max: 60_000,
    bounds: "wait for the answer to an inspection, a renewal or a settlement; it is taken as uncertain then",
};
/// Silence of a pull.
pub const HEARTBEAT_MILLIS: Limit = Limit {
    name: "lane_heartbeat_ms",
    unit: "ms",
    default: 2_000,
    min: 500,
    max: 30_000,
    bounds: "silence after which the broker says that a pull still stands; after three of them the connection is given up",
};
/// Messages of one connection, in bytes (T-108).
pub const MESSAGE_BYTES: Limit = Limit {
    name: "lane_message_bytes",
    unit: "bytes",
    default: 8_388_608,
    min: 1_048_576,
    max: 1_073_741_824,
    bounds: "bytes that the open pulls of one tenant's connection may bring, charged to the pools while it is there",
};
/// Bytes of one pull (T-108).
pub const PULL_BYTES: Limit = Limit {
    name: "lane_pull_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 65_536,
    max: 16_777_216,
    bounds: "bytes that one pull asks for, unless one message of its lane may have more",
};
/// What an installation is charged for each lane.
pub const LANE_BYTES: Limit = Limit {
    name: "lane_bytes",
    unit: "bytes",
    default: 2_048,
    min: 2_048,
    max: 2_048,
    bounds: "memory charged for one lane that has nothing to do",
};
/// Failures that are kept (T-110).
pub const FAILURES: Limit = Limit {
    name: "lane_failures",
    unit: "count",
    default: 256,
    min: 256,
    max: 256,
    bounds: "last failures of the lanes of one configuration that are kept",
};

/// Every limit of this module.
pub const ALL: &[Limit] = &[
    LANES,
    HOT,
    HOT_MILLIS,
    SWEEP_MILLIS,
    SWEEP_RATE,
    SWEEP_OPEN,
    PROFILE_MILLIS,
    ANSWER_MILLIS,
    HEARTBEAT_MILLIS,
    MESSAGE_BYTES,
    PULL_BYTES,
    LANE_BYTES,
    FAILURES,
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
