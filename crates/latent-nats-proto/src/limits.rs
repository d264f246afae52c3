//! Bounds of one connection's protocol.

use latent_core::Limit;

/// One protocol line, without its line end (P-024).
pub const CONTROL_LINE_BYTES: Limit = Limit {
    name: "nats_control_line_bytes",
    unit: "bytes",
    default: 8_192,
    min: 8_192,
    max: 8_192,
    bounds: "one line of the NATS protocol from the broker, without its line end; a longer INFO (very large clusters) makes it unavailable",
};
/// Header block of one publication (P-023).
pub const HEADER_BLOCK_BYTES: Limit = Limit {
    name: "nats_header_block_bytes",
    unit: "bytes",
    default: 4_096,
    min: 4_096,
    max: 4_096,
    bounds: "encoded headers of one publication",
};
/// Headers and body of one reply to a publication (P-025).
pub const RECEIPT_BYTES: Limit = Limit {
    name: "nats_receipt_bytes",
    unit: "bytes",
    default: 4_096,
    min: 4_096,
    max: 4_096,
    bounds: "headers and body of one reply to a publication",
};
/// Levels of JSON of one receipt (P-026).
pub const RECEIPT_DEPTH: Limit =
    Limit { name: "nats_receipt_depth", unit: "count", default: 8, min: 8, max: 8, bounds: "levels of JSON of one receipt" };
/// Fields of one object of a receipt.
pub const RECEIPT_FIELDS: Limit =
    Limit { name: "nats_receipt_fields", unit: "count", default: 64, min: 64, max: 64, bounds: "fields of one JSON object of a receipt" };
/// Control frames in one stage of an exchange (P-027).
pub const CONTROL_FRAMES: Limit = Limit {
    name: "nats_control_frames",
    unit: "count",
    default: 8,
    min: 8,
    max: 8,
    bounds: "PING, INFO and +OK frames in one stage of an exchange with the broker",
};
/// Token or password.
pub const SECRET_BYTES: Limit =
    Limit { name: "nats_secret_bytes", unit: "bytes", default: 4_096, min: 1, max: 4_096, bounds: "token or password for the broker" };
/// User name.
pub const USER_BYTES: Limit =
    Limit { name: "nats_user_bytes", unit: "bytes", default: 256, min: 1, max: 256, bounds: "user name for the broker" };
/// Subject of one publication (P-016).
pub const SUBJECT_BYTES: Limit =
    Limit { name: "nats_subject_bytes", unit: "bytes", default: 128, min: 1, max: 128, bounds: "subject of one publication" };
/// Name of the expected stream (P-017).
pub const STREAM_BYTES: Limit =
    Limit { name: "nats_stream_bytes", unit: "bytes", default: 128, min: 1, max: 128, bounds: "name of the expected stream" };
/// Payload of one publication (P-018).
pub const PAYLOAD_BYTES: Limit = Limit {
    name: "nats_payload_bytes",
    unit: "bytes",
    default: 262_144,
    min: 0,
    max: 262_144,
    bounds: "payload of one publication, whatever ceiling is configured",
};
/// Headers of one pulled message (T-025).
pub const DELIVERED_HEADER_BYTES: Limit = Limit {
    name: "nats_delivered_header_bytes",
    unit: "bytes",
    default: 8_192,
    min: 8_192,
    max: 8_192,
    bounds: "headers of one message pulled from a stream",
};
/// Payload of one pulled message (T-024).
pub const DELIVERED_PAYLOAD_BYTES: Limit = Limit {
    name: "nats_delivered_payload_bytes",
    unit: "bytes",
    default: 32_768,
    min: 1,
    max: 32_768,
    bounds: "payload of one message pulled from a stream, whatever ceiling is configured",
};
/// Memory of one connection's protocol, its secret apart.
pub const LINK_BYTES: Limit = Limit {
    name: "nats_link_bytes",
    unit: "bytes",
    default: 20_480,
    min: 20_480,
    max: 20_480,
    bounds: "protocol memory of one connection that publishes, allocated once",
};
/// What a handshake holds beside the link: CONNECT with every byte of the secret escaped.
pub const AUTHENTICATION_SCRATCH_BYTES: Limit = Limit {
    name: "nats_authentication_scratch_bytes",
    unit: "bytes",
    default: 28_672,
    min: 28_672,
    max: 28_672,
    bounds: "CONNECT of one handshake with the broker, allocated once and wiped",
};

