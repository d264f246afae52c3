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
