//! Single messages of a stream: by sequence, the first and the last of a partition. Direct get (NATS ADR-31) where the stream allows it,
//! else the stream leader's own get.
//!
//! Any replica answers a direct get, also one that is behind. What such an answer *lacks* is therefore asked again from the leader where a
//! stream has several replicas; what it *has* is true.

use std::str::FromStr as _;

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, ApiFault};

/// `err_code` of a message that is not there.
const NO_MESSAGE: u16 = 10_037;
/// Status of a direct get that found nothing.
const NOT_FOUND: u16 = 404;
/// Header that a direct get adds.
const SEQUENCE: &str = "Nats-Sequence";

/// A message that was read singly.
#[derive(Debug, Clone)]
pub(super) struct Single {
    pub(super) sequence: u64,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
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
    pub(super) direct: bool,
    pub(super) replicas: u32,
}

impl Source {
    /// The message, or `None` when there certainly is none.
    pub(super) async fn get(&self, api: &Api, which: Which<'_>) -> Result<Option<Single>, ApiFault> {
        // The last one of a replica that is behind is another one than the leader's.
        let leader_only = !self.direct || (self.replicas > 1 && matches!(which, Which::LastOf(_)));
        if leader_only {
            return self.leader_get(api, which).await;
        }
        match self.direct_get(api, which).await? {
            None if self.replicas > 1 => self.leader_get(api, which).await,
            found => Ok(found),
        }
    }

    async fn direct_get(&self, api: &Api, which: Which<'_>) -> Result<Option<Single>, ApiFault> {
        let subject = format!("$JS.API.DIRECT.GET.{}", self.stream);
        let message = api.request(&subject, Bytes::from(which.request().to_string())).await?;
        let unreadable = |problem: String| ApiFault::Unreadable { subject: subject.clone(), problem };
        match message.status.map(|status| status.as_u16()) {
            None => {}
            Some(NOT_FOUND) => return Ok(None),
            Some(status) => return Err(unreadable(format!("{status} {}", message.description.unwrap_or_default()))),
        }
        let headers = message.headers.unwrap_or_default();
        let header = |name: &str| headers.get_last(name).map(|value| value.as_str().to_owned());
        let sequence = header(SEQUENCE).and_then(|text| text.parse().ok()).ok_or_else(|| unreadable("no sequence".to_owned()))?;
        Ok(Some(Single { sequence, headers, body: message.payload }))
    }

    async fn leader_get(&self, api: &Api, which: Which<'_>) -> Result<Option<Single>, ApiFault> {
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
        let stored = match api.ask::<Got>(&subject, &which.request()).await {
            Ok(got) => got.message,
            Err(fault) if fault.is(NO_MESSAGE) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let decoded = |text: &str| {
            STANDARD.decode(text).map_err(|error| ApiFault::Unreadable { subject: subject.clone(), problem: error.to_string() })
        };
        let headers = parse_headers(&decoded(&stored.hdrs)?);
        Ok(Some(Single { sequence: stored.seq, headers, body: Bytes::from(decoded(&stored.data)?) }))
    }
}

/// The lines of a header block. What is no header is left out, as the client does.
fn parse_headers(block: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in String::from_utf8_lossy(block).split("\r\n").skip(1) {
        let Some((name, value)) = line.split_once(':') else { continue };
        if let (Ok(name), Ok(value)) = (HeaderName::from_str(name), HeaderValue::from_str(value.trim())) {
            headers.append(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_block_is_read_line_by_line() {
        let headers = parse_headers(b"NATS/1.0\r\nNats-Msg-Id: a\r\nA:  b c \r\nA: d\r\nnone\r\n\r\n");
        assert_eq!(headers.get("Nats-Msg-Id").unwrap().as_str(), "a");
        assert!(headers.get_all("A").map(HeaderValue::as_str).eq(["b c", "d"]));
        assert_eq!(headers.len(), 2, "names");
        assert!(parse_headers(b"").is_empty());
    }

    #[test]
    fn each_question_has_its_form() {
        assert_eq!(Which::At(7).request(), json!({ "seq": 7 }));
        assert_eq!(Which::NextOf("t.p0", 0).request(), json!({ "seq": 1, "next_by_subj": "t.p0" }));
        assert_eq!(Which::LastOf("t.p0").request(), json!({ "last_by_subj": "t.p0" }));
    }
}
