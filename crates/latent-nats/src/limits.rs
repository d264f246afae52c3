//! Bounds of the adapter's configuration. Those of the wire are in `latent-nats-proto`, those of the pools in `latent-capabilities`.

use latent_core::Limit;

/// Mappings of one configuration (P-013).
pub const MAPPINGS: Limit =
    Limit { name: "nats_mappings", unit: "count", default: 16, min: 1, max: 16, bounds: "topics that one NATS provider maps" };
/// Tenants with a credential (P-014).
pub const CREDENTIALS: Limit = Limit {
    name: "nats_credentials",
    unit: "count",
    default: 16,
    min: 1,
    max: 16,
    bounds: "tenants with a credential in one NATS provider",
};
/// Payload ceiling that an operator chooses (P-018).
pub const PAYLOAD_CEILING_BYTES: Limit = Limit {
    name: "nats_payload_ceiling_bytes",
    unit: "bytes",
    default: 65_536,
    min: 1,
    max: 262_144,
    bounds: "payload of one publication through a NATS provider; without a default in its configuration",
};
/// Time for one operation (P-028).
pub const OPERATION_TIMEOUT_MILLIS: Limit = Limit {
    name: "nats_operation_timeout_ms",
    unit: "ms",
    default: 5_000,
    min: 10,
    max: 30_000,
    bounds: "one publication from its queue to its answer; without a default in its configuration",
};
/// What the operator has set on the streams (P-029).
pub const DUPLICATE_WINDOW_MILLIS: Limit = Limit {
    name: "nats_duplicate_window_ms",
    unit: "ms",
    default: 120_000,
    min: 1_000,
    max: 86_400_000,
    bounds: "duplicate window that the streams are set to; recorded, neither asked for nor enforced",
};
/// Trust roots of one configuration.
pub const ROOTS: Limit = Limit { name: "nats_roots", unit: "count", default: 16, min: 0, max: 16, bounds: "operator's own trust roots" };
/// One trust root.
pub const ROOT_BYTES: Limit =
    Limit { name: "nats_root_bytes", unit: "bytes", default: 16_384, min: 1, max: 16_384, bounds: "one trust root in DER form" };
/// A whole configuration as JSON.
pub const CONFIG_BYTES: Limit = Limit {
    name: "nats_config_bytes",
    unit: "bytes",
    default: 524_288,
    min: 524_288,
    max: 524_288,
    bounds: "the configuration of one NATS provider in its JSON form",
};
/// User name of a password credential.
pub const USERNAME_BYTES: Limit =
    Limit { name: "nats_username_bytes", unit: "bytes", default: 128, min: 1, max: 128, bounds: "user name of a NATS credential" };
/// Lines in the log about publications of one provider that did not succeed.
pub const LOG_LINES_PER_SECOND: Limit = Limit {
    name: "nats_log_lines_per_second",
    unit: "count",
    default: 10,
    min: 10,
    max: 10,
    bounds: "lines a second in the log about publications of one NATS provider that did not succeed; the rest is counted",
};

/// Every limit of this crate.
pub const ALL: &[Limit] = &[
    MAPPINGS,
    CREDENTIALS,
    PAYLOAD_CEILING_BYTES,
    OPERATION_TIMEOUT_MILLIS,
    DUPLICATE_WINDOW_MILLIS,
    ROOTS,
    ROOT_BYTES,
    CONFIG_BYTES,
    USERNAME_BYTES,
    LOG_LINES_PER_SECOND,
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
