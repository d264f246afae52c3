//! An event a function wants to publish: as it came, and as it may go on.

use std::fmt;

use bytes::Bytes;
use latent_core::{Attributes, KnownFailure, LogicalTopic, MediaType, length_delimited_sha256_of};

use crate::limits;

/// What the guest handed over, unchecked.
#[derive(Debug, Clone, Default)]
pub struct EventDraft {
    /// Topic as the guest names it.
    pub topic: String,
    /// Key; `None` stands for the empty key.
    pub key: Option<String>,
    /// Payload bytes. Owned, so that what they really take is known (P-030).
    pub payload: Vec<u8>,
    /// Media type.
    pub media_type: String,
    /// Attributes in order.
    pub attributes: Vec<(String, String)>,
    /// Idempotency key.
    pub idempotency_key: String,
}

/// A checked event (P-015 to P-022). The fields hold what their rules allow and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPublication {
    topic: LogicalTopic,
    key: String,
    payload: Bytes,
    media_type: MediaType,
    attributes: Attributes,
    idempotency_key: String,
    staged_bytes: u64,
}

impl EventDraft {
    /// What it takes on the host, by capacity and not by length.
    fn staged_bytes(&self) -> u64 {
        let attributes = self.attributes.iter().map(|(name, value)| size_of::<(String, String)>() + name.capacity() + value.capacity());
        let texts = self.topic.capacity() + self.key.as_ref().map_or(0, String::capacity) + self.media_type.capacity();
        (self.payload.capacity() + texts + self.idempotency_key.capacity() + attributes.sum::<usize>()) as u64
    }
}

impl EventPublication {
    /// Checks a draft before anything is charged or sent.
    ///
    /// # Errors
    /// [`KnownFailure::InvalidTopic`] or [`KnownFailure::InvalidEvent`] naming the rule.
    pub fn check(draft: EventDraft) -> Result<Self, KnownFailure> {
        let topic = LogicalTopic::parse(&draft.topic).map_err(|_| KnownFailure::InvalidTopic)?;
        Self::check_for(topic, draft)
    }

    /// The same with the topic's name checked already.
    pub(crate) fn check_for(topic: LogicalTopic, draft: EventDraft) -> Result<Self, KnownFailure> {
        let staged_bytes = draft.staged_bytes();
        let key = draft.key.unwrap_or_default();
        if !key.is_empty() {
            check_text("key", &key, limits::PUBLISH_KEY_BYTES.max_usize())?;
        }
        check_text("idempotency key", &draft.idempotency_key, limits::IDEMPOTENCY_KEY_BYTES.max_usize())?;
        let bytes_max = limits::PUBLISH_PAYLOAD_BYTES.max_usize();
        if draft.payload.len() > bytes_max {
            return Err(invalid(format!("the payload has {} bytes and at most {bytes_max} are allowed", draft.payload.len())));
        }
        let media_type =
            MediaType::parse(&draft.media_type).map_err(|_| invalid("the media type is not printable text of 1 to 128 bytes".into()))?;
        let attributes = Attributes::parse(draft.attributes)
            .map_err(|_| invalid("the attributes break a rule of number, size, characters or uniqueness".into()))?;
        let (payload, idempotency_key) = (draft.payload.into(), draft.idempotency_key);
        Ok(Self { topic, key, payload, media_type, attributes, idempotency_key, staged_bytes })
    }

    /// The topic as the guest named it.
    pub fn topic(&self) -> &LogicalTopic {
        &self.topic
    }

    /// The key, empty when none was given.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The payload.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The media type.
    pub fn media_type(&self) -> &MediaType {
        &self.media_type
    }

    /// The attributes.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The caller's idempotency key.
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// What it takes on the host, counted by capacity: what a provider's account is charged for it (P-030, P-031).
    pub fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }

    /// A digest of the whole request for audit. It identifies a request without showing any of it.
    pub fn digest(&self) -> RequestDigest {
        let [topic, media_type] = [self.topic.as_str(), self.media_type.as_str()].map(str::as_bytes);
        let (label, key, idempotency_key) = (b"lsf-publish-request-v1", self.key.as_bytes(), self.idempotency_key.as_bytes());
        let own: [&[u8]; 6] = [label, topic, key, &self.payload, media_type, idempotency_key];
        let attributes = self.attributes.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        RequestDigest(length_delimited_sha256_of(own.into_iter().chain(attributes)))
    }
}

