//! The JSON form of a stored record. A view for people and for JSON tools; the record's bytes are the truth.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latent_core::StoredRecord;
use serde::Serialize;
use serde_json::{Value, json};

/// The JSON form of a stored event.
///
/// `value` goes through [`serde_json::Value`], which keeps integers of 64 bits and doubles exactly. A longer number is shown rounded
/// to a double, and of two members with one name the last is shown. Who needs the payload as it was published takes the bytes from
/// [`crate::EventBus::submit_fetch`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredEvent {
    /// The partition.
    pub partition: u32,
    /// The position there.
    pub offset: u64,
    /// The event's uid.
    pub uid: String,
    /// The key; empty when none was given.
    pub key: String,
    /// When the engine took it, in milliseconds since 1970.
    pub stored_at: u64,
    /// Media type of the payload.
    pub media_type: String,
    /// Attributes in the order given.
    pub attributes: Vec<(String, String)>,
    /// A JSON payload as itself; anything else as `{"data_base64": …}`.
    pub value: Value,
}

impl From<&StoredRecord> for StoredEvent {
    fn from(stored: &StoredRecord) -> Self {
        stored.clone().into()
    }
}

impl From<StoredRecord> for StoredEvent {
    /// A payload is shown as JSON when its media type says JSON and it parses, within the parser's depth of 128.
    fn from(stored: StoredRecord) -> Self {
        let record = stored.record;
        let parsed = record.media_type.is_json().then(|| serde_json::from_slice(&record.payload).ok()).flatten();
        Self {
            partition: stored.partition.0,
            offset: stored.offset.0,
            uid: record.uid.as_str().to_owned(),
            key: record.key,
            stored_at: record.stored_at.0,
            media_type: record.media_type.as_str().to_owned(),
            attributes: record.attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            value: parsed.unwrap_or_else(|| json!({ "data_base64": STANDARD.encode(&record.payload) })),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use latent_core::{Attributes, MediaType, Offset, Partition, Record, Uid, UnixMillis};

    use super::*;

    fn view(media_type: &str, payload: &'static [u8]) -> Value {
        let record = Record {
            uid: Uid::parse("u").unwrap(),
            key: String::new(),
            media_type: MediaType::parse(media_type).unwrap(),
            attributes: Attributes::default(),
            payload: Bytes::from_static(payload),
            stored_at: UnixMillis(1),
        };
        StoredEvent::from(&StoredRecord { partition: Partition(0), offset: Offset(0), record }).value
    }

    #[test]
    fn a_json_payload_is_shown_as_itself() {
        assert_eq!(view("application/json", b"{\"a\":18446744073709551615}"), json!({ "a": u64::MAX }));
        assert_eq!(view("application/cloudevents+json;v=1", b" [1]"), json!([1]));
    }

    #[test]
    fn anything_else_is_shown_as_base64() {
        let cases: [(&str, &[u8], &str); 4] = [
            ("application/octet-stream", b"{}", "e30="),
            ("application/json", b"{", "ew=="),
            ("application/json", b"\xff\x00", "/wA="),
            ("text/plain", b"", ""),
        ];
        for (media_type, payload, encoded) in cases {
            assert_eq!(view(media_type, payload), json!({ "data_base64": encoded }), "{media_type}");
        }
    }

    #[test]
    fn json_nested_deeper_than_the_parser_goes_is_shown_as_base64() {
        let deep: &'static [u8] = Box::leak("[".repeat(200).into_bytes().into_boxed_slice());
        assert!(view("application/json", deep).get("data_base64").is_some());
    }
}
