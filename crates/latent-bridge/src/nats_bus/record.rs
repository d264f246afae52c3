//! Single messages of a stream: by sequence, the first and the last of a partition. The stream's leader is asked, and answers in JSON.
//!
//! A direct get (NATS ADR-31) would be shorter, but it gives a message as a message: one whose headers the client cannot read ends the
//! connection, with everything that is in flight on it. Who may publish to a partition could end it so at will. Here such a message is
//! only told from others ([`Single::headers`]); the rules are the client's own, so that a message is the same however it is read.

use std::str::FromStr as _;

use async_nats::header::{HeaderName, HeaderValue};
use async_nats::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use latent_core::{Record, Uid};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, ApiFault};
use super::body;
use super::words::told;

/// `err_code` of a message that is not there.
const NO_MESSAGE: u16 = 10_037;
/// Begins every header block.
const VERSION: &str = "NATS/1.0";

/// A message that was read singly.
#[derive(Debug, Clone)]
pub(super) struct Single {
    pub(super) sequence: u64,
    /// `None`: the client could not read them. Such a message is of another program and has no uid.
    pub(super) headers: Option<HeaderMap>,
    pub(super) body: Bytes,
}

impl Single {
    /// The record that it is.
    ///
    /// # Errors
    /// Why it is none, in words.
    pub(super) fn record(&self) -> Result<Record, String> {
        let headers = self.headers.as_ref().ok_or("its headers cannot be read")?;
        body::decode_parts(Some(headers), &self.body)
    }

    /// The uid that it is known by.
    pub(super) fn uid(&self) -> Option<Uid> {
        body::uid_of(Some(self.headers.as_ref()?), &self.body)
    }
}

/// Which one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which<'s> {
    /// The one at this sequence.
    At(u64),
    /// The first of this subject at this sequence or behind it.
    NextOf(&'s str, u64),
    /// The last of this subject.
    LastOf(&'s str),
}

impl Which<'_> {
    fn request(self) -> Value {
        match self {
            Self::At(sequence) => json!({ "seq": sequence }),
            Self::NextOf(subject, from) => json!({ "seq": from.max(1), "next_by_subj": subject }),
            Self::LastOf(subject) => json!({ "last_by_subj": subject }),
        }
    }
}

/// How a stream is read singly.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) stream: String,
    pub(super) replicas: u32,
}

impl Source {
    /// The message, or `None` when there certainly is none.
    pub(super) async fn get(&self, api: &Api, which: Which<'_>) -> Result<Option<Single>, ApiFault> {
        #[derive(Deserialize)]
        struct Got {
            message: Stored,
        }
        #[derive(Deserialize)]
        struct Stored {
            seq: u64,
            #[serde(default)]
            hdrs: String,
            #[serde(default)]
            data: String,
        }
        let subject = format!("STREAM.MSG.GET.{}", self.stream);
        let stored = match api.read::<Got>(&subject, &which.request()).await {
            Ok(got) => got.message,
            Err(fault) if fault.is(NO_MESSAGE) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let decoded =
            |text: &str| STANDARD.decode(text).map_err(|error| ApiFault::Unreadable { subject: subject.clone(), problem: told(error) });
        let headers = parse_headers(&decoded(&stored.hdrs)?);
        Ok(Some(Single { sequence: stored.seq, headers, body: Bytes::from(decoded(&stored.data)?) }))
    }
}

/// The record that a message of a topic's stream is, for who was delivered one by other means than a bus.
///
/// # Errors
/// Why it is none, in words without its content.
pub fn read_record(header_block: &[u8], content: &Bytes) -> Result<Record, String> {
    let headers = parse_headers(header_block).ok_or("its headers cannot be read")?;
    body::decode_parts(Some(&headers), content)
}

/// The headers of a block, where the client could read it. It is strict: on anything else it ends the connection, or itself.
fn parse_headers(block: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    if block.is_empty() {
        return Some(headers);
    }
    let mut lines = std::str::from_utf8(block).ok()?.lines().peekable();
    let status = lines.next()?.strip_prefix(VERSION)?.trim();
    let status = status.split_once(' ').map_or(status, |(status, _)| status.trim());
    if !status.is_empty() {
        status.parse::<StatusCode>().ok()?;
    }
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let (name, value) = line.split_once(':')?;
        let mut value = value.trim_start().to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with(char::is_whitespace)) {
            value.push_str(more);
        }
        headers.append(HeaderName::from_str(name).ok()?, HeaderValue::from_str(value.trim_end()).ok()?);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_block_is_read_line_by_line() {
        let headers = parse_headers(b"NATS/1.0\r\nNats-Msg-Id: a\r\nA:  b c \r\nA: d\r\n e\r\n\r\n").unwrap();
        assert_eq!(headers.get("Nats-Msg-Id").unwrap().as_str(), "a");
        assert!(headers.get_all("A").map(HeaderValue::as_str).eq(["b c", "d e"]));
        assert_eq!(headers.len(), 2, "names");
        assert!(parse_headers(b"").unwrap().is_empty() && parse_headers(b"NATS/1.0 503 Words\r\nA: b\r\n\r\n").unwrap().len() == 1);
    }

    #[test]
    fn what_the_client_cannot_read_is_no_header_block() {
        let unreadable: [&[u8]; 8] = [
            b"NATS/1.0\r\nnone\r\n\r\n",
            b"NATS/1.0\r\nA: \xff\r\n\r\n",
            b"NATS/1.0\r\na b: c\r\n\r\n",
            b"NATS/2.0\r\nA: b\r\n\r\n",
            b"NATS/1.0 5\r\nA: b\r\n\r\n",
            b"NATS/1.0x\r\nA: b\r\n\r\n",
            b"NATS/1.0\r\nA: b\rc\r\n\r\n",
            b"\r\n",
        ];
        for block in unreadable {
            assert_eq!(parse_headers(block), None, "{}", block.escape_ascii());
        }
    }

    #[test]
    fn each_question_has_its_form() {
        assert_eq!(Which::At(7).request(), json!({ "seq": 7 }));
        assert_eq!(Which::NextOf("t.p0", 0).request(), json!({ "seq": 1, "next_by_subj": "t.p0" }));
        assert_eq!(Which::LastOf("t.p0").request(), json!({ "last_by_subj": "t.p0" }));
    }
}