/// Identifies a request, with all its fields, without showing any of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestDigest([u8; 32]);

impl fmt::Display for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn invalid(rule: String) -> KnownFailure {
    KnownFailure::InvalidEvent { rule }
}

fn check_text(what: &str, text: &str, bytes_max: usize) -> Result<(), KnownFailure> {
    let printable = text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
    if text.is_empty() || text.len() > bytes_max || !printable {
        return Err(invalid(format!("the {what} is not printable text of 1 to {bytes_max} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn draft() -> EventDraft {
        EventDraft {
            topic: "out".to_owned(),
            key: Some("k".to_owned()),
            payload: b"x".to_vec(),
            media_type: "text/plain".to_owned(),
            attributes: Vec::new(),
            idempotency_key: "i".to_owned(),
        }
    }

    fn check(change: impl FnOnce(&mut EventDraft)) -> Result<EventPublication, KnownFailure> {
        let mut draft = draft();
        change(&mut draft);
        EventPublication::check(draft)
    }

    #[test]
    fn each_field_is_accepted_at_its_bound_and_refused_one_beyond() {
        assert!(check(|d| d.topic = "t".repeat(128)).is_ok());
        assert_eq!(check(|d| d.topic = "t".repeat(129)), Err(KnownFailure::InvalidTopic));
        type Set = fn(&mut EventDraft, usize);
        let sized: [(Set, usize); 4] = [
            (|d, n| d.key = Some("k".repeat(n)), 256),
            (|d, n| d.idempotency_key = "i".repeat(n), 256),
            (|d, n| d.media_type = "m".repeat(n), 128),
            (|d, n| d.payload = vec![0; n], 262_144),
        ];
        for (set, bytes_max) in sized {
            assert!(check(|d| set(d, bytes_max)).is_ok(), "{bytes_max}");
            assert!(matches!(check(|d| set(d, bytes_max + 1)), Err(KnownFailure::InvalidEvent { .. })), "{bytes_max}");
        }
    }

    #[test]
    fn wildcards_system_prefixes_and_control_characters_are_refused() {
        for topic in ["", "a.*", ">", "$SYS.x", "_INBOX.LSF.x", "a b", "a\r\nPUB", "nats://h"] {
            assert_eq!(check(|d| d.topic = topic.to_owned()), Err(KnownFailure::InvalidTopic), "{topic:?}");
        }
        assert!(check(|d| d.idempotency_key = String::new()).is_err());
        assert!(check(|d| d.media_type = "a\r\nb".to_owned()).is_err());
        assert!(check(|d| d.key = Some("a b".to_owned())).is_err());
    }

    #[test]
    fn no_key_is_the_empty_key() {
        assert_eq!(check(|d| d.key = None).unwrap().key(), "");
    }

    #[test]
    fn a_short_payload_in_a_large_vector_counts_as_the_large_vector() {
        let staged = |capacity| {
            let mut payload = Vec::with_capacity(capacity);
            payload.push(b'x');
            check(|d| d.payload = payload).unwrap().staged_bytes()
        };
        assert_eq!(staged(200_000) - staged(1_000), 199_000);
    }

    #[test]
    fn the_digest_changes_with_every_field() {
        let original = check(|_| ()).unwrap().digest();
        let changes: [fn(&mut EventDraft); 5] = [
            |d| d.topic = "other".to_owned(),
            |d| d.key = None,
            |d| d.payload = b"y".to_vec(),
            |d| d.idempotency_key = "j".to_owned(),
            |d| d.attributes = vec![("a".to_owned(), "b".to_owned())],
        ];
        for change in changes {
            assert_ne!(check(change).unwrap().digest(), original);
        }
    }
}
