//! Bounds of `nats-jetstream-pull-v1` (T-022 to T-034).

use latent_core::Limit;

/// Bindings of one configuration (T-022).
pub const BINDINGS: Limit =
    Limit { name: "trigger_bindings", unit: "count", default: 256, min: 1, max: 256, bounds: "bindings of one trigger configuration" };
/// Tenants of one configuration (T-010, T-023).
pub const TENANTS: Limit = Limit {
    name: "trigger_tenants",
    unit: "count",
    default: 8,
    min: 1,
    max: 8,
    bounds: "tenants with bindings in one trigger configuration",
};
/// Payload of one message (T-024).
pub const PAYLOAD_CEILING_BYTES: Limit = Limit {
    name: "trigger_payload_ceiling_bytes",
    unit: "bytes",
    default: 32_768,
    min: 1,
    max: 32_768,
    bounds: "payload of a message that wakes a function through `nats-jetstream-pull-v1`",
};
/// The one deadline of a delivery (T-026).
pub const OPERATION_TIMEOUT_MILLIS: Limit = Limit {
    name: "trigger_operation_timeout_ms",
    unit: "ms",
    default: 10_000,
    min: 100,
    max: 10_000,
    bounds: "one delivery of a message, from reservation to the receipt of its settlement",
};
/// Wait after a rotation that found nothing (T-028).
pub const POLL_INTERVAL_MILLIS: Limit = Limit {
    name: "trigger_poll_interval_ms",
    unit: "ms",
    default: 100,
    min: 10,
    max: 1_000,
    bounds: "wait after a rotation over the bindings that found nothing, and before a binding that failed is asked again",
};
/// Deliveries of one message (T-029).
pub const MAX_DELIVER: Limit = Limit {
    name: "trigger_max_deliver",
    unit: "count",
    default: 5,
    min: 1,
    max: 16,
    bounds: "deliveries of one message by the broker, which are its runs",
};
/// How long the broker waits for a settlement (T-030).
pub const ACK_WAIT_MILLIS: Limit = Limit {
    name: "trigger_ack_wait_ms",
    unit: "ms",
    default: 30_000,
    min: 1_100,
    max: 60_000,
    bounds: "time after which the broker delivers an unsettled message again; at least a second above the operation timeout",
};
/// By how much that is above the operation timeout, at least (T-030).
pub const ACK_WAIT_MARGIN_MILLIS: Limit = Limit {
    name: "trigger_ack_wait_margin_ms",
    unit: "ms",
    default: 1_000,
    min: 1_000,
    max: 1_000,
    bounds: "least distance from the operation timeout to the broker's wait",
};
/// Delay of a negative acknowledgement (T-031).
pub const NAK_DELAY_MILLIS: Limit = Limit {
    name: "trigger_nak_delay_ms",
    unit: "ms",
    default: 1_000,
    min: 100,
    max: 10_000,
    bounds: "delay before a message is delivered again after its function failed",
};
/// A configuration as JSON (T-032).
pub const CONFIG_BYTES: Limit = Limit {
    name: "trigger_config_bytes",
    unit: "bytes",
    default: 524_288,
    min: 524_288,
    max: 524_288,
    bounds: "a trigger configuration in its JSON form",
};
/// What an installation is charged (T-033).
pub const INSTALLATION_BYTES: Limit = Limit {
    name: "trigger_installation_bytes",
    unit: "bytes",
    default: 65_536,
    min: 65_536,
    max: 65_536,
    bounds: "memory charged for an installation of triggers, beside its bindings and six times its roots",
};
/// What one binding is charged (T-033).
pub const BINDING_BYTES: Limit = Limit {
    name: "trigger_binding_bytes",
    unit: "bytes",
    default: 2_048,
    min: 2_048,
    max: 2_048,
    bounds: "memory charged for one binding of an installation of triggers",
};
/// What one visit is charged (T-034).
pub const INGRESS_BYTES: Limit = Limit {
    name: "trigger_ingress_bytes",
    unit: "bytes",
    default: 65_536,
    min: 65_536,
    max: 65_536,
    bounds: "memory charged for one visit of a binding, beside twice its payload ceiling",
};
/// Wait for a connection.
pub const CONNECTION_WAIT_MILLIS: Limit = Limit {
    name: "trigger_connection_wait_ms",
    unit: "ms",
    default: 100,
    min: 100,
    max: 100,
    bounds: "wait of one visit for a connection that others of its tenant hold; then the next binding has its turn",
};
/// Pause after a visit in vain.
pub const PAUSE_MILLIS: Limit = Limit {
    name: "trigger_pause_ms",
    unit: "ms",
    default: 5_000,
    min: 5_000,
    max: 5_000,
    bounds: "pause of a binding whose visit took long and brought nothing; it is nine times as long as the visit, so that others have their time",
};
/// Lines in the log.
pub const LOG_LINES_PER_SECOND: Limit = Limit {
    name: "trigger_log_lines_per_second",
    unit: "count",
    default: 10,
    min: 10,
    max: 10,
    bounds: "lines a second in the log about bindings of one installation of triggers; the rest is counted",
};

/// Every limit of this module.
pub const ALL: &[Limit] = &[
    BINDINGS,
    TENANTS,
    PAYLOAD_CEILING_BYTES,
    OPERATION_TIMEOUT_MILLIS,
    POLL_INTERVAL_MILLIS,
    MAX_DELIVER,
    ACK_WAIT_MILLIS,
    ACK_WAIT_MARGIN_MILLIS,
    NAK_DELAY_MILLIS,
    CONFIG_BYTES,
    INSTALLATION_BYTES,
    BINDING_BYTES,
    INGRESS_BYTES,
    CONNECTION_WAIT_MILLIS,
    PAUSE_MILLIS,
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
