//! The control keys as whoever proves and checks segments and heads sees them.

use super::keys::KeyRing;
use super::segment::{Attest, Attestation};
use crate::BusError;

/// The ring of control keys, for whoever verifies an archive.
#[derive(Clone, Default)]
pub struct ControlKeys(KeyRing);

impl ControlKeys {
    /// Keys, the newest first.
    ///
    /// # Errors
    /// [`BusError::Config`] for a key that protects nothing, and for too many.
    pub fn new(newest_first: &[[u8; 32]]) -> Result<Self, BusError> {
        KeyRing::new(newest_first).map(Self)
    }
}

impl Attest for ControlKeys {
    fn prove(&self, label: &str, message: &[u8]) -> Option<(String, [u8; 32])> {
        self.0.prove(label, message)
    }

    fn check(&self, label: &str, key_id: &str, message: &[u8], proof: &[u8; 32]) -> Attestation {
        self.0.check(label, key_id, message, proof)
    }
}

impl Attest for KeyRing {
    fn prove(&self, label: &str, message: &[u8]) -> Option<(String, [u8; 32])> {
        let signature = self.sign(&labelled(label, message)).ok()?;
        Some((signature.key_id, from_hex(&signature.mac)?))
    }

    fn check(&self, label: &str, key_id: &str, message: &[u8], proof: &[u8; 32]) -> Attestation {
        if !self.has(key_id) {
            return Attestation::UnknownKey;
        }
        match self.verify(key_id, &super::keys::hex(proof), &labelled(label, message)) {
            Ok(()) => Attestation::Proven,
            Err(_) => Attestation::Wrong,
        }
    }
}

/// An intent is JSON and begins with `{`, which no label does: what signs one never signs the other.
fn labelled(label: &str, message: &[u8]) -> Vec<u8> {
    [label.as_bytes(), &[0], message].concat()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (text.len() == 64).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_label_and_message_under_its_key_alone() {
        let keys = ControlKeys::new(&[[2; 32], [1; 32]]).unwrap();
        let (key_id, proof) = keys.prove("a", b"message").unwrap();
        assert_eq!(keys.check("a", &key_id, b"message", &proof), Attestation::Proven);
        assert_eq!(keys.check("b", &key_id, b"message", &proof), Attestation::Wrong);
        assert_eq!(keys.check("a", &key_id, b"massage", &proof), Attestation::Wrong);
        let mut flipped = proof;
        flipped[31] ^= 1;
        assert_eq!(keys.check("a", &key_id, b"message", &flipped), Attestation::Wrong);
        let rotated = ControlKeys::new(&[[3; 32], [2; 32]]).unwrap();
        assert_eq!(rotated.check("a", &key_id, b"message", &proof), Attestation::Proven);
        assert_eq!(ControlKeys::new(&[[1; 32]]).unwrap().check("a", &key_id, b"message", &proof), Attestation::UnknownKey);
        assert_eq!(ControlKeys::default().prove("a", b"message"), None);
        assert!(ControlKeys::new(&[[0; 32]]).is_err());
    }
}
