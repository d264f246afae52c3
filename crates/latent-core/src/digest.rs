//! SHA-256 as identity: of components, and over length-delimited fields.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::{CoreError, TextProblem};

/// SHA-256 over `fields`, each as its length in 8 little-endian bytes and then its bytes (the form of D-02), so that moving a
/// byte from one field to the next changes the result.
pub fn length_delimited_sha256(fields: &[&[u8]]) -> [u8; 32] {
    length_delimited_sha256_of(fields.iter().copied())
}

/// The same of fields that stand in no list.
pub fn length_delimited_sha256_of<'f>(fields: impl IntoIterator<Item = &'f [u8]>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for field in fields {
        hasher.update((field.len() as u64).to_le_bytes());
        hasher.update(field);
    }
    hasher.finalize().into()
}

/// The identity of a component: the SHA-256 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentDigest([u8; 32]);

impl ComponentDigest {
    /// A digest that was made before.
    pub const fn from_bytes(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Hashes a component's bytes.
    pub fn of(component: &[u8]) -> Self {
        Self(Sha256::digest(component).into())
    }

    /// Reads the form that it is written in: `sha256:` and 64 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// [`CoreError::Text`].
    pub fn parse(text: &str) -> Result<Self, CoreError> {
        let refused = || CoreError::text("component digest", text, TextProblem::Shape { expected: "`sha256:` and 64 digits of 0-9a-f" });
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64).ok_or_else(refused)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let [high, low] = [pair.first(), pair.last()].map(|digit| digit.copied().and_then(nibble));
            *byte = (high.ok_or_else(refused)? << 4) | low.ok_or_else(refused)?;
        }
        Ok(Self(bytes))
    }

    /// The raw digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for ComponentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ComponentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_byte_between_fields_changes_the_hash() {
        assert_ne!(length_delimited_sha256(&[b"ab", b"c"]), length_delimited_sha256(&[b"a", b"bc"]));
        assert_ne!(length_delimited_sha256(&[b"ab"]), length_delimited_sha256(&[b"ab", b""]));
    }

    #[test]
    fn a_component_digest_is_plain_sha256() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(ComponentDigest::of(b"").to_string(), empty);
    }

    #[test]
    fn a_component_digest_is_read_in_the_one_form_it_is_written_in() {
        let digest = ComponentDigest::of(b"c");
        let text = digest.to_string();
        assert_eq!(ComponentDigest::parse(&text), Ok(digest));
        let wrong = [&text[7..], &text[..70], &format!("{text}0"), &text.to_uppercase(), &text.replace(&text[70..], "g"), "", "sha256:é"];
        for wrong in wrong {
            assert!(ComponentDigest::parse(wrong).is_err(), "{wrong}");
        }
    }
}
