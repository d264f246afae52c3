//! Bounds of what a function may hand over.

use latent_core::Limit;

/// Payload of one publication of a guest.
pub const PUBLISH_PAYLOAD_BYTES: Limit = Limit {
    name: "publish_payload_bytes",
    unit: "bytes",
    default: 262_144,
    min: 1,
    max: 262_144,
    bounds: "payload of one event that a function publishes",
};
/// Key of one publication of a guest.
pub const PUBLISH_KEY_BYTES: Limit = Limit {
    name: "publish_key_bytes",
    unit: "bytes",
    default: 256,
    min: 1,
    max: 256,
    bounds: "key of one event that a function publishes",
};
/// Idempotency key of one publication of a guest.
pub const IDEMPOTENCY_KEY_BYTES: Limit = Limit {
    name: "idempotency_key_bytes",
    unit: "bytes",
    default: 256,
    min: 1,
    max: 256,
    bounds: "idempotency key of one event that a function publishes",
};
/// Label of `derive-label`.
pub const DERIVE_LABEL_BYTES: Limit =
    Limit { name: "derive_label_bytes", unit: "bytes", default: 128, min: 1, max: 128, bounds: "label of a derived key" };
/// Audit records kept in memory.
pub const AUDIT_RING_RECORDS: Limit = Limit {
    name: "audit_ring_records",
    unit: "count",
    default: 4_096,
    min: 1,
    max: 65_536,
    bounds: "audit records kept in memory; older ones fall off",
};

/// Every limit of this crate.
pub const ALL: &[Limit] = &[PUBLISH_PAYLOAD_BYTES, PUBLISH_KEY_BYTES, IDEMPOTENCY_KEY_BYTES, DERIVE_LABEL_BYTES, AUDIT_RING_RECORDS];

#[cfg(test)]
mod tests {
    #[test]
    fn every_default_lies_in_its_range() {
        for limit in super::ALL {
            assert!(limit.is_consistent(), "{}", limit.name);
        }
    }
}
