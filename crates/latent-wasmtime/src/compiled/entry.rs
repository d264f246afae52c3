//! One entry's bytes: what is written before the code, and the proof that this cache wrote both. Pure; files are `folder`'s business.
//!
//! ```text
//! magic 8 | format u32 | component digest 32 | engine identity 32 | code bytes u64 | HMAC-SHA-256 32 | code …
//! ```
//! Numbers are little-endian. The HMAC covers everything else, in that order, under the cache's key.
//!
//! Nothing of an entry is interpreted before its HMAC holds: the header is compared with the one that must be there, not parsed.

use std::fmt;
use std::hash::{Hash, Hasher};

use hmac::{Hmac, KeyInit, Mac};
use latent_core::ComponentDigest;
use sha2::{Digest, Sha256};
use wasmtime::Engine;

const MAGIC: &[u8; 8] = b"ltntcwsm";
/// Grows with each change of this layout.
const FORMAT: u32 = 1;
const LABEL_BYTES: usize = 8 + 4 + 32 + 32 + 8;
const PROOF_BYTES: usize = 32;
/// Bytes of an entry before its code.
pub(super) const HEADER_BYTES: usize = LABEL_BYTES + PROOF_BYTES;
/// Bytes of the key file.
pub(super) const KEY_BYTES: usize = 32;
/// Bytes that SHA-256 takes at a time; HMAC fills a shorter key up with zeros.
const BLOCK_BYTES: usize = 64;

/// What marks an entry as written by a holder of this cache directory.
pub(super) struct Key([u8; BLOCK_BYTES]);

impl Key {
    pub(super) fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        let mut block = [0; BLOCK_BYTES];
        block[..KEY_BYTES].copy_from_slice(bytes);
        Self(block)
    }

    fn proof(&self, label: &[u8], code: &[u8]) -> Hmac<Sha256> {
        let mut proof = Hmac::<Sha256>::new(&self.0.into());
        proof.update(label);
        proof.update(code);
        proof
    }
}

/// Engine version and configuration, as far as compiled code depends on them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct EngineIdentity([u8; 32]);

impl EngineIdentity {
    pub(crate) fn of(engine: &Engine) -> Self {
        let mut hasher = Sha256Hasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Self(hasher.0.finalize().into())
    }
}

/// Takes what a type feeds to the standard library's hashers. 64 bits would do against accidents; this also needs no thought.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Only the whole digest is used.
    fn finish(&self) -> u64 {
        0
    }
}

/// What an entry is the code of; its file name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryName {
    pub(super) digest: ComponentDigest,
    pub(super) engine: EngineIdentity,
}

impl EntryName {
    fn label(&self, code_bytes: usize) -> [u8; LABEL_BYTES] {
        let mut label = [0; LABEL_BYTES];
        label[..8].copy_from_slice(MAGIC);
        label[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        label[12..44].copy_from_slice(self.digest.as_bytes());
        label[44..76].copy_from_slice(&self.engine.0);
        label[76..].copy_from_slice(&(code_bytes as u64).to_le_bytes());
        label
    }

    /// How names of this engine's entries end.
    pub(super) fn suffix(&self) -> String {
        format!("-{}", Hex(&self.engine.0))
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", Hex(self.digest.as_bytes()), Hex(&self.engine.0))
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Whether a file name is an entry's, of this or another engine.
pub(super) fn is_entry_name(name: &str) -> bool {
    let hex = |part: &str| part.len() == 64 && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    name.split_once('-').is_some_and(|(digest, engine)| hex(digest) && hex(engine))
}

/// Code that a holder of the key wrote for exactly this component and engine. Only [`verify`] makes one.
pub(super) struct VerifiedCode<'a>(&'a [u8]);

impl VerifiedCode<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        self.0
    }
}

/// What stands before `code` in its entry.
pub(super) fn seal(key: &Key, name: &EntryName, code: &[u8]) -> [u8; HEADER_BYTES] {
    let label = name.label(code.len());
    let mut header = [0; HEADER_BYTES];
    header[..LABEL_BYTES].copy_from_slice(&label);
    header[LABEL_BYTES..].copy_from_slice(&key.proof(&label, code).finalize().into_bytes());
    header
}

/// The code of an entry, if every byte of it is as it was sealed for `name`.
pub(super) fn verify<'a>(key: &Key, name: &EntryName, entry: &'a [u8]) -> Option<VerifiedCode<'a>> {
    let (label, rest) = entry.split_at_checked(LABEL_BYTES)?;
    let (proof, code) = rest.split_at_checked(PROOF_BYTES)?;
    if label != name.label(code.len()) {
        return None;
    }
    key.proof(label, code).verify_slice(proof).ok()?;
    Some(VerifiedCode(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(component: &[u8], engine: u8) -> EntryName {
        EntryName { digest: ComponentDigest::of(component), engine: EngineIdentity([engine; 32]) }
    }

    fn sealed(code: &[u8]) -> Vec<u8> {
        [&seal(&Key::new(&[7; 32]), &name(b"a", 1), code), code].concat()
    }

    fn holds(key: u8, name: &EntryName, entry: &[u8]) -> bool {
        verify(&Key::new(&[key; 32]), name, entry).is_some()
    }

    #[test]
    fn what_was_sealed_is_given_back_as_it_was() {
        for code in [&b""[..], b"code"] {
            let entry = sealed(code);
            assert_eq!(verify(&Key::new(&[7; 32]), &name(b"a", 1), &entry).unwrap().bytes(), code);
        }
    }

    #[test]
    fn an_entry_with_any_bit_changed_does_not_hold() {
        let entry = sealed(b"some code");
        for bit in 0..entry.len() * 8 {
            let mut changed = entry.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!holds(7, &name(b"a", 1), &changed), "bit {bit}");
        }
    }

    #[test]
    fn an_entry_that_is_shorter_or_longer_does_not_hold() {
        let entry = sealed(b"some code");
        for end in 0..entry.len() {
            assert!(!holds(7, &name(b"a", 1), &entry[..end]), "{end} bytes");
        }
        assert!(!holds(7, &name(b"a", 1), &[&entry[..], b"\0"].concat()));
    }

    #[test]
    fn an_entry_holds_for_its_key_component_and_engine_only() {
        let entry = sealed(b"some code");
        assert!(holds(7, &name(b"a", 1), &entry));
        assert!(!holds(8, &name(b"a", 1), &entry), "another key");
        assert!(!holds(7, &name(b"b", 1), &entry), "another component");
        assert!(!holds(7, &name(b"a", 2), &entry), "another engine");
    }

    #[test]
    fn only_two_digests_are_an_entry_name() {
        let good = name(b"a", 1).to_string();
        assert!(is_entry_name(&good) && good.ends_with(&name(b"b", 1).suffix()));
        for other in ["", "key", ".new-0011", &good[1..], &good.to_uppercase(), &good.replace('-', "_"), &format!("{good}0")] {
            assert!(!is_entry_name(other), "{other}");
        }
    }
}
