//! A delivered message, handed out owned. Headers and payload share one allocation; the acknowledgement subject has its own, because it is
//! kept until the message is settled and must not keep the payload with it.

use std::fmt;

use bytes::Bytes;

use super::{PinId, PullConsumer};
use crate::triggers::AckNumbers;

/// The field with which the broker tells a puller its pin.
const PIN: &[u8] = b"Nats-Pin-Id";

/// What settles a message. It is made of a delivered message alone, so nothing else is ever published to.
#[derive(Clone, PartialEq, Eq)]
pub struct AckSubject(Bytes);

impl AckSubject {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for AckSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AckSubject(..)")
    }
}

/// Headers and payload of a message.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// The header block as it came, empty when there is none.
    pub headers: Bytes,
    /// The payload: the record's JSON on a topic.
    pub payload: Bytes,
}

/// A message above its consumer's ceiling. Its content was let go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message has {header_bytes} bytes of headers and {payload_bytes} of payload, more than its binding takes")]
pub struct TooLarge {
    /// Bytes of its header block.
    pub header_bytes: usize,
    /// Bytes of its payload.
    pub payload_bytes: usize,
}

/// A delivered message.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivered {
    /// What settles it.
    pub ack: AckSubject,
    /// What its acknowledgement subject says.
    pub numbers: AckNumbers,
    /// What it holds, unless that is too large.
    pub content: Result<Content, TooLarge>,
    /// Of a consumer with a group. Without one, a field that names a pin is the publisher's.
    pin: Option<PinId>,
}

impl Delivered {
    /// The first field of this name, compared without case. Of a message that was too large there is none.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_fields().find(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// All fields in order, the broker's own among them. A line without a colon is left out.
    pub fn header_fields(&self) -> HeaderFields<'_> {
        let block: &[u8] = self.content.as_ref().map_or(&[], |content| &content.headers);
        fields(block)
    }

    /// The pin that this message of a consumer with a group came with, also when it was too large.
    pub fn pin(&self) -> Option<PinId> {
        self.pin.clone()
    }

    /// Bytes of a session's memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let content = self.content.as_ref().map_or(0, |content| content.headers.len() + content.payload.len());
        self.ack.0.len() + content
    }
}

impl fmt::Debug for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload_bytes = self.content.as_ref().map(|content| content.payload.len());
        f.debug_struct("Delivered").field("payload_bytes", &payload_bytes).field("numbers", &self.numbers).finish_non_exhaustive()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("payload_bytes", &self.payload.len()).finish_non_exhaustive()
    }
}

/// Name and value of each field of a header block, without the space around the value.
#[derive(Clone)]
pub struct HeaderFields<'a> {
    rest: &'a [u8],
}

/// The last field of that name, which is the broker's. Earlier ones are the publisher's.
fn pin(block: &[u8]) -> Option<PinId> {
    let last = fields(block).filter(|(name, _)| *name == PIN).last();
    last.and_then(|(_, value)| PinId::new(std::str::from_utf8(value).ok()?))
}

/// The fields of a block, behind its first line.
pub(super) fn fields(block: &[u8]) -> HeaderFields<'_> {
    let line_end = block.windows(2).position(|pair| pair == b"\r\n");
    HeaderFields { rest: line_end.and_then(|at| block.get(at + 2..)).unwrap_or_default() }
}

impl<'a> Iterator for HeaderFields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let end = self.rest.windows(2).position(|pair| pair == b"\r\n").unwrap_or(self.rest.len());
            let line = self.rest.get(..end).unwrap_or_default();
            self.rest = self.rest.get(end + 2..).unwrap_or_default();
            if let Some(colon) = line.iter().position(|byte| *byte == b':') {
                let (name, value) = line.split_at(colon);
                return Some((name, value.get(1..).unwrap_or_default().trim_ascii()));
            }
        }
        None
    }
}

impl fmt::Debug for HeaderFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderFields(..)")
    }
}

/// A message as it lies in the connection's memory.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    pub(super) subject: &'a [u8],
    pub(super) ack: &'a [u8],
    pub(super) header_bytes: usize,
    pub(super) payload_bytes: usize,
    /// Empty when there are none, or they were let go by.
    pub(super) headers: &'a [u8],
    /// Nothing when it was let go by.
    pub(super) payload: Option<&'a [u8]>,
}

impl Arrived<'_> {
    /// Copies it out, but for what is too large.
    pub(super) fn keep(&self, numbers: AckNumbers, consumer: &PullConsumer) -> Delivered {
        let payload = self.payload.filter(|_| consumer.takes(self.header_bytes, self.payload_bytes));
        let has_group = consumer.profile().group.is_some();
        let pin = if has_group { pin(self.headers) } else { None };
        let ack = AckSubject(Bytes::copy_from_slice(self.ack));
        let content = match payload {
            Some(payload) => {
                let mut all = Bytes::from([self.headers, payload].concat());
                let headers = all.split_to(self.headers.len());
                Ok(Content { headers, payload: all })
            }
            None => Err(TooLarge { header_bytes: self.header_bytes, payload_bytes: self.payload_bytes }),
        };
        Delivered { ack, numbers, content, pin }
    }
}
