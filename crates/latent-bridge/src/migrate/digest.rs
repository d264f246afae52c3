//! What a record is, as one digest: everything but where and when it was stored. Anybody can compute it again: the form is in
//! `docs/migrate.md`.

use std::fmt;

use latent_core::Record;
use sha2::{Digest as _, Sha256};

/// Begins what is hashed of a record.
const LABEL: &[u8] = b"latent-record-v1";

/// SHA-256 of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordDigest([u8; 32]);

impl RecordDigest {
    /// That of a record: the label, then uid, key, media type, the number of attributes, each name and value, and the payload, each as its
    /// length in eight bytes (little-endian) and its bytes; the number in eight bytes as well.
    pub fn of(record: &Record) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(LABEL);
        for text in [record.uid.as_str(), record.key.as_str(), record.media_type.as_str()] {
            field(&mut hasher, text.as_bytes());
        }
        hasher.update((record.attributes.iter().len() as u64).to_le_bytes());
        for text in record.attributes.iter().flat_map(|(name, value)| [name, value]) {
            field(&mut hasher, text.as_bytes());
        }
        field(&mut hasher, &record.payload);
        Self(hasher.finalize().into())
    }

    /// The digest that [`RecordDigest::to_string`] gives.
    pub fn parse(hex: &str) -> Option<Self> {
        if hex.len() != 64 || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for RecordDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

fn field(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

/// SHA-256 over the digests of records in their order.
#[derive(Clone, Default)]
pub(super) struct SequenceDigest(Sha256);

impl SequenceDigest {
    pub(super) fn push(&mut self, record: RecordDigest) {
        self.0.update(record.0);
    }

    pub(super) fn finish(self) -> RecordDigest {
        RecordDigest(self.0.finalize().into())
    }
}