/// Operations under way on one connection (T-105).
pub const SESSION_OPERATIONS: Limit = Limit {
    name: "nats_session_operations",
    unit: "count",
    default: 256,
    min: 1,
    max: 1_024,
    bounds: "inspections, pulls and settlements of one connection that are under way, or whose end was not taken yet",
};
/// Commands of one connection that are not written (T-105).
pub const SESSION_OUTGOING_BYTES: Limit = Limit {
    name: "nats_session_outgoing_bytes",
    unit: "bytes",
    default: 65_536,
    min: 4_096,
    max: 1_048_576,
    bounds: "commands of one connection that wait to be written",
};
/// Messages of one connection (T-108).
pub const SESSION_MESSAGES: Limit = Limit {
    name: "nats_session_messages",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 16_384,
    bounds: "messages that pulls of one connection ask for, and those that came and were not taken yet",
};
/// Bytes of messages of one connection (T-108).
pub const SESSION_MESSAGE_BYTES: Limit = Limit {
    name: "nats_session_message_bytes",
    unit: "bytes",
    default: 67_108_864,
    min: 65_536,
    max: 1_073_741_824,
    bounds: "bytes of messages that pulls of one connection ask for, and of those that came and were not taken yet",
};
/// Body of one message (T-108).
pub const DELIVERED_BODY_BYTES: Limit = Limit {
    name: "nats_delivered_body_bytes",
    unit: "bytes",
    default: 715_435,
    min: 715_435,
    max: 715_435,
    bounds: "body of one message of a topic: the largest event in base64 and 16 KiB",
};
/// A message that is let go by (T-108).
pub const SKIPPED_MESSAGE_BYTES: Limit = Limit {
    name: "nats_skipped_message_bytes",
    unit: "bytes",
    default: 67_108_864,
    min: 67_108_864,
    max: 67_108_864,
    bounds: "message above its ceiling that is let go by; a larger one ends the connection",
};
/// Messages of one pull (T-108).
pub const PULL_BATCH: Limit =
    Limit { name: "nats_pull_batch", unit: "count", default: 8, min: 1, max: 1_024, bounds: "messages that one pull asks for" };
/// How long one pull stands (T-107).
pub const PULL_EXPIRES_MILLIS: Limit = Limit {
    name: "nats_pull_expires_millis",
    unit: "milliseconds",
    default: 5_000,
    min: 1,
    max: 60_000,
    bounds: "how long one pull waits at the broker",
};
/// Reason of a termination.
pub const TERM_REASON_BYTES: Limit = Limit {
    name: "nats_term_reason_bytes",
    unit: "bytes",
    default: 128,
    min: 0,
    max: 128,
    bounds: "reason that goes with the termination of a message",
};
/// Id of a pin.
pub const PIN_BYTES: Limit =
    Limit { name: "nats_pin_bytes", unit: "bytes", default: 64, min: 1, max: 64, bounds: "id of the pin of a consumer's priority group" };

/// Every limit of this crate.
pub const ALL: &[Limit] = &[
    CONTROL_LINE_BYTES,
    HEADER_BLOCK_BYTES,
    RECEIPT_BYTES,
    RECEIPT_DEPTH,
    RECEIPT_FIELDS,
    CONTROL_FRAMES,
    SECRET_BYTES,
    USER_BYTES,
    SUBJECT_BYTES,
    STREAM_BYTES,
    PAYLOAD_BYTES,
    DELIVERED_HEADER_BYTES,
    DELIVERED_PAYLOAD_BYTES,
    LINK_BYTES,
    AUTHENTICATION_SCRATCH_BYTES,
    SESSION_OPERATIONS,
    SESSION_OUTGOING_BYTES,
    SESSION_MESSAGES,
    SESSION_MESSAGE_BYTES,
    DELIVERED_BODY_BYTES,
    SKIPPED_MESSAGE_BYTES,
    PULL_BATCH,
    PULL_EXPIRES_MILLIS,
    TERM_REASON_BYTES,
    PIN_BYTES,
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
