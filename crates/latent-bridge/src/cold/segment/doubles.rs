//! A ring of keys for tests. Also compiled into the crate's integration tests, so it names nothing but the seam.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{Attest, Attestation};

/// Keys, newest first.
pub(crate) struct Keys(pub(crate) Vec<[u8; 32]>);

impl Keys {
    /// A ring of one key.
    pub(crate) fn one() -> Self {
        Self(vec![[7; 32]])
    }

    fn name(key: &[u8; 32]) -> String {
        format!("key-{}", key[0])
    }

    fn mac(key: &[u8; 32], label: &str, message: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        for part in [label.as_bytes(), &[0], Self::name(key).as_bytes(), &[0], message] {
            mac.update(part);
        }
        mac
    }
}

impl Attest for Keys {
    fn prove(&self, label: &str, message: &[u8]) -> Option<(String, [u8; 32])> {
        let key = self.0.first()?;
        Some((Self::name(key), Self::mac(key, label, message).finalize().into_bytes().into()))
    }

    fn check(&self, label: &str, key_id: &str, message: &[u8], proof: &[u8; 32]) -> Attestation {
        let Some(key) = self.0.iter().find(|key| Self::name(key) == key_id) else { return Attestation::UnknownKey };
        match Self::mac(key, label, message).verify_slice(proof) {
            Ok(()) => Attestation::Proven,
            Err(_) => Attestation::Wrong,
        }
    }
}
