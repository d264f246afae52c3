//! An event as the commands print it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latent_core::{MediaType, RESERVED_ATTRIBUTE_PREFIX};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::control::Event;
use crate::error::CliError;
use crate::output::{Output, printable};
use crate::timestamp::timestamp_seconds;

/// The stable document of `fetch`, `find` and `tail`.
#[derive(Debug, Serialize)]
struct EventDocument<'e> {
    topic: &'e str,
    partition: u32,
    offset: u64,
    uid: &'e str,
    key: &'e str,
    stored_at: u64,
    value: &'e RawValue,
    media_type: &'e str,
    attributes: AttributesDocument<'e>,
}

/// An object in the order of the event: names are unique.
#[derive(Debug)]
pub(crate) struct AttributesDocument<'e>(&'e [(String, String)]);

impl<'e> AttributesDocument<'e> {
    /// Those that a client gave; those of the host come behind them.
    pub(crate) fn of_client(attributes: &'e [(String, String)]) -> Self {
        let is_host = |name: &str| {
            name.get(..RESERVED_ATTRIBUTE_PREFIX.len()).is_some_and(|head| head.eq_ignore_ascii_case(RESERVED_ATTRIBUTE_PREFIX))
        };
        let count = attributes.iter().take_while(|(name, _)| !is_host(name)).count();
        Self(attributes.get(..count).unwrap_or(attributes))
    }
}

impl Serialize for AttributesDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Prints the events of a topic: a document each for machines, a line each for people, with headings where one watches.
#[derive(Debug)]
pub(super) struct EventPrinter<'t> {
    topic: &'t str,
    headings: Headings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Headings {
    Due,
    Done,
}

impl<'t> EventPrinter<'t> {
    /// Nothing printed yet.
    pub(super) fn new(topic: &'t str, output: &Output) -> Self {
        Self { topic, headings: if output.is_watched() { Headings::Due } else { Headings::Done } }
    }

    /// Prints one event.
    pub(super) fn print(&mut self, output: &mut Output, event: &Event) -> Result<(), CliError> {
        if self.headings == Headings::Due {
            self.headings = Headings::Done;
            output.text(&columns(["PART", "OFFSET", "STORED AT", "KEY", "UID", "EVENT"]))?;
        }
        let value = value_of(event)?;
        let document = EventDocument {
            topic: self.topic,
            partition: event.partition,
            offset: event.offset,
            uid: &event.uid,
            key: &event.key,
            stored_at: event.stored_at,
            value: &value,
            media_type: &event.media_type,
            attributes: AttributesDocument(&event.attributes),
        };
        output.line(&document, || line(event, &value))
    }
}

/// Characters of a key and of a uid that people see.
const KEY_CHARS_MAX: usize = 24;
const UID_CHARS_MAX: usize = 16;

fn line(event: &Event, value: &RawValue) -> String {
    let key = if event.key.is_empty() { "-".to_owned() } else { shortened(&event.key, KEY_CHARS_MAX) };
    let (partition, offset) = (format!("p{}", event.partition), event.offset.to_string());
    let (stored_at, uid) = (timestamp_seconds(event.stored_at), shortened(&event.uid, UID_CHARS_MAX));
    columns([&partition, &offset, &stored_at, &key, &uid, &printable(&readable(event, value))])
}

/// As wide as the usual cell; a wider one moves its own line alone, since what comes later is not known.
fn columns([partition, offset, stored_at, key, uid, event]: [&str; 6]) -> String {
    format!("{partition:<4} {offset:<6} {stored_at:<20} {key:<10} {uid:<UID_CHARS_MAX$} {event}")
}

