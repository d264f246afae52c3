//! Control keys: they authenticate intents, so that nobody who can write into the outbox makes the bus publish or archive what it never
//! took (B-073, B-076). The newest key signs, every key of the ring verifies.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{BusError, limits};

/// What a MAC is made over first.
const LABEL: &[u8] = b"latent-cold-outbox-v1\0";
/// What a key's id is made over first.
const ID_LABEL: &[u8] = b"latent-cold-key-id-v1\0";
/// Characters of a key's id.
const ID_CHARS: usize = 16;
/// The longest text that is looked at as a MAC.
const MAC_CHARS_MAX: usize = 128;

/// The one text for everything that is not as it was signed: what exactly is wrong helps only who tries.
pub(crate) const AUTHENTICATION_FAILED: &str = "cold outbox authentication failed";

/// See the module. An empty ring signs and verifies nothing.
#[derive(Clone, Default)]
pub(crate) struct KeyRing(Vec<Key>);

#[derive(Clone)]
struct Key {
    id: String,
    bytes: Zeroizing<[u8; 32]>,
}

/// Names of a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) key_id: String,
    pub(crate) mac: String,
}

impl KeyRing {
    /// A ring of these keys, the newest first.
    ///
    /// # Errors
    /// [`BusError::Config`] for a key that protects nothing, and for too many.
    pub(crate) fn new(newest_first: &[[u8; 32]]) -> Result<Self, BusError> {
        let mut ring = Self::default();
        for key in newest_first.iter().rev() {
            ring = ring.with_newest(key)?;
        }
        Ok(ring)
    }

    /// This ring with one more key, which signs from now on.
    pub(crate) fn with_newest(&self, key: &[u8; 32]) -> Result<Self, BusError> {
        if is_weak(key) {
            let problem = "the control key of the archive is all zeros or all 0xFF and protects nothing; make one of 32 random bytes";
            return Err(BusError::Config { problem: problem.to_owned() });
        }
        let id = key_id(key);
        let mut keys = vec![Key { id: id.clone(), bytes: Zeroizing::new(*key) }];
        keys.extend(self.0.iter().filter(|known| known.id != id).cloned());
        let max = limits::CONTROL_KEYS.max_usize();
        if keys.len() > max {
            let problem = format!("more than {max} control keys; leave out the oldest, once no intent of theirs is left");
            return Err(BusError::Config { problem });
        }
        Ok(Self(keys))
    }

    /// Whether anything can be signed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has the key of this name.
    pub(crate) fn has(&self, key_id: &str) -> bool {
        self.0.iter().any(|key| key.id == key_id)
    }

    /// Signs with the newest key.
    pub(crate) fn sign(&self, payload: &[u8]) -> Result<Signature, BusError> {
        let key = self.0.first().ok_or_else(no_key)?;
        let mac = proof(key, payload).finalize().into_bytes();
        Ok(Signature { key_id: key.id.clone(), mac: hex(&mac) })
    }

    /// Verifies, in a time that does not depend on where a MAC differs.
    pub(crate) fn verify(&self, key_id: &str, mac: &str, payload: &[u8]) -> Result<(), BusError> {
        let failed = || BusError::Backend(AUTHENTICATION_FAILED.to_owned());
        if self.is_empty() {
            return Err(no_key());
        }
        let mac = Some(mac).filter(|mac| mac.len() <= MAC_CHARS_MAX).and_then(from_hex).ok_or_else(failed)?;
        let key = self.0.iter().find(|key| key.id == key_id && !is_weak(&key.bytes)).ok_or_else(failed)?;
        proof(key, payload).verify_slice(&mac).map_err(|_| failed())
    }
}

/// Of a maintenance that could bring nothing into an archive. A node has a key wherever a topic is archived, so it is somebody else's.
pub(crate) fn no_key_to_archive_with() -> BusError {
    BusError::Config { problem: "the command has no control key; start the node, which archives what has expired".to_owned() }
}

fn no_key() -> BusError {
    let problem = "the archive has no control key; set one before anything is published to or expires from a topic with cold_uri";
    BusError::Config { problem: problem.to_owned() }
}

fn is_weak(key: &[u8; 32]) -> bool {
    [0, 0xff].iter().any(|byte| key.iter().all(|other| other == byte))
}

fn key_id(key: &[u8; 32]) -> String {
    let digest = Sha256::new().chain_update(ID_LABEL).chain_update(key).finalize();
    hex(&digest).chars().take(ID_CHARS).collect()
}

