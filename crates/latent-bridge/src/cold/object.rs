//! The JSON of a record at rest: as a cold object (B-042, B-077), and the parts that an intent shares with it. No I/O.
//!
//! The same record always gives the same bytes. A payload is embedded byte for byte as `value` where its media type says JSON and it is one
//! JSON value and nothing else; otherwise it is `data_base64`. Reading gives the bytes that were published.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, Record, StoredRecord, Uid, UnixMillis};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::limits;

/// Where a record's object lies below the place of its topic's `cold_uri`.
pub(crate) fn object_path(topic: &str, partition: Partition, offset: Offset) -> String {
    format!("{topic}/p{partition}/{:020}.json", offset.0)
}

/// The object of a record.
pub(crate) fn encode(stored: &StoredRecord) -> Bytes {
    let record = &stored.record;
    let mut text = Vec::with_capacity(record.payload.len() + 512);
    text.extend_from_slice(b"{\"uid\":");
    push_json(&mut text, record.uid.as_str());
    text.extend_from_slice(format!(",\"partition\":{},\"offset\":{}", stored.partition, stored.offset).as_bytes());
    push_content(&mut text, record);
    text.push(b'}');
    Bytes::from(text)
}

/// Reads an object back: what verification and restoring begin with.
///
/// # Errors
/// Why it is none, in words.
#[cfg_attr(not(test), allow(dead_code, reason = "nothing reads an archive back yet"))]
pub(crate) fn decode(object: &[u8]) -> Result<StoredRecord, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Object<'a> {
        #[serde(borrow)]
        uid: Cow<'a, str>,
        partition: u32,
        offset: u64,
        #[serde(borrow)]
        key: Cow<'a, str>,
        #[serde(borrow)]
        media_type: Cow<'a, str>,
        attributes: Vec<(String, String)>,
        #[serde(borrow, default, deserialize_with = "present")]
        value: Option<&'a RawValue>,
        #[serde(borrow, default)]
        data_base64: Option<Cow<'a, str>>,
        stored_at: u64,
    }
    if object.len() as u64 > limits::COLD_OBJECT_BYTES.max {
        return Err(format!("it has {} bytes, more than an object of one event has", object.len()));
    }
    let object: Object<'_> = serde_json::from_slice(object).map_err(|error| error.to_string())?;
    let payload = payload(object.value, object.data_base64.as_deref())?;
    let content = Content { key: &object.key, media_type: &object.media_type, attributes: object.attributes, payload };
    let record = content.record(&object.uid, object.stored_at)?;
    Ok(StoredRecord { partition: Partition(object.partition), offset: Offset(object.offset), record })
}

/// Key, media type, attributes, payload and time of a record, each with the comma before it.
pub(crate) fn push_content(text: &mut Vec<u8>, record: &Record) {
    text.extend_from_slice(b",\"key\":");
    push_json(text, &record.key);
    text.extend_from_slice(b",\"media_type\":");
    push_json(text, record.media_type.as_str());
    text.extend_from_slice(b",\"attributes\":[");
    for (at, (name, value)) in record.attributes.iter().enumerate() {
        text.extend_from_slice(if at > 0 { b",[" } else { b"[" });
        push_json(text, name);
        text.push(b',');
        push_json(text, value);
        text.push(b']');
    }
    match record.media_type.is_json().then(|| embeddable(&record.payload)).flatten() {
        Some(value) => {
            text.extend_from_slice(b"],\"value\":");
            text.extend_from_slice(value.as_bytes());
        }
        None => {
            text.extend_from_slice(b"],\"data_base64\":\"");
            text.extend_from_slice(STANDARD.encode(&record.payload).as_bytes());
            text.push(b'"');
        }
    }
    text.extend_from_slice(format!(",\"stored_at\":{}", record.stored_at).as_bytes());
}

pub(crate) fn push_json(text: &mut Vec<u8>, value: &str) {
    text.extend_from_slice(Value::from(value).to_string().as_bytes());
}

/// The payload as text, when it is one JSON value and nothing else.
fn embeddable(payload: &[u8]) -> Option<&str> {
    let raw: &RawValue = serde_json::from_slice(payload).ok()?;
    (raw.get().len() == payload.len()).then(|| raw.get())
}

/// A field that may hold `null`.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The payload of one of its two forms.
pub(crate) fn payload(value: Option<&RawValue>, data_base64: Option<&str>) -> Result<Bytes, String> {
    match (value, data_base64) {
        (Some(value), None) => Ok(Bytes::copy_from_slice(value.get().as_bytes())),
        (None, Some(data)) => STANDARD.decode(data).map(Bytes::from).map_err(|error| format!("its data_base64 cannot be decoded: {error}")),
        (Some(_), Some(_)) => Err("it has both value and data_base64".to_owned()),
        (None, None) => Err("it has neither value nor data_base64".to_owned()),
    }
}