fn shortened(text: &str, chars_max: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= chars_max {
        return text;
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// What people can read of a payload: text as it is, on one line; bytes that are none as machines get them.
pub(crate) fn readable<'e>(event: &'e Event, value: &'e RawValue) -> Cow<'e, str> {
    if json_of(event).is_some() {
        return value.get().into();
    }
    let declared_text = event.media_type.get(..5).is_some_and(|kind| kind.eq_ignore_ascii_case("text/"));
    let is_plain = |text: &str| !text.contains(|c: char| c.is_control() && c != '\t');
    match str::from_utf8(&event.payload.0) {
        Ok(text) if declared_text => text.replace("\r\n", " ").replace(['\n', '\r'], " ").into(),
        Ok(text) if is_plain(text) => text.into(),
        Ok(_) | Err(_) => value.get().into(),
    }
}

/// A JSON payload as it was published, on one line; anything else as `{"data_base64":…}`.
pub(crate) fn value_of(event: &Event) -> Result<Box<RawValue>, CliError> {
    let value = match json_of(event) {
        Some(value) => Ok(value),
        None => RawValue::from_string(format!("{{\"data_base64\":\"{}\"}}", STANDARD.encode(&event.payload.0))),
    };
    value.map_err(|error| CliError::Output { reason: error.to_string() })
}

fn json_of(event: &Event) -> Option<Box<RawValue>> {
    let json = MediaType::parse(&event.media_type).is_ok_and(|media_type| media_type.is_json());
    if json { verbatim_json(&event.payload.0) } else { None }
}

fn verbatim_json(payload: &[u8]) -> Option<Box<RawValue>> {
    // Checked for depth as well, so that whatever reads these lines can read the value.
    serde_json::from_slice::<serde_json::Value>(payload).ok()?;
    let text = str::from_utf8(payload).ok()?;
    // In valid JSON a line break stands between tokens alone, where a space means the same.
    let one_line = if text.contains(['\n', '\r']) { Cow::Owned(text.replace(['\n', '\r'], " ")) } else { Cow::Borrowed(text) };
    RawValue::from_string(one_line.trim().to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Payload;

    fn event(media_type: &str, payload: &'static [u8]) -> Event {
        Event {
            partition: 0,
            offset: 0,
            uid: "u".to_owned(),
            key: String::new(),
            media_type: media_type.to_owned(),
            attributes: Vec::new(),
            payload: Payload(payload.into()),
            stored_at: 0,
        }
    }

    #[test]
    fn attributes_are_one_object_in_their_order() {
        let attributes = [("B", "2"), ("a", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(serde_json::to_string(&AttributesDocument(&attributes)).unwrap(), r#"{"B":"2","a":"1"}"#);
        assert_eq!(serde_json::to_string(&AttributesDocument(&[])).unwrap(), "{}");
    }

    fn shown(media_type: &str, payload: &'static [u8]) -> String {
        value_of(&event(media_type, payload)).unwrap().to_string()
    }

    #[test]
    fn json_is_shown_as_it_was_published_on_one_line() {
        let cases: [(&[u8], &str); 4] = [
            (b"{\"b\":1.50,\"a\":12345678901234567890123}", "{\"b\":1.50,\"a\":12345678901234567890123}"),
            (b" {\r\n \"a\" : \"x\\ny\" }\n", "{   \"a\" : \"x\\ny\" }"),
            (b"null", "null"),
            ("\"\u{e9}\"".as_bytes(), "\"\u{e9}\""),
        ];
        for (payload, text) in cases {
            assert_eq!(shown("application/json", payload), text);
        }
    }

    #[test]
    fn anything_else_is_shown_as_base64() {
        let deep: &'static [u8] = Box::leak("[".repeat(200).into_bytes().into_boxed_slice());
        for (media_type, payload) in
            [("application/json", &b"{"[..]), ("application/json", b"\"\xff\""), ("text/plain", b"{}"), ("application/json", deep)]
        {
            assert!(shown(media_type, payload).starts_with("{\"data_base64\":\""), "{payload:?}");
        }
    }

    #[test]
    fn people_see_text_as_text_and_bytes_as_base64() {
        let cases: [(&str, &[u8], &str); 9] = [
            ("application/json", b"{\"a\":1}", "{\"a\":1}"),
            ("application/json", b"{broken", "{broken"),
            ("text/plain", "gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            ("text/plain; charset=utf-8", b"two\r\nlines\x1b[2J", "two lines\u{fffd}[2J"),
            ("TEXT/csv", b"a\tb\n", "a\tb "),
            ("application/octet-stream", b"as text", "as text"),
            ("application/octet-stream", b"with\0nul", "{\"data_base64\":\"d2l0aABudWw=\"}"),
            ("text/plain", b"\xff", "{\"data_base64\":\"/w==\"}"),
            ("application/octet-stream", b"", ""),
        ];
        for (media_type, payload, text) in cases {
            let event = event(media_type, payload);
            let line = line(&event, &value_of(&event).unwrap());
            assert_eq!(line, columns(["p0", "0", "1970-01-01T00:00:00Z", "-", "u", text]), "{media_type} {payload:?}");
        }
    }

    #[test]
    fn long_keys_and_uids_are_cut_and_short_ones_are_not() {
        let cases = [("", ""), (&*"u".repeat(16), &*"u".repeat(16)), (&*"\u{fc}".repeat(17), &*("\u{fc}".repeat(15) + "…"))];
        for (uid, expected) in cases {
            assert_eq!(shortened(uid, UID_CHARS_MAX), expected);
        }
    }
}
