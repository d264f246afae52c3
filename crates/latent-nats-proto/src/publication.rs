//! A publication as the wire has it: `HPUB`, its headers, and their exact size before anything is dialled.

use std::fmt;

use latent_core::{Attributes, LogicalTopic, MessageId, TenantId};

use crate::decoder::decimal;
use crate::limits::{HEADER_BLOCK_BYTES, PAYLOAD_BYTES, STREAM_BYTES, SUBJECT_BYTES};
use crate::publish::PublishRefused;

/// One publication. Everything in it is borrowed.
#[derive(Clone, Copy)]
pub struct Publication<'a> {
    /// Where it goes: a literal subject.
    pub subject: &'a str,
    /// The stream that must store it.
    pub expected_stream: &'a str,
    /// What the stream knows it by (D-02).
    pub message_id: &'a str,
    /// Media type.
    pub content_type: Option<&'a str>,
    /// Key of the event.
    pub key: Option<&'a str>,
    /// Attributes, each in a header of its own below `Lsf-Attr-`.
    pub attributes: &'a Attributes,
    /// The event.
    pub payload: &'a [u8],
}

impl fmt::Debug for Publication<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publication").field("payload_bytes", &self.payload.len()).finish_non_exhaustive()
    }
}

/// The message id of a guest's publication (D-02): payload and attributes are no part of it.
pub fn message_id(namespace: &str, tenant: &TenantId, topic: &LogicalTopic, key: &str) -> MessageId {
    MessageId::derive(namespace, tenant, topic, key)
}

const VERSION: &str = "NATS/1.0\r\n";
const ATTRIBUTE_PREFIX: &str = "Lsf-Attr-";
const COLON: &str = ": ";
const LINE_END: &str = "\r\n";

/// Bytes of the header block, the blank line at its end included.
pub fn header_block_bytes(publication: &Publication<'_>) -> usize {
    let mut bytes = 0_usize;
    headers(publication, |part| bytes = bytes.saturating_add(part.len()));
    bytes
}

/// The header block, part by part. The one place that says what it holds.
fn headers(publication: &Publication<'_>, mut part: impl FnMut(&str)) {
    let own = [
        ("Nats-Expected-Stream", Some(publication.expected_stream)),
        ("Nats-Msg-Id", Some(publication.message_id)),
        ("Content-Type", publication.content_type),
        ("Lsf-Event-Key", publication.key),
    ];
    part(VERSION);
    for (name, value) in own {
        let Some(value) = value else { continue };
        [name, COLON, value, LINE_END].into_iter().for_each(&mut part);
    }
    for (name, value) in publication.attributes.iter() {
        [ATTRIBUTE_PREFIX, name, COLON, value, LINE_END].into_iter().for_each(&mut part);
    }
    part(LINE_END);
}

impl Publication<'_> {
    /// Every rule that needs no broker: texts, header block and payload. For refusing before anything is dialled.
    ///
    /// # Errors
    /// [`PublishRefused`] naming the rule.
    pub fn check(&self) -> Result<(), PublishRefused> {
        let text = |field, is_fine: bool| if is_fine { Ok(()) } else { Err(PublishRefused::Text { field }) };
        text("subject", is_subject(self.subject))?;
        text("expected stream", self.expected_stream.len() <= STREAM_BYTES.max_usize() && is_token(self.expected_stream))?;
        text("message id", is_token(self.message_id))?;
        text("content type", self.content_type.is_none_or(is_token))?;
        text("key", self.key.is_none_or(is_token))?;
        let bytes = header_block_bytes(self);
        if bytes > HEADER_BLOCK_BYTES.max_usize() {
            return Err(PublishRefused::HeaderBlock { bytes, bytes_max: HEADER_BLOCK_BYTES.max_usize() });
        }
        if self.payload.len() > PAYLOAD_BYTES.max_usize() {
            return Err(PublishRefused::Payload { bytes: self.payload.len(), bytes_max: PAYLOAD_BYTES.max_usize() });
        }
        Ok(())
    }

    /// `HPUB` and the header block, at the end of `out`, which has room for a publication that was checked.
    pub(crate) fn encode_head(&self, inbox: &[u8], out: &mut Vec<u8>) {
        let header_bytes = header_block_bytes(self);
        out.extend_from_slice(b"HPUB ");
        out.extend_from_slice(self.subject.as_bytes());
        out.push(b' ');
        out.extend_from_slice(inbox);
        for bytes in [header_bytes, header_bytes.saturating_add(self.payload.len())] {
            let (digits, start) = decimal(bytes as u64);
            out.push(b' ');
            out.extend_from_slice(digits.get(start..).unwrap_or_default());
        }
        out.extend_from_slice(LINE_END.as_bytes());
        headers(self, |part| out.extend_from_slice(part.as_bytes()));
    }
}

/// Printable ASCII without spaces (D-04), not empty.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Tokens of letters, digits, `_` and `-`, joined by single dots; the first may not be of the system's (D-04).
fn is_subject(subject: &str) -> bool {
    let is_plain =
        |token: &str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    subject.len() <= SUBJECT_BYTES.max_usize() && !subject.starts_with('_') && subject.split('.').all(is_plain)
}

#[cfg(test)]
mod tests;
