//! A record as a message of a stream and back (25-joins, *The record*): the body is the stored event's JSON with the payload embedded byte
//! for byte, everything else that a record has stands in headers. No I/O.
//!
//! A payload is embedded as `value` where its media type says JSON and its bytes are exactly one JSON value without white space around it;
//! else it travels as `data_base64`. Either way reading gives the bytes that were published. Headers have no order on the way, so the body
//! says the order of attributes where there are several.

use std::borrow::Cow;
use std::str::FromStr as _;

use async_nats::header::{HeaderName, HeaderValue};
use async_nats::{HeaderMap, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use latent_core::{Attributes, MediaType, NewRecord, Partition, Record, Uid, UnixMillis};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The uid, for the broker's memory of ids.
pub(super) const ID: &str = "Nats-Msg-Id";
/// The stream that must take the message.
pub(super) const EXPECTED_STREAM: &str = "Nats-Expected-Stream";
/// The sequence that must be the last one of the stream.
const EXPECTED_LAST: &str = "Nats-Expected-Last-Sequence";
/// The uid that the last message of the stream must have.
const EXPECTED_LAST_ID: &str = "Nats-Expected-Last-Msg-Id";
const CONTENT_TYPE: &str = "Content-Type";
const KEY: &str = "Lsf-Event-Key";
const ATTRIBUTE_PREFIX: &str = "Lsf-Attr-";

/// What must be the last of the stream for a message to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Behind {
    pub(super) sequence: u64,
    /// Of which record, where that is known. A sequence alone may by then be somebody else's.
    pub(super) uid: Option<Uid>,
}

/// A record ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encoded {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Encoded {
    /// Lets the stream take it there only.
    pub(super) fn expect(&mut self, behind: Option<&Behind>) {
        let Some(Behind { sequence, uid }) = behind else { return };
        self.headers.insert(EXPECTED_LAST, sequence.to_string());
        if let Some(uid) = uid {
            self.headers.insert(EXPECTED_LAST_ID, uid.as_str());
        }
    }

    /// Bytes of it that the broker's `max_payload` counts: header block and body.
    pub(super) fn counted_bytes(&self) -> usize {
        const BLOCK: usize = "NATS/1.0\r\n\r\n".len();
        const LINE: usize = ": \r\n".len();
        let lines = self.headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (text(name), value)));
        BLOCK + lines.map(|(name, value)| name.len() + value.as_str().len() + LINE).sum::<usize>() + self.body.len()
    }
}

fn text(name: &HeaderName) -> &str {
    name.as_ref()
}

/// Makes the message of a record for `stream`.
///
/// # Errors
/// What of it fits no header. A validated record always fits.
pub(super) fn encode(record: &NewRecord, uid: &Uid, partition: Partition, stored_at: UnixMillis, stream: &str) -> Result<Encoded, String> {
    let mut headers = HeaderMap::new();
    let mut add = |name: &str, value: &str| -> Result<(), String> {
        let unfit = |what: &str| format!("{name} cannot be sent as a header: its {what} holds what a header may not");
        let value = HeaderValue::from_str(value).map_err(|_| unfit("value"))?;
        headers.append(HeaderName::from_str(name).map_err(|_| unfit("name"))?, value);
        Ok(())
    };
    add(ID, uid.as_str())?;
    add(EXPECTED_STREAM, stream)?;
    add(CONTENT_TYPE, record.media_type().as_str())?;
    if is_header_text(record.key()) {
        add(KEY, record.key())?;
    }
    for (name, value) in record.attributes().iter() {
        add(&format!("{ATTRIBUTE_PREFIX}{name}"), value)?;
    }
    Ok(Encoded { headers, body: body(record, partition, stored_at) })
}

/// Text that D-04 allows in a header.
fn is_header_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
}

fn body(record: &NewRecord, partition: Partition, stored_at: UnixMillis) -> Bytes {
    let payload = record.payload();
    let embedded = record.media_type().is_json().then(|| embeddable(payload)).flatten();
    let mut text = Vec::with_capacity(record.key().len() + 128 + embedded.map_or(payload.len() / 3 * 4 + 4, str::len));
    text.extend_from_slice(format!("{{\"partition\":{partition},\"offset\":0,\"key\":").as_bytes());
    push_json(&mut text, record.key());
    text.extend_from_slice(format!(",\"stored_at\":{stored_at}").as_bytes());
    if record.attributes().iter().len() > 1 {
        text.extend_from_slice(b",\"attribute_order\":[");
        for (at, (name, _)) in record.attributes().iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            push_json(&mut text, name);
        }
        text.push(b']');
    }
    match embedded {
        Some(value) => {
            text.extend_from_slice(b",\"value\":");
            text.extend_from_slice(value.as_bytes());
        }
        None => {
            text.extend_from_slice(b",\"data_base64\":\"");
            text.extend_from_slice(STANDARD.encode(payload).as_bytes());
            text.push(b'"');
        }
    }
    text.push(b'}');
    Bytes::from(text)
}

