//! An event as the commands print it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latent_core::MediaType;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::control::Event;
use crate::error::CliError;
use crate::output::{Output, printable};
use crate::timestamp::timestamp;

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
}

/// Prints one event.
pub(super) fn print(output: &mut Output, topic: &str, event: &Event) -> Result<(), CliError> {
    let value = value_of(event)?;
    let document = EventDocument {
        topic,
        partition: event.partition,
        offset: event.offset,
        uid: &event.uid,
        key: &event.key,
        stored_at: event.stored_at,
        value: &value,
    };
    output.line(&document, || {
        let key = if event.key.is_empty() { "-" } else { &event.key };
        printable(&format!("p{} {} {} {key} {} {value}", event.partition, event.offset, timestamp(event.stored_at), event.uid))
    })
}

/// A JSON payload as it was published, on one line; anything else as `{"data_base64":…}`.
fn value_of(event: &Event) -> Result<Box<RawValue>, CliError> {
    let payload = &event.payload.0;
    let json = MediaType::parse(&event.media_type).is_ok_and(|media_type| media_type.is_json());
    let verbatim = if json { verbatim_json(payload) } else { None };
    let value = match verbatim {
        Some(value) => Ok(value),
        None => RawValue::from_string(format!("{{\"data_base64\":\"{}\"}}", STANDARD.encode(payload))),
    };
    value.map_err(|error| CliError::Output { reason: error.to_string() })
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

    fn shown(media_type: &str, payload: &'static [u8]) -> String {
        let event = Event {
            partition: 0,
            offset: 0,
            uid: "u".to_owned(),
            key: String::new(),
            media_type: media_type.to_owned(),
            attributes: Vec::new(),
            payload: Payload(payload.into()),
            stored_at: 0,
        };
        value_of(&event).unwrap().to_string()
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
}