fn proof(key: &Key, payload: &[u8]) -> Hmac<Sha256> {
    // HMAC fills a key up to its block with zeros.
    let mut block = Zeroizing::new([0; 64]);
    block.iter_mut().zip(key.bytes.iter()).for_each(|(to, from)| *to = *from);
    let mut proof = Hmac::<Sha256>::new(&(*block).into());
    proof.update(LABEL);
    proof.update(key.id.as_bytes());
    proof.update(&(payload.len() as u64).to_le_bytes());
    proof.update(payload);
    proof
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of lower-case hex, and of nothing else.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let nibble = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(nibble(*high)? << 4 | nibble(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(keys: &[u8]) -> KeyRing {
        KeyRing::new(&keys.iter().map(|byte| [*byte; 32]).collect::<Vec<_>>()).unwrap()
    }

    fn is_refused(result: &Result<(), BusError>) -> bool {
        matches!(result, Err(BusError::Backend(text)) if text == AUTHENTICATION_FAILED)
    }

    /// B-073.
    #[test]
    fn a_signature_is_pinned_and_holds_for_these_bytes_under_this_key_alone() {
        let signed = ring(&[7]).sign(b"{\"a\":1}").unwrap();
        assert_eq!(
            (&*signed.key_id, &*signed.mac),
            ("27e91c1628ef2087", "76495221931af3dfdf1b55d1ceaef64eb40c6f17a54c0a5fca310ed32c3cab0e")
        );
        assert_eq!(ring(&[7]).verify(&signed.key_id, &signed.mac, b"{\"a\":1}"), Ok(()));
        for payload in [b"{\"a\":2}" as &[u8], b"{\"a\":1} ", b"", b"{\"a\": 1}"] {
            assert!(is_refused(&ring(&[7]).verify(&signed.key_id, &signed.mac, payload)));
        }
        assert!(is_refused(&ring(&[8]).verify(&signed.key_id, &signed.mac, b"{\"a\":1}")), "another key");
        assert!(is_refused(&ring(&[7]).verify("", &signed.mac, b"{\"a\":1}")), "another id");
    }

    /// B-073.
    #[test]
    fn every_changed_nibble_and_everything_that_is_no_mac_is_refused_with_one_text() {
        let signed = ring(&[7]).sign(b"x").unwrap();
        for at in 0..signed.mac.len() {
            let mut mac = signed.mac.clone().into_bytes();
            mac[at] = if mac[at] == b'0' { b'1' } else { b'0' };
            let mac = String::from_utf8(mac).unwrap();
            assert!(is_refused(&ring(&[7]).verify(&signed.key_id, &mac, b"x")), "{at}");
        }
        let (upper, longer) = (signed.mac.to_uppercase(), signed.mac.clone() + "00");
        let huge = signed.mac.repeat(3);
        for mac in ["", "zz", &signed.mac[1..], &signed.mac[2..], &upper, &longer, &huge, "\u{e9}\u{e9}"] {
            assert!(is_refused(&ring(&[7]).verify(&signed.key_id, mac, b"x")), "{mac}");
        }
    }

    #[test]
    fn the_newest_key_signs_and_older_ones_still_verify() {
        let old = ring(&[1]).sign(b"x").unwrap();
        let rotated = ring(&[1]).with_newest(&[2; 32]).unwrap();
        assert_eq!(rotated.verify(&old.key_id, &old.mac, b"x"), Ok(()));
        let new = rotated.sign(b"x").unwrap();
        assert_ne!(new.key_id, old.key_id);
        assert_eq!(ring(&[2, 1]).verify(&new.key_id, &new.mac, b"x"), Ok(()));
        assert!(is_refused(&ring(&[2]).verify(&old.key_id, &old.mac, b"x")), "a key that left the ring");
        assert_eq!(ring(&[1, 2]).with_newest(&[2; 32]).unwrap().sign(b"x").unwrap(), new, "a known key becomes the newest");
    }

    /// B-076.
    #[test]
    fn keys_that_protect_nothing_are_refused_and_without_a_key_nothing_is_signed_or_verified() {
        for weak in [[0; 32], [0xff; 32]] {
            assert!(matches!(KeyRing::new(&[weak]), Err(BusError::Config { .. })));
            let planted = KeyRing(vec![Key { id: key_id(&weak), bytes: Zeroizing::new(weak) }]);
            let signed = planted.sign(b"x").unwrap();
            assert!(is_refused(&planted.verify(&signed.key_id, &signed.mac, b"x")), "nor does one verify");
        }
        assert!(matches!(KeyRing::default().sign(b"x"), Err(BusError::Config { .. })));
        assert!(matches!(KeyRing::default().verify("", "", b"x"), Err(BusError::Config { .. })));
    }

    #[test]
    fn a_ring_has_at_most_so_many_keys() {
        let keys = |count: u8| (1..=count).map(|byte| [byte; 32]).collect::<Vec<_>>();
        let max = u8::try_from(limits::CONTROL_KEYS.max).unwrap();
        assert!(KeyRing::new(&keys(max - 1)).is_ok() && KeyRing::new(&keys(max)).is_ok() && KeyRing::new(&keys(max + 1)).is_err());
    }
}