/// The payload as text, when it is one JSON value and nothing else.
fn embeddable(payload: &[u8]) -> Option<&str> {
    let raw: &RawValue = serde_json::from_slice(payload).ok()?;
    (raw.get().len() == payload.len()).then(|| raw.get())
}

fn push_json(text: &mut Vec<u8>, value: &str) {
    text.extend_from_slice(Value::from(value).to_string().as_bytes());
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    stored_at: u64,
    #[serde(borrow, default)]
    attribute_order: Option<Vec<Cow<'a, str>>>,
    /// `null` is a value, too.
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    data_base64: Option<Cow<'a, str>>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The uid that a message is known by: its id, or, without one, `metadata.uid` of the body's value (B-060). Of several ids the first
/// counts, as it does for the broker; a header whose name differs in case is another header.
pub(super) fn uid_of(headers: Option<&HeaderMap>, body: &[u8]) -> Option<Uid> {
    match id_of(headers) {
        Some(id) => Uid::parse(id).ok(),
        None => uid_of_body(body),
    }
}

/// The id in the headers.
pub(super) fn id_of(headers: Option<&HeaderMap>) -> Option<&str> {
    headers?.get(ID).map(HeaderValue::as_str)
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
}

/// `value.metadata.uid` of a body.
pub(super) fn uid_of_body(body: &[u8]) -> Option<Uid> {
    #[derive(Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        value: Named<'a>,
    }
    let outer: Outer<'_> = serde_json::from_slice(body).ok()?;
    Uid::parse(&outer.value.metadata.uid).ok()
}

/// The record of a message.
///
/// # Errors
/// Why it is none, in words.
pub(super) fn decode(message: &Message) -> Result<Record, String> {
    decode_parts(message.headers.as_ref(), &message.payload)
}

/// [`decode`] of what was read singly.
pub(super) fn decode_parts(headers: Option<&HeaderMap>, content: &Bytes) -> Result<Record, String> {
    let body: Body<'_> = serde_json::from_slice(content).map_err(|error| format!("its body is no stored event: {error}"))?;
    let uid = uid_of(headers, content).ok_or("it has no uid")?;
    let (payload, plain) = match (body.value, &body.data_base64) {
        (Some(value), None) => (content.slice_ref(value.get().as_bytes()), "application/json"),
        (None, Some(data)) => {
            let data = STANDARD.decode(data.as_bytes()).map_err(|error| format!("its data_base64 cannot be decoded: {error}"))?;
            (Bytes::from(data), "application/octet-stream")
        }
        (Some(_), Some(_)) => return Err("it has both value and data_base64".to_owned()),
        (None, None) => return Err("it has neither value nor data_base64".to_owned()),
    };
    let media_type = headers.and_then(|headers| headers.get(CONTENT_TYPE)).map_or(plain, HeaderValue::as_str);
    let media_type = MediaType::parse(media_type).map_err(|error| error.to_string())?;
    let attributes = attributes(headers, body.attribute_order.as_deref().unwrap_or_default())?;
    // The limits of a new record hold; what the host wrote is checked apart.
    let record = NewRecord::new(None, &body.key, media_type, Attributes::default(), payload).map_err(|error| error.to_string())?;
    let mut record = record.into_record(uid, UnixMillis(body.stored_at));
    record.attributes = attributes;
    Ok(record)
}

fn attributes(headers: Option<&HeaderMap>, order: &[Cow<'_, str>]) -> Result<Attributes, String> {
    let mut pairs = Vec::new();
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        let name = text(name);
        let Some(name) = name
            .get(..ATTRIBUTE_PREFIX.len())
            .filter(|head| head.eq_ignore_ascii_case(ATTRIBUTE_PREFIX))
            .and_then(|_| name.get(ATTRIBUTE_PREFIX.len()..))
        else {
            continue;
        };
        pairs.extend(values.iter().map(|value| (name.to_owned(), value.as_str().to_owned())));
    }
    let place = |name: &str| order.iter().position(|ordered| ordered == name).unwrap_or(order.len());
    // Reserved names last, as they were given: `stored` expects them so, and a foreign message may say no order.
    let is_host = |name: &str| {
        name.get(..latent_core::RESERVED_ATTRIBUTE_PREFIX.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(latent_core::RESERVED_ATTRIBUTE_PREFIX))
    };
    pairs.sort_by(|(a, _), (b, _)| (is_host(a), place(a), a).cmp(&(is_host(b), place(b), b)));
    Attributes::stored(pairs).map_err(|error| error.to_string())
}

