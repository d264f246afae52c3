//! The end of a segment: where its index is, the digest of all before it, and the proof.

use super::cursor::Cursor;
use super::{SegmentDigest, SegmentError};

/// The last bytes.
const MAGIC: [u8; 8] = *b"LSEG-END";
/// Room for the name of a key.
pub(super) const KEY_ID_BYTES: usize = 32;
/// Position and size of the index, which the digest covers.
pub(super) const POINTER_BYTES: usize = 12;
/// Digest, name of the key, proof and the last bytes, which it does not.
pub(super) const SEAL_BYTES: usize = 32 + KEY_ID_BYTES + 32 + MAGIC.len();

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) index_at: u64,
    pub(super) index_bytes: u32,
    pub(super) digest: SegmentDigest,
    pub(super) key_id: String,
    pub(super) proof: [u8; 32],
}

impl Trailer {
    /// Appends the part that the digest covers.
    pub(super) fn encode_pointer(index_at: u64, index_bytes: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&index_at.to_le_bytes());
        out.extend_from_slice(&index_bytes.to_le_bytes());
    }

    /// Appends the part that it does not cover. `None`, with `out` as it was, for the name of a key that has no room.
    pub(super) fn encode_seal(digest: SegmentDigest, key_id: &str, proof: &[u8; 32], out: &mut Vec<u8>) -> Option<()> {
        let mut name = [0; KEY_ID_BYTES];
        name.get_mut(..key_id.len()).filter(|_| is_name(key_id))?.copy_from_slice(key_id.as_bytes());
        out.extend_from_slice(&digest.0);
        out.extend_from_slice(&name);
        out.extend_from_slice(proof);
        out.extend_from_slice(&MAGIC);
        Some(())
    }

    /// Reads the end of a segment.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let not_whole = |problem| SegmentError::NotWhole { problem };
        let at = bytes.len().checked_sub(POINTER_BYTES + SEAL_BYTES).ok_or_else(|| not_whole("it is too short"))?;
        let mut end = Cursor(bytes.get(at..).unwrap_or_default());
        let read = (|| {
            let (index_at, index_bytes) = (end.u64()?, end.u32()?);
            let (digest, name, proof) = (SegmentDigest(end.array()?), end.array::<KEY_ID_BYTES>()?, end.array()?);
            let length = name.iter().position(|byte| *byte == 0).unwrap_or(KEY_ID_BYTES);
            let (name, padding) = name.split_at_checked(length)?;
            let key_id = std::str::from_utf8(name).ok().filter(|name| is_name(name) && padding.iter().all(|byte| *byte == 0));
            Some((Self { index_at, index_bytes, digest, key_id: key_id.unwrap_or_default().to_owned(), proof }, key_id.is_some()))
        })();
        let (trailer, named) = read.ok_or_else(|| not_whole("it is too short"))?;
        if end.array() != Some(MAGIC) {
            return Err(not_whole("it does not end as one"));
        }
        if named { Ok(trailer) } else { Err(SegmentError::Inconsistent { problem: "the name of its key is none" }) }
    }
}

fn is_name(key_id: &str) -> bool {
    (1..=KEY_ID_BYTES).contains(&key_id.len()) && key_id.bytes().all(|byte| byte.is_ascii_graphic())
}
