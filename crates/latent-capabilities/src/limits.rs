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

/// Name of the stream in a receipt. NATS allows 255 bytes; a topic of the bridge is shorter.
pub const RECEIPT_STREAM_BYTES: Limit =
    Limit { name: "receipt_stream_bytes", unit: "bytes", default: 255, min: 255, max: 255, bounds: "stream name in a receipt" };
/// What one publication's answer may take from its dispatch until the store is destroyed; `completion_call_bytes_of` adds it up.
pub const COMPLETION_CALL_BYTES: Limit = Limit {
    name: "completion_call_bytes",
    unit: "bytes",
    default: 2_048,
    min: 2_048,
    max: 2_048,
    bounds: "memory charged for one publication's receipt and its lowering into the guest",
};
/// Completion memory of a node. The default is 8,192 publications that have ended, or run, in stores that still exist.
pub const COMPLETION_BYTES: Limit = Limit {
    name: "completion_bytes",
    unit: "bytes",
    default: 16_777_216,
    min: COMPLETION_CALL_BYTES.default,
    max: 1_073_741_824,
    bounds: "memory of a node for receipts and their lowering; a publication beyond it is refused before it is sent",
};
/// Publications that are named one by one after an activation.
pub const PUBLICATIONS_NOTED: Limit = Limit {
    name: "publications_noted",
    unit: "count",
    default: 64,
    min: 64,
    max: 64,
    bounds: "publications of one activation that its report and the journal name; of more, conflicts and uncertain ends first, the rest is counted",
};
/// What a note of a publication takes beside its topic, uid and stream.
pub const PUBLICATION_NOTE_BYTES: Limit = Limit {
    name: "publication_note_bytes",
    unit: "bytes",
    default: 128,
    min: 128,
    max: 128,
    bounds: "memory counted for each noted publication beside its topic, uid and stream name",
};
/// Topics that a plan grants, over all services.
pub const EVENT_GRANTS: Limit = Limit {
    name: "event_grants",
    unit: "count",
    default: 65_536,
    min: 0,
    max: 65_536,
    bounds: "topics granted by a node's plan, over all services and tenants",
};

/// Calls of providers that hold a connection at one time.
pub const POOL_CALLS_RUNNING: Limit = Limit {
    name: "pool_calls_running",
    unit: "count",
    default: 128,
    min: 1,
    max: 4_096,
    bounds: "calls of providers that hold a connection at one time",
};
/// Calls of providers that wait for a connection.
pub const POOL_CALLS_QUEUED: Limit = Limit {
    name: "pool_calls_queued",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 65_536,
    bounds: "calls of providers that wait for a connection; one more is refused",
};
/// Calls of one tenant that wait for a connection.
pub const POOL_CALLS_QUEUED_PER_TENANT: Limit = Limit {
    name: "pool_calls_queued_per_tenant",
    unit: "count",
    default: 64,
    min: 1,
    max: 65_536,
    bounds: "calls of one tenant that wait for a connection; one more is refused",
};
/// Pairs of provider and tenant that can have connections.
pub const POOL_CLIENTS: Limit = Limit {
    name: "pool_clients",
    unit: "count",
    default: 256,
    min: 1,
    max: 4_096,
    bounds: "pairs of provider and tenant that can have connections, those of a replaced provider until their last call ends",
};
/// Connections of a node's providers.
pub const POOL_CONNECTIONS: Limit = Limit {
    name: "pool_connections",
    unit: "count",
    default: 128,
    min: 1,
    max: 4_096,
    bounds: "connections of all providers, from the dial until the socket is closed",
};
/// Connections of one tenant.
pub const POOL_CONNECTIONS_PER_TENANT: Limit = Limit {
    name: "pool_connections_per_tenant",
    unit: "count",
    default: 8,
    min: 1,
    max: 4_096,
    bounds: "connections of one tenant over all providers",
};
/// Connections of one provider.
pub const POOL_CONNECTIONS_PER_PROVIDER: Limit = Limit {
    name: "pool_connections_per_provider",
    unit: "count",
    default: 32,
    min: 1,
    max: 4_096,
    bounds: "connections of one provider over all tenants",
};
/// Memory charged for calls and connections of providers.
pub const POOL_BYTES: Limit = Limit {
    name: "pool_bytes",
    unit: "bytes",
    default: 67_108_864,
    min: 1_048_576,
    max: 4_294_967_296,
    bounds: "memory charged for the calls and connections of all providers",
};
/// Memory charged for what is installed.
pub const POOL_METADATA_BYTES: Limit = Limit {
    name: "pool_metadata_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 4_096,
    max: 67_108_864,
    bounds: "memory charged for the configurations of all installed providers",
};
/// Payload that one call may stage (P-032).
pub const POOL_CHUNK_BYTES: Limit = Limit {
    name: "pool_chunk_bytes",
    unit: "bytes",
    default: 65_536,
    min: 1_024,
    max: 262_144,
    bounds: "payload ceiling that a provider may be installed with",
};
/// How long a connection may be parked.
pub const POOL_IDLE_MILLIS: Limit = Limit {
    name: "pool_idle_ms",
    unit: "ms",
    default: 30_000,
    min: 100,
    max: 3_600_000,
    bounds: "age at which a parked connection is closed instead of used",
};
/// The first wait after a failed dial.
pub const DIAL_BACKOFF_MIN_MILLIS: Limit = Limit {
    name: "dial_backoff_min_ms",
    unit: "ms",
    default: 100,
    min: 1,
    max: 30_000,
    bounds: "wait after the first failed dial of a client; it doubles with each further one",
};
/// The longest wait after failed dials.
pub const DIAL_BACKOFF_MAX_MILLIS: Limit = Limit {
    name: "dial_backoff_max_ms",
    unit: "ms",
    default: 30_000,
    min: 1,
    max: 3_600_000,
    bounds: "longest wait after failed dials of a client",
};
/// What one connection is charged while its socket exists.
pub const CONNECTION_BYTES: Limit = Limit {
    name: "connection_bytes",
    unit: "bytes",
    default: 262_144,
    min: 262_144,
    max: 262_144,
    bounds: "memory charged for the TLS and protocol state of one connection",
};
/// What one call is charged beside its input (P-031).
pub const CALL_SCRATCH_BYTES: Limit = Limit {
    name: "call_scratch_bytes",
    unit: "bytes",
    default: 32_768,
    min: 32_768,
    max: 32_768,
    bounds: "memory charged for one call's encoding, beside its input",
};