/// Whether a stored record is the event that is published again (B-056): key, media type, a client's attributes and payload. JSON payloads
/// are compared as values.
pub(super) fn is_same_event(stored: &Record, new: &NewRecord) -> bool {
    if stored.same_content(new) {
        return true;
    }
    if !stored.media_type.is_json() {
        return false;
    }
    let values = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    let with_stored_payload = NewRecord::new(None, new.key(), new.media_type().clone(), new.attributes().clone(), stored.payload.clone());
    // Everything but the payload first: it costs nothing.
    with_stored_payload.is_ok_and(|same| stored.same_content(&same))
        && values(&stored.payload).is_some_and(|value| values(new.payload()) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn new(key: &str, media_type: &str, attributes: &[(&str, &str)], payload: &[u8]) -> NewRecord {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (media_type, attributes) = (MediaType::parse(media_type).unwrap(), Attributes::parse(attributes).unwrap());
        NewRecord::new(None, key, media_type, attributes, Bytes::copy_from_slice(payload)).unwrap()
    }

    fn there_and_back(record: &NewRecord) -> Record {
        let uid = Uid::parse("u-1").unwrap();
        let encoded = encode(record, &uid, Partition(3), UnixMillis(17), "av_t").unwrap();
        let read = decode_parts(Some(&encoded.headers), &encoded.body).unwrap();
        assert_eq!((read.uid.as_str(), read.stored_at), ("u-1", UnixMillis(17)));
        assert!(read.same_content(record) && is_same_event(&read, record), "{read:?}");
        read
    }

    #[test]
    fn json_is_embedded_as_it_was_written_and_everything_else_as_base64() {
        let uid = Uid::parse("u").unwrap();
        let body = |media_type: &str, payload: &str| {
            let encoded = encode(&new("k\"", media_type, &[], payload.as_bytes()), &uid, Partition(3), UnixMillis(17), "av_t").unwrap();
            String::from_utf8(encoded.body.to_vec()).unwrap()
        };
        let start = r#"{"partition":3,"offset":0,"key":"k\"","stored_at":17,"#;
        assert_eq!(body("application/json", r#"{"b":1, "a":[ ]}"#), format!(r#"{start}"value":{{"b":1, "a":[ ]}}}}"#));
        for (media_type, payload, base64) in [
            ("application/json", " 1", "IDE="),
            ("application/json", "1\n", "MQo="),
            ("application/json", "1 2", "MSAy"),
            ("application/json", "", ""),
            ("application/json", "{\"a\":\"\n\"}", "eyJhIjoiCiJ9"),
            ("text/plain", "1", "MQ=="),
        ] {
            assert_eq!(body(media_type, payload), format!(r#"{start}"data_base64":"{base64}"}}"#), "{payload:?}");
        }
    }

    #[test]
    fn what_a_message_says_of_a_record_stands_in_its_headers() {
        let record = new("key", "text/plain", &[("B", "x y"), ("a", "")], b"x");
        let encoded = encode(&record, &Uid::parse("u").unwrap(), Partition(0), UnixMillis(0), "av_t").unwrap();
        let header = |name: &str| encoded.headers.get(name).map(HeaderValue::as_str);
        assert_eq!((header("Nats-Msg-Id"), header("Nats-Expected-Stream")), (Some("u"), Some("av_t")));
        assert_eq!((header("Content-Type"), header("Lsf-Event-Key")), (Some("text/plain"), Some("key")));
        assert_eq!((header("Lsf-Attr-B"), header("Lsf-Attr-a"), encoded.headers.len()), (Some("x y"), Some(""), 6));
        for key in ["", "two words", "schlüssel", "a\r\nNats-Msg-Id: x"] {
            let encoded = encode(&new(key, "text/plain", &[], b""), &Uid::parse("u").unwrap(), Partition(0), UnixMillis(0), "s").unwrap();
            assert!(encoded.headers.get("Lsf-Event-Key").is_none(), "{key:?}");
        }
    }

    #[test]
    fn counted_bytes_are_those_that_go_over_the_wire() {
        let encoded = encode(&new("", "text/plain", &[], b"x"), &Uid::parse("u").unwrap(), Partition(0), UnixMillis(0), "s").unwrap();
        let block = "NATS/1.0\r\nNats-Msg-Id: u\r\nNats-Expected-Stream: s\r\nContent-Type: text/plain\r\n\r\n";
        assert_eq!(encoded.counted_bytes(), block.len() + encoded.body.len());
    }

    #[test]
    fn attributes_keep_their_order_and_those_of_the_host_come_last() {
        let read = there_and_back(&new("k", "text/plain", &[("b", "1"), ("A", "2"), ("a-b", "3")], b"x"));
        assert!(read.attributes.iter().map(|(name, _)| name).eq(["b", "A", "a-b"]));
        let host = vec![("Latent-Dead-Reason".to_owned(), "x".to_owned())];
        let attributes = Attributes::parse(vec![("z".to_owned(), "1".to_owned())]).unwrap().with_host(host).unwrap();
        let parked = NewRecord::new(None, "", MediaType::json(), attributes.clone(), Bytes::from_static(b"null")).unwrap();
        assert_eq!(there_and_back(&parked).attributes, attributes);
    }

    #[test]
    fn what_is_no_record_says_why() {
        let mut headers = HeaderMap::new();
        headers.insert(ID, "u");
        for (body, problem) in [
            (r#"{"key":"k","stored_at":1}"#, "neither"),
            (r#"{"key":"k","stored_at":1,"value":1,"data_base64":""}"#, "both"),
            (r#"{"key":"k","stored_at":1,"data_base64":"%"}"#, "decoded"),
            (r#"{"key":"k","key":"l","stored_at":1,"value":1}"#, "duplicate"),
            (r#"{"key":"k","stored_at":-1,"value":1}"#, "stored event"),
            ("[]", "stored event"),
            ("", "stored event"),
            ("\u{fffd}", "stored event"),
        ] {
            let told = decode_parts(Some(&headers), &Bytes::from(body.to_owned())).unwrap_err();
            assert!(told.contains(problem), "{body}: {told}");
        }
        let long = format!(r#"{{"key":"{}","stored_at":1,"value":1}}"#, "k".repeat(1_025));
        assert!(decode_parts(Some(&headers), &Bytes::from(long)).is_err());
        assert_eq!(decode_parts(None, &Bytes::from_static(br#"{"key":"","stored_at":1,"value":1}"#)), Err("it has no uid".to_owned()));
    }

    #[test]
    fn the_first_id_counts_and_only_under_its_own_name() {
        let body = br#"{"key":"","stored_at":1,"value":{"metadata":{"uid":"inner"}}}"#;
        let uid = |headers: &[(&str, &str)]| {
            let mut map = HeaderMap::new();
            headers.iter().for_each(|(name, value)| map.append(*name, *value));
            uid_of(Some(&map), body).map(|uid| uid.as_str().to_owned())
        };
        assert_eq!(uid(&[("Nats-Msg-Id", "a"), ("Nats-Msg-Id", "b")]).as_deref(), Some("a"));
        assert_eq!(uid(&[("nats-msg-id", "a")]).as_deref(), Some("inner"));
        assert_eq!(uid(&[("X-Nats-Msg-Id", "a")]).as_deref(), Some("inner"));
        assert_eq!(uid(&[("Nats-Msg-Id", "not fit")]), None);
        assert_eq!(uid_of(None, br#"{"value":{"metadata":{"uid":7}}}"#), None);
    }

    #[test]
    fn json_that_means_the_same_is_the_same_event() {
        let stored = there_and_back(&new("k", "application/json", &[], br#"{"a":1,"b":2}"#));
        assert!(is_same_event(&stored, &new("k", "application/json", &[], br#"{ "b":2, "a":1 }"#)));
        for other in [
            new("k", "application/json", &[], br#"{"a":1,"b":3}"#),
            new("l", "application/json", &[], br#"{"a":1,"b":2}"#),
            new("k", "application/cloudevents+json", &[], br#"{"a":1,"b":2}"#),
            new("k", "application/json", &[("x", "1")], br#"{"a":1,"b":2}"#),
            new("k", "application/json", &[], b"{"),
        ] {
            assert!(!is_same_event(&stored, &other), "{other:?}");
        }
        let text = there_and_back(&new("k", "text/plain", &[], b"1"));
        assert!(!is_same_event(&text, &new("k", "text/plain", &[], b" 1")));
    }

    proptest! {
        #[test]
        fn any_record_comes_back_byte_for_byte(key in ".{0,64}", json in any::<bool>(), payload in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            ".{0,32}".prop_map(String::into_bytes),
            r#"[ \n]?(null|-?[0-9]{1,30}(\.[0-9]{1,9})?|"[a-z\\u00e4]{0,8}"|\[ ?1 ?\])[ \n]?"#.prop_map(String::into_bytes),
        ]) {
            let media_type = if json { "application/json" } else { "application/octet-stream" };
            there_and_back(&new(&key, media_type, &[], &payload));
        }
    }
}
