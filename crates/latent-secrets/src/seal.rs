//! Sealing: XChaCha20-Poly1305 with a random nonce (D-31), over a text of one fixed size, so that no size tells a length.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::{AeadInOut as _, KeyInit as _, Tag, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::SealingKey;
use crate::limits::SECRET_VALUE_BYTES;

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const LENGTH_BYTES: usize = 2;
/// What a value is padded to.
const PADDED_BYTES: usize = LENGTH_BYTES + SECRET_VALUE_BYTES.max_usize();

/// A nonce as it is used once.
pub(crate) type Nonce = [u8; NONCE_BYTES];

/// A value of at most 4,096 bytes with its length before it and zeros behind it.
pub(crate) fn padded(value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(vec![0; PADDED_BYTES]);
    let (length, rest) = text.split_at_mut(LENGTH_BYTES);
    length.copy_from_slice(&u16::try_from(value.len()).ok()?.to_be_bytes());
    rest.get_mut(..value.len())?.copy_from_slice(value);
    Some(text)
}

/// The value in what [`padded`] made.
pub(crate) fn value_of(text: &[u8]) -> Option<&[u8]> {
    let (length, rest) = text.split_first_chunk::<LENGTH_BYTES>()?;
    rest.get(..u16::from_be_bytes(*length).into()).filter(|value| text.len() == PADDED_BYTES && !value.is_empty())
}

/// Seals a text where it stands. The result, in base64, is the nonce, the sealed text and the tag.
pub(crate) fn seal(key: &SealingKey, nonce: &Nonce, associated: &[u8], mut text: Zeroizing<Vec<u8>>) -> Option<String> {
    let cipher = XChaCha20Poly1305::new(key.bytes().into());
    let tag = cipher.encrypt_inout_detached(&XNonce::from(*nonce), associated, text.as_mut_slice().into()).ok()?;
    Some(STANDARD.encode([&nonce[..], &text, &tag].concat()))
}

/// The text that was sealed with the same associated data under the same key. It stands in a buffer that is wiped.
pub(crate) fn unseal(key: &SealingKey, associated: &[u8], sealed: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(STANDARD.decode(sealed).ok()?);
    let nonce = *text.first_chunk::<NONCE_BYTES>()?;
    let tag = *text.get(NONCE_BYTES..)?.last_chunk::<TAG_BYTES>()?;
    let bytes = text.len() - TAG_BYTES;
    text.truncate(bytes);
    text.drain(..NONCE_BYTES);
    let cipher = XChaCha20Poly1305::new(key.bytes().into());
    let opened = cipher.decrypt_inout_detached(&XNonce::from(nonce), associated, text.as_mut_slice().into(), &Tag::from(tag));
    opened.ok().map(|()| text)
}
