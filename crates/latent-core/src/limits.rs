//! Bounds of records, names and budgets. Other crates have a list like this one for what they own.

use crate::Limit;

/// Payload of one event.
pub const EVENT_BYTES: Limit =
    Limit { name: "event_bytes", unit: "bytes", default: 524_288, min: 1, max: 524_288, bounds: "payload of one event" };
/// Key of one event.
pub const KEY_BYTES: Limit =
    Limit { name: "key_bytes", unit: "bytes", default: 1_024, min: 0, max: 1_024, bounds: "key of one event on a topic" };
/// uid of one event (D-04 text).
pub const UID_BYTES: Limit = Limit { name: "uid_bytes", unit: "bytes", default: 256, min: 1, max: 256, bounds: "uid of one event" };
/// Media type of one event.
pub const MEDIA_TYPE_BYTES: Limit =
    Limit { name: "media_type_bytes", unit: "bytes", default: 128, min: 1, max: 128, bounds: "media type of one event" };
/// Attributes of one event.
pub const ATTRIBUTES: Limit = Limit { name: "attributes", unit: "count", default: 16, min: 0, max: 16, bounds: "attributes of one event" };
/// Name of one attribute.
pub const ATTRIBUTE_NAME_BYTES: Limit =
    Limit { name: "attribute_name_bytes", unit: "bytes", default: 64, min: 1, max: 64, bounds: "name of one attribute" };
/// Value of one attribute.
pub const ATTRIBUTE_VALUE_BYTES: Limit =
    Limit { name: "attribute_value_bytes", unit: "bytes", default: 256, min: 0, max: 256, bounds: "value of one attribute" };
/// All attributes of one event: names, values and 20 bytes each (D-03).
pub const ATTRIBUTES_BYTES: Limit = Limit {
    name: "attributes_bytes",
    unit: "bytes",
    default: 3_072,
    min: 0,
    max: 3_072,
    bounds: "names, values and 20 bytes for each attribute of one event",
};
/// Value of one attribute that the host writes.
pub const HOST_ATTRIBUTE_VALUE_BYTES: Limit = Limit {
    name: "host_attribute_value_bytes",
    unit: "bytes",
    default: 1_024,
    min: 0,
    max: 1_024,
    bounds: "value of one attribute that the host writes",
};
/// All attributes of one parked event, those of the host included.
pub const PARKED_ATTRIBUTES_BYTES: Limit = Limit {
    name: "parked_attributes_bytes",
    unit: "bytes",
    default: 8_192,
    min: 0,
    max: 8_192,
    bounds: "names, values and 20 bytes for each attribute of one parked event, those of the host included",
};
/// Topic name.
pub const TOPIC_NAME_BYTES: Limit = Limit {
    name: "topic_name_bytes",
    unit: "bytes",
    default: 120,
    min: 1,
    max: 120,
    bounds: "name of a topic, so that `<topic>.p1023` fits a subject",
};
/// Subject of the broker that an operator maps a topic to (P-016).
pub const SUBJECT_BYTES: Limit =
    Limit { name: "subject_bytes", unit: "bytes", default: 128, min: 1, max: 128, bounds: "subject that a topic is mapped to" };
/// Stream of the broker that a publication is expected in (P-017).
pub const STREAM_NAME_BYTES: Limit =
    Limit { name: "stream_name_bytes", unit: "bytes", default: 128, min: 1, max: 128, bounds: "name of a stream of the broker" };
/// Server name of a TLS peer.
pub const SERVER_NAME_BYTES: Limit = Limit {
    name: "server_name_bytes",
    unit: "bytes",
    default: 253,
    min: 1,
    max: 253,
    bounds: "name that a TLS certificate is verified for",
};
/// Topic as a function names it; on raw subjects it may be longer than a topic of the bridge (P-015).
pub const LOGICAL_TOPIC_BYTES: Limit =
    Limit { name: "logical_topic_bytes", unit: "bytes", default: 128, min: 1, max: 128, bounds: "topic as a function names it" };
/// Tenant, service, binding, route and provider names.
pub const NAME_BYTES: Limit =
    Limit { name: "name_bytes", unit: "bytes", default: 64, min: 1, max: 64, bounds: "tenant, service, binding, route or provider name" };
/// Contract and function names.
pub const CONTRACT_BYTES: Limit =
    Limit { name: "contract_bytes", unit: "bytes", default: 128, min: 1, max: 128, bounds: "contract or function name" };

/// Fuel of one activation.
pub const BUDGET_FUEL: Limit =
    Limit { name: "cpu_fuel", unit: "count", default: 50_000_000, min: 1, max: 1_000_000_000_000, bounds: "fuel of one activation" };
/// Linear memory of one activation.
pub const BUDGET_MEMORY_BYTES: Limit = Limit {
    name: "memory_bytes",
    unit: "bytes",
    default: 33_554_432,
    min: 65_536,
    max: 1_073_741_824,
    bounds: "linear memory of one activation",
};
/// Wall time of one activation.
pub const BUDGET_WALL_TIME_MILLIS: Limit =
    Limit { name: "wall_time_millis", unit: "ms", default: 2_000, min: 1, max: 600_000, bounds: "wall time of one activation" };
/// Outbound requests of one activation.
pub const BUDGET_OUTBOUND_REQUESTS: Limit =
    Limit { name: "outbound_requests", unit: "count", default: 4, min: 0, max: 1_024, bounds: "publications one activation may attempt" };
/// Log bytes of one activation.
pub const BUDGET_LOG_BYTES: Limit =
    Limit { name: "log_bytes", unit: "bytes", default: 65_536, min: 0, max: 1_048_576, bounds: "log, stdout and stderr of one activation" };

/// Every limit of this crate.
pub const ALL: &[Limit] = &[
    EVENT_BYTES,
    KEY_BYTES,
    UID_BYTES,
    MEDIA_TYPE_BYTES,
    ATTRIBUTES,
    ATTRIBUTE_NAME_BYTES,
    ATTRIBUTE_VALUE_BYTES,
    ATTRIBUTES_BYTES,
    HOST_ATTRIBUTE_VALUE_BYTES,
    PARKED_ATTRIBUTES_BYTES,
    TOPIC_NAME_BYTES,
    LOGICAL_TOPIC_BYTES,
    NAME_BYTES,
    CONTRACT_BYTES,
    BUDGET_FUEL,
    BUDGET_MEMORY_BYTES,
    BUDGET_WALL_TIME_MILLIS,
    BUDGET_OUTBOUND_REQUESTS,
    BUDGET_LOG_BYTES,
    SUBJECT_BYTES,
    STREAM_NAME_BYTES,
    SERVER_NAME_BYTES,
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
