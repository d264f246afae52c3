//! Where an activation's event came from, and keys derived from it: the same event handled again derives the same keys.

use std::fmt::Write as _;

use latent_core::{BindingId, Offset, Partition, TopicName, length_delimited_sha256};

use crate::limits;

/// The delivery an activation answers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The binding that delivers.
    pub binding: BindingId,
    /// The topic the event was first taken from.
    pub topic: TopicName,
    /// Its partition.
    pub partition: Partition,
    /// Its position there.
    pub offset: Offset,
}

/// Why no key could be derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeriveError {
    /// The activation answers to no delivery.
    #[error("there is no delivery to derive a key from")]
    NoOrigin,
    /// The label is empty or too long.
    #[error("a label has 1 to {} bytes", limits::DERIVE_LABEL_BYTES.max)]
    InvalidLabel,
}

impl Origin {
    /// The key of the `ordinal`-th derivation, counted from 0.
    pub fn derive(&self, ordinal: u64) -> String {
        self.hashed(b"lsf-derived-ordinal-v1", &ordinal.to_le_bytes())
    }

    /// The key for a label, for code whose order of calls may vary.
    ///
    /// # Errors
    /// [`DeriveError::InvalidLabel`].
    pub fn derive_label(&self, label: &str) -> Result<String, DeriveError> {
        if label.is_empty() || label.len() > limits::DERIVE_LABEL_BYTES.max_usize() {
            return Err(DeriveError::InvalidLabel);
        }
        Ok(self.hashed(b"lsf-derived-label-v1", label.as_bytes()))
    }

    fn hashed(&self, kind: &[u8], last: &[u8]) -> String {
        let partition = self.partition.0.to_le_bytes();
        let offset = self.offset.0.to_le_bytes();
        let hash =
            length_delimited_sha256(&[kind, self.binding.as_str().as_bytes(), self.topic.as_str().as_bytes(), &partition, &offset, last]);
        hash.iter().fold("derived-".to_owned(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(offset: u64) -> Origin {
        Origin {
            binding: BindingId::parse("b").unwrap(),
            topic: TopicName::parse("t").unwrap(),
            partition: Partition(0),
            offset: Offset(offset),
        }
    }

    #[test]
    fn the_same_delivery_derives_the_same_keys_and_another_does_not() {
        assert_eq!(origin(1).derive(0), origin(1).derive(0));
        let keys = [origin(1).derive(0), origin(1).derive(1), origin(2).derive(0), origin(1).derive_label("a").unwrap()];
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }

    #[test]
    fn a_label_has_one_to_128_bytes() {
        assert!(origin(1).derive_label(&"l".repeat(128)).is_ok());
        for label in ["", &"l".repeat(129)] {
            assert_eq!(origin(1).derive_label(label), Err(DeriveError::InvalidLabel));
        }
    }

    #[test]
    fn a_derived_key_is_a_valid_idempotency_key() {
        let key = origin(u64::MAX).derive(u64::MAX);
        assert!(latent_core::Uid::parse(&key).is_ok(), "{key}");
    }
}