/// What was read, before it is checked.
pub(crate) struct Content<'a> {
    pub(crate) key: &'a str,
    pub(crate) media_type: &'a str,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) payload: Bytes,
}

impl Content<'_> {
    /// The record, with every rule of records checked.
    pub(crate) fn record(self, uid: &str, stored_at: u64) -> Result<Record, String> {
        let words = |error: latent_core::CoreError| error.to_string();
        let uid = Uid::parse(uid).map_err(words)?;
        let media_type = MediaType::parse(self.media_type).map_err(words)?;
        let attributes = Attributes::stored(self.attributes).map_err(words)?;
        let new = NewRecord::new(None, self.key, media_type, Attributes::default(), self.payload).map_err(words)?;
        let mut record = new.into_record(uid, UnixMillis(stored_at));
        record.attributes = attributes;
        Ok(record)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn stored(media_type: &str, payload: &[u8], attributes: &[(&str, &str)]) -> StoredRecord {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let content = Content { key: "käse \"1\"", media_type, attributes, payload: Bytes::copy_from_slice(payload) };
        StoredRecord { partition: Partition(3), offset: Offset(42), record: content.record("u-1", 9).unwrap() }
    }

    /// B-042, B-077.
    #[test]
    fn the_path_and_the_form_of_an_object_are_pinned() {
        assert_eq!(object_path("a.b", Partition(3), Offset(42)), "a.b/p3/00000000000000000042.json");
        let json = encode(&stored("application/json", b"{\"b\":1, \"a\":[2.50]}", &[("Z", "1"), ("a", "x y")]));
        let expected = "{\"uid\":\"u-1\",\"partition\":3,\"offset\":42,\"key\":\"k\u{e4}se \\\"1\\\"\",\"media_type\":\"application/json\",\
                        \"attributes\":[[\"Z\",\"1\"],[\"a\",\"x y\"]],\"value\":{\"b\":1, \"a\":[2.50]},\"stored_at\":9}";
        assert_eq!(std::str::from_utf8(&json), Ok(expected));
        let plain = encode(&stored("text/plain", b"\0\xff", &[]));
        assert!(std::str::from_utf8(&plain).unwrap().contains("\"attributes\":[],\"data_base64\":\"AP8=\",\"stored_at\":9}"));
    }

    /// BUG-67.
    #[test]
    fn an_object_reads_back_byte_for_byte_whatever_the_payload_is() {
        let payloads: [(&str, &[u8]); 11] = [
            ("application/json", b"{\"b\":1,\"a\":1e2,\"b\":\"\\u00e4\"}"),
            ("application/json", b"null"),
            ("application/json", b" {} "),
            ("application/json", b"{"),
            ("application/json", b""),
            ("application/json", b"\"\\ud800\""),
            ("application/json", b"1.0000000000000000000001"),
            ("application/cloudevents+json", b"[1,\n 2]"),
            ("application/octet-stream", b"{}"),
            ("text/plain", b"\0\xff\xfe"),
            ("text/plain", b""),
        ];
        for (media_type, payload) in payloads {
            let stored = stored(media_type, payload, &[("a", ""), ("Latent-Dead-Reason", "x")]);
            let object = encode(&stored);
            assert_eq!(decode(&object), Ok(stored.clone()), "{}", object.escape_ascii());
            assert_eq!(encode(&decode(&object).unwrap()), object);
        }
        let deep = stored("application/json", ("[".repeat(5_000) + &"]".repeat(5_000)).as_bytes(), &[]);
        assert_eq!(decode(&encode(&deep)), Ok(deep));
    }

    #[test]
    fn what_is_cut_or_says_more_is_no_object() {
        let object = encode(&stored("application/json", b"{}", &[("a", "b")]));
        for length in 0..object.len() {
            assert!(decode(&object[..length]).is_err(), "{length}");
        }
        let text = String::from_utf8(object.to_vec()).unwrap();
        for changed in [
            text.replace("\"uid\"", "\"extra\":1,\"uid\""),
            text.replace("\"value\":{}", "\"value\":{},\"data_base64\":\"\""),
            text.replace("u-1", ""),
        ] {
            assert!(decode(changed.as_bytes()).is_err(), "{changed}");
        }
    }

    #[test]
    fn the_largest_event_fits_an_object_and_more_is_refused() {
        let largest = stored("text/plain", &vec![0xff; latent_core::limits::EVENT_BYTES.max_usize()], &[]);
        let object = encode(&largest);
        assert!((object.len() as u64) < limits::COLD_OBJECT_BYTES.max);
        assert_eq!(decode(&object), Ok(largest));
        let padded = |bytes: u64| [&*object, &vec![b' '; usize::try_from(bytes).unwrap() - object.len()]].concat();
        assert!(decode(&padded(limits::COLD_OBJECT_BYTES.max)).is_ok() && decode(&padded(limits::COLD_OBJECT_BYTES.max + 1)).is_err());
    }
}
