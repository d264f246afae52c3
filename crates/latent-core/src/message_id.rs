//! The id under which a stream or a topic knows a guest's publication.

use std::fmt;

use crate::{LogicalTopic, TenantId, length_delimited_sha256};

const LABEL: &str = "lsf-jetstream-id-v1";
const PREFIX: &[u8] = b"lsf-";
const BYTES: usize = PREFIX.len() + 64;

/// `lsf-` and the SHA-256, in hex, of the label `lsf-jetstream-id-v1`, the namespace, the tenant, the topic and the caller's key, each
/// length-delimited (D-02).
///
/// The payload is not part of it, so that no tenant can occupy another's id and a repeated call finds the first one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MessageId([u8; BYTES]);

impl MessageId {
    /// The id of what `tenant` publishes to `topic` under `key`, below `namespace`.
    pub fn derive(namespace: &str, tenant: &TenantId, topic: &LogicalTopic, key: &str) -> Self {
        let fields = [LABEL, namespace, tenant.as_str(), topic.as_str(), key].map(str::as_bytes);
        let mut text = [0; BYTES];
        let (prefix, digits) = text.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX);
        for (pair, byte) in digits.chunks_exact_mut(2).zip(length_delimited_sha256(&fields)) {
            let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) };
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        Self(text)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        // It is ASCII, made above.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Tells nothing of it: whoever has a log is not to learn which keys were used.
impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageId(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(namespace: &str, tenant: &str, topic: &str, key: &str) -> MessageId {
        MessageId::derive(namespace, &TenantId::parse(tenant).unwrap(), &LogicalTopic::parse(topic).unwrap(), key)
    }

    #[test]
    fn the_message_id_is_pinned() {
        let id = id("edge", "acme", "triage.results", "delivery-1");
        assert_eq!(id.as_str(), "lsf-49706168b71b15ada4e29f126e6b9482d4210d4a265012e5d5b846dd439388f7");
        assert_eq!(format!("{id:?}"), "MessageId(..)");
    }

    #[test]
    fn a_byte_moved_between_fields_makes_another_id() {
        let ids = [
            id("n", "a", "t", "k"),
            id("m", "a", "t", "k"),
            id("n", "b", "t", "k"),
            id("n", "a", "u", "k"),
            id("n", "a", "t", "l"),
            id("na", "b", "t", "k"),
            id("n", "ab", "t", "k"),
            id("n", "a", "bt", "k"),
            id("n", "a", "tk", "k"),
            id("n", "a", "t", "kk"),
        ];
        let different: std::collections::BTreeSet<_> = ids.iter().map(MessageId::as_str).collect();
        assert_eq!(different.len(), ids.len());
    }
}
