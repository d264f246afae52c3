//! The record: bytes first, JSON as a view. Engines store it; handlers get exactly the bytes that were published.

use bytes::Bytes;

use crate::{Attributes, CoreError, MediaType, Offset, Partition, TextProblem, Uid, UnixMillis, limits};

/// An event on its way into a topic, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// Stable identity, or `None` to let the bus mint one.
    pub uid: Option<Uid>,
    key: String,
    media_type: MediaType,
    attributes: Attributes,
    payload: Bytes,
}

impl NewRecord {
    /// Checks key and payload against `limits::KEY_BYTES` and `limits::EVENT_BYTES`.
    ///
    /// # Errors
    /// [`CoreError::Limit`] when the payload is too large, [`CoreError::Text`] when the key is.
    pub fn new(uid: Option<Uid>, key: &str, media_type: MediaType, attributes: Attributes, payload: Bytes) -> Result<Self, CoreError> {
        let bytes_max = limits::KEY_BYTES.max_usize();
        if key.len() > bytes_max {
            return Err(CoreError::text("key", key, TextProblem::TooLong { bytes: key.len(), bytes_max }));
        }
        // An empty payload is an event too; only the upper edge is a bound.
        limits::EVENT_BYTES.check((payload.len() as u64).max(limits::EVENT_BYTES.min))?;
        Ok(Self { uid, key: key.to_owned(), media_type, attributes, payload })
    }

    /// The key; empty when none was given.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The media type.
    pub fn media_type(&self) -> &MediaType {
        &self.media_type
    }

    /// The attributes.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The payload bytes, as published.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Completes the record with its identity and the time of storing.
    pub fn into_record(self, uid: Uid, stored_at: UnixMillis) -> Record {
        Record { uid, key: self.key, media_type: self.media_type, attributes: self.attributes, payload: self.payload, stored_at }
    }
}

/// A stored event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Stable identity, unique in its topic.
    pub uid: Uid,
    /// Key; events of one key are handled in order.
    pub key: String,
    /// Media type of the payload.
    pub media_type: MediaType,
    /// Attributes in the order given.
    pub attributes: Attributes,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// When the engine took it.
    pub stored_at: UnixMillis,
}

impl Record {
    /// True when both are the same event: key, media type, a client's attributes and payload agree. `stored_at` and what the host wrote
    /// never count: an event that is parked twice is one dead letter.
    pub fn same_content(&self, other: &NewRecord) -> bool {
        self.key == other.key
            && self.media_type == other.media_type
            && self.attributes.client().eq(other.attributes.client())
            && self.payload == other.payload
    }

    /// As [`Record::same_content`], between two records, and the uid agrees as well.
    pub fn same_event(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.key == other.key
            && self.media_type == other.media_type
            && self.attributes.client().eq(other.attributes.client())
            && self.payload == other.payload
    }
}

/// A record at its place in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// The partition it is in.
    pub partition: Partition,
    /// Its position there.
    pub offset: Offset,
    /// The record itself.
    pub record: Record,
}

/// The partition of `key` among `partitions`: FNV-1a 64 modulo max(partitions, 1) (B-008).
///
/// Changing this re-partitions every deployment, so its values are pinned by a test.
#[allow(clippy::cast_possible_truncation, reason = "a remainder of a u32 fits a u32")]
pub fn partition_for(key: &str, partitions: u32) -> Partition {
    Partition((fnv1a_64(key.as_bytes()) % u64::from(partitions.max(1))) as u32)
}

fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_pinned() {
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
        let at_eight = ["agent-inst-1", "agent-inst-2", "session-abc", ""].map(|key| partition_for(key, 8).0);
        assert_eq!(at_eight, [3, 6, 2, 5]);
        assert_eq!(partition_for("x", 0), Partition(0));
        let hit: std::collections::BTreeSet<_> = (0..100).map(|n| partition_for(&format!("inst-{n}"), 8)).collect();
        assert!(hit.len() >= 6);
    }

    #[test]
    fn payload_and_key_are_checked_at_their_edges() {
        let with = |key: usize, payload: usize| {
            let payload = Bytes::from(vec![0; payload]);
            NewRecord::new(None, &"k".repeat(key), MediaType::octet_stream(), Attributes::default(), payload).is_ok()
        };
        assert!(with(0, 0) && with(1_024, 524_288));
        assert!(!with(1_025, 0) && !with(0, 524_289));
    }
}