/// The bounds that an operator sets for the provider pools of a node.
pub const POOLS: &[Limit] = &[
    POOL_CALLS_RUNNING,
    POOL_CALLS_QUEUED,
    POOL_CALLS_QUEUED_PER_TENANT,
    POOL_CLIENTS,
    POOL_CONNECTIONS,
    POOL_CONNECTIONS_PER_TENANT,
    POOL_CONNECTIONS_PER_PROVIDER,
    POOL_BYTES,
    POOL_METADATA_BYTES,
    POOL_CHUNK_BYTES,
    POOL_IDLE_MILLIS,
    DIAL_BACKOFF_MIN_MILLIS,
    DIAL_BACKOFF_MAX_MILLIS,
];

/// Every limit of this crate.
pub const ALL: &[Limit] = &[
    PUBLISH_PAYLOAD_BYTES,
    PUBLISH_KEY_BYTES,
    IDEMPOTENCY_KEY_BYTES,
    DERIVE_LABEL_BYTES,
    AUDIT_RING_RECORDS,
    RECEIPT_STREAM_BYTES,
    COMPLETION_CALL_BYTES,
    COMPLETION_BYTES,
    PUBLICATIONS_NOTED,
    PUBLICATION_NOTE_BYTES,
    EVENT_GRANTS,
    POOL_CALLS_RUNNING,
    POOL_CALLS_QUEUED,
    POOL_CALLS_QUEUED_PER_TENANT,
    POOL_CLIENTS,
    POOL_CONNECTIONS,
    POOL_CONNECTIONS_PER_TENANT,
    POOL_CONNECTIONS_PER_PROVIDER,
    POOL_BYTES,
    POOL_METADATA_BYTES,
    POOL_CHUNK_BYTES,
    POOL_IDLE_MILLIS,
    DIAL_BACKOFF_MIN_MILLIS,
    DIAL_BACKOFF_MAX_MILLIS,
    CONNECTION_BYTES,
    CALL_SCRATCH_BYTES,
];

/// The most that one noted publication takes.
pub const fn publication_note_bytes_max() -> u64 {
    use latent_core::limits::{LOGICAL_TOPIC_BYTES, UID_BYTES};
    PUBLICATION_NOTE_BYTES.default + LOGICAL_TOPIC_BYTES.max + UID_BYTES.max + RECEIPT_STREAM_BYTES.max
}

/// The most that an answer takes whose stream name has `stream_bytes` bytes, added up from its parts.
pub const fn completion_call_bytes_of(stream_bytes: u64) -> u64 {
    /// `:` and the longest sequence.
    const SEQUENCE_TEXT_BYTES: u64 = 21;
    let event_id_bytes = stream_bytes + SEQUENCE_TEXT_BYTES;
    // A text that is written piece by piece may have grown to twice its length.
    let on_host = stream_bytes + 2 * event_id_bytes;
    let in_guest = stream_bytes + event_id_bytes;
    RECORDS * RECORD_BYTES + on_host + in_guest
}

/// What `completion_call_bytes_of` takes a record to be at most.
const RECORD_BYTES: u64 = 128;
/// The outcome, the guest's record of it on the host and, lowered, in the guest, the charge and its owner's place in the store's list.
const RECORDS: u64 = 5;

const _: () = assert!(completion_call_bytes_of(RECEIPT_STREAM_BYTES.max) <= COMPLETION_CALL_BYTES.default);

#[cfg(test)]
mod tests {
    #[test]
    fn the_records_that_an_answer_is_held_in_are_no_larger_than_what_is_charged_for_them() {
        assert!(size_of::<latent_core::PublicationOutcome>() as u64 <= super::RECORD_BYTES);
        // With the two counts that stand before what is shared.
        assert!((crate::completion::CHARGE_BYTES + 2 * size_of::<usize>()) as u64 <= super::RECORD_BYTES);
        // A list that grows may have twice the room.
        assert!(2 * size_of::<crate::CompletionOwner>() as u64 <= super::RECORD_BYTES);
    }

    #[test]
    fn every_default_lies_in_its_range() {
        for limit in super::ALL {
            assert!(limit.is_consistent(), "{}", limit.name);
        }
    }
}
