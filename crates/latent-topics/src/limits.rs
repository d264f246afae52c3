//! Bounds of what connects topics and deliveries.

use latent_core::Limit;

/// Events of a partition read together.
pub const READ_AHEAD_EVENTS: Limit = Limit {
    name: "read_ahead_events",
    unit: "count",
    default: 32,
    min: 1,
    max: 1_024,
    bounds: "events of one partition that a binding reads at once, to hold them until each begins",
};
/// Payload bytes of a partition read together.
pub const READ_AHEAD_PARTITION_BYTES: Limit = Limit {
    name: "read_ahead_partition_bytes",
    unit: "bytes",
    default: 262_144,
    min: 1,
    max: 8_388_608,
    bounds: "payload bytes of such events of one partition",
};
/// Payload bytes of all of them.
pub const READ_AHEAD_BYTES: Limit = Limit {
    name: "read_ahead_bytes",
    unit: "bytes",
    default: 8_388_608,
    min: 0,
    max: 268_435_456,
    bounds: "payload bytes of such events of a whole node; beyond it each event is read when it begins",
};

/// Every limit of this crate.
pub const ALL: &[Limit] = &[READ_AHEAD_EVENTS, READ_AHEAD_PARTITION_BYTES, READ_AHEAD_BYTES];

#[cfg(test)]
mod tests {
    #[test]
    fn every_default_lies_in_its_range() {
        for limit in super::ALL {
            assert!(limit.is_consistent(), "{}", limit.name);
        }
    }
}
