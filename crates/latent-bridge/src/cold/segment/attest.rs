//! The proof of a segment, as it sees the ring of control keys: something that signs with the newest key and checks with any.

/// What a check of a proof found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attestation {
    /// It was made with a key of the ring.
    Proven,
    /// The ring has a key of that name, and the proof was not made with it over this content.
    Wrong,
    /// The ring has no key of that name.
    UnknownKey,
}

/// A ring of keys. `label` keeps proofs of different things apart: one never passes for another.
pub trait Attest: Send + Sync {
    /// Name of the newest key (at most 32 bytes of printable ASCII) and the HMAC-SHA256 with it, over label, name and message. `None` where
    /// there is no key that protects anything.
    fn prove(&self, label: &str, message: &[u8]) -> Option<(String, [u8; 32])>;

    /// Checks, in constant time, a proof that says it was made with the key of this name.
    fn check(&self, label: &str, key_id: &str, message: &[u8], proof: &[u8; 32]) -> Attestation;
}
