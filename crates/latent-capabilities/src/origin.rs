//! Where an activation's event came from, and what is derived from it: the same event handled again derives the same keys and, for a
//! function that can derive keys, draws the same random numbers.

use latent_core::{BindingId, Offset, Partition, TopicName, UnixMillis, length_delimited_sha256};

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
    /// When the log took it there; `None` of a direct call. Nothing is derived from it: it is where the clock of a function stands that
    /// is to do the same again.
    pub stored_at: Option<UnixMillis>,
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

    /// What the random numbers of a function that can derive keys begin from. Whoever knows the delivery knows it: no secret comes from it.
    pub fn seed(&self) -> [u8; 32] {
        self.hash(b"lsf-activation-seed-v1", b"")
    }

    fn hash(&self, kind: &[u8], last: &[u8]) -> [u8; 32] {
        let partition = self.partition.0.to_le_bytes();
        let offset = self.offset.0.to_le_bytes();
        length_delimited_sha256(&[kind, self.binding.as_str().as_bytes(), self.topic.as_str().as_bytes(), &partition, &offset, last])
    }

    fn hashed(&self, kind: &[u8], last: &[u8]) -> String {
        const PREFIX: &str = "derived-";
        let hash = self.hash(kind, last);
        let mut text = String::with_capacity(PREFIX.len() + 2 * hash.len());
        text.push_str(PREFIX);
        // A function derives a key for each of its publications, and a formatter takes longer than the hash.
        let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) });
        hash.iter().for_each(|byte| text.extend([digit(byte >> 4), digit(byte & 15)]));
        text
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
            stored_at: None,
        }
    }

    #[test]
    fn the_seed_is_pinned_and_neither_a_key_nor_the_time_of_storing_is_part_of_it() {
        let hex: String = origin(1).seed().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "d4e79a433d638a29e3b1a424f64549b9fa52576c0170a0ef5e5dca8f759e1eda");
        assert_eq!(Origin { stored_at: Some(UnixMillis(9)), ..origin(1) }.seed(), origin(1).seed());
        assert_ne!(origin(2).seed(), origin(1).seed());
        assert!(![origin(1).derive(0), origin(1).derive(1)].contains(&format!("derived-{hex}")));
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
