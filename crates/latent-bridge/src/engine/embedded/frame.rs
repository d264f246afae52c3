//! The frame around a record: header, body, footer. Bytes in, values out; no I/O. `docs/formats/embedded-log.md` has the tables.
//!
//! A record says twice who it is, before and after its body, so that one damaged place never hides which offset it occupied. The
//! checksums of header and footer start from a number that only this directory and topic have: bytes that a client put into a
//! payload can therefore not pass for a frame when a damaged place is searched for the next one.

use sha2::{Digest, Sha256};

/// First bytes of a header, little-endian.
pub(super) const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"LTR1");
/// First bytes of a footer, little-endian.
pub(super) const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"LTE1");
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 48;
/// Bytes of a footer.
pub(super) const FOOTER_BYTES: usize = 28;

/// Byte positions in a header.
pub(super) mod header_at {
    pub(in super::super) const MAGIC: usize = 0;
    pub(in super::super) const HEADER_CRC: usize = 4;
    pub(in super::super) const BODY_LEN: usize = 8;
    pub(in super::super) const BODY_CRC: usize = 12;
    pub(in super::super) const SEQUENCE: usize = 16;
    pub(in super::super) const OFFSET: usize = 24;
    pub(in super::super) const STORED_AT: usize = 32;
    pub(in super::super) const PARTITION: usize = 40;
    pub(in super::super) const GROUP_INDEX: usize = 42;
    pub(in super::super) const HEAD_CRC: usize = 44;
}

/// Byte positions in a footer.
pub(super) mod footer_at {
    pub(in super::super) const MAGIC: usize = 0;
    pub(in super::super) const FOOTER_CRC: usize = 4;
    pub(in super::super) const SEQUENCE: usize = 8;
    pub(in super::super) const OFFSET: usize = 16;
    pub(in super::super) const PARTITION: usize = 24;
}

/// What the checksums of one topic start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Salt(u32);

impl Salt {
    /// The salt of the log `name` in the directory with this store id.
    pub(super) fn of(store_id: &[u8; 16], name: &str) -> Self {
        let digest = Sha256::new().chain_update(store_id).chain_update(name.as_bytes()).finalize();
        Self(digest.iter().take(4).fold(0, |salt, byte| salt << 8 | u32::from(*byte)))
    }

    /// Checksum of bytes that only this log can have written.
    pub(super) fn crc(self, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        hasher.finalize()
    }

    /// The salt of parts of a file that has this checksum, so that they are told from equal parts of another.
    pub(super) const fn of_parts(self, file_crc: u32) -> Self {
        Self(self.0 ^ file_crc)
    }

    pub(super) const fn inverted(self) -> Self {
        Self(!self.0)
    }
}

/// Who a record is: its place in the topic and in its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    /// Dense over the topic.
    pub(super) sequence: u64,
    /// The partition.
    pub(super) partition: u16,
    /// Dense over the partition.
    pub(super) offset: u64,
}

/// A header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) identity: Identity,
    /// Place in the group that was written and synced together. A record with 0 after it proves that its group was synced.
    pub(super) group_index: u16,
    /// Wall clock of the group, in milliseconds since 1970.
    pub(super) stored_at: u64,
    pub(super) body_len: u32,
    pub(super) body_crc: u32,
    /// Checksum of the body's head alone, so that uid and key can be trusted without reading the payload.
    pub(super) head_crc: u32,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}

impl Header {
    /// Bytes of the whole frame.
    pub(super) const fn frame_bytes(&self) -> u64 {
        frame_bytes(self.body_len)
    }

    /// Writes header and footer around the body that lies between them in `frame`, which is [`Header::frame_bytes`] long.
    pub(super) fn seal(&self, salt: Salt, frame: &mut [u8]) {
        let body_end = HEADER_BYTES + self.body_len as usize;
        if let Some(header) = frame.first_chunk_mut() {
            self.encode(salt, header);
        }
        if let Some(footer) = frame.get_mut(body_end..).and_then(|rest| rest.first_chunk_mut()) {
            self.identity.encode_footer(salt, footer);
        }
    }

    fn encode(&self, salt: Salt, out: &mut [u8; HEADER_BYTES]) {
        let (checked, mut fields) = out.split_at_mut(header_at::BODY_LEN);
        put(&mut fields, &self.body_len.to_le_bytes());
        put(&mut fields, &self.body_crc.to_le_bytes());
        put(&mut fields, &self.identity.sequence.to_le_bytes());
        put(&mut fields, &self.identity.offset.to_le_bytes());
        put(&mut fields, &self.stored_at.to_le_bytes());
        put(&mut fields, &self.identity.partition.to_le_bytes());
        put(&mut fields, &self.group_index.to_le_bytes());
        put(&mut fields, &self.head_crc.to_le_bytes());
        let mut before = checked;
        put(&mut before, &HEADER_MAGIC.to_le_bytes());
        let crc = salt.crc(out.get(header_at::BODY_LEN..).unwrap_or_default());
        if let Some(mut at) = out.get_mut(header_at::HEADER_CRC..) {
            put(&mut at, &crc.to_le_bytes());
        }
    }

    /// Reads a header at the start of `bytes`, or `None` when there is no valid one.
    pub(super) fn decode(salt: Salt, bytes: &[u8], body_bytes_max: usize) -> Option<Self> {
        let header = bytes.get(..HEADER_BYTES)?;
        if u32_at(header, header_at::MAGIC)? != HEADER_MAGIC
            || u32_at(header, header_at::HEADER_CRC)? != salt.crc(header.get(header_at::BODY_LEN..)?)
        {
            return None;
        }
        let body_len = u32_at(header, header_at::BODY_LEN).filter(|len| *len as usize <= body_bytes_max)?;
        Some(Self {
            identity: Identity {
                sequence: u64_at(header, header_at::SEQUENCE)?,
                partition: u16_at(header, header_at::PARTITION)?,
                offset: u64_at(header, header_at::OFFSET)?,
            },
            group_index: u16_at(header, header_at::GROUP_INDEX)?,
            stored_at: u64_at(header, header_at::STORED_AT)?,
            body_len,
            body_crc: u32_at(header, header_at::BODY_CRC)?,
            head_crc: u32_at(header, header_at::HEAD_CRC)?,
        })
    }
}

/// Bytes of a frame around a body of `body_len` bytes.
pub(super) const fn frame_bytes(body_len: u32) -> u64 {
    (HEADER_BYTES + FOOTER_BYTES) as u64 + body_len as u64
}

impl Identity {
    fn encode_footer(self, salt: Salt, out: &mut [u8; FOOTER_BYTES]) {
        let (checked, mut fields) = out.split_at_mut(footer_at::SEQUENCE);
        put(&mut fields, &self.sequence.to_le_bytes());
        put(&mut fields, &self.offset.to_le_bytes());
        put(&mut fields, &u32::from(self.partition).to_le_bytes());
        let mut before = checked;
        put(&mut before, &FOOTER_MAGIC.to_le_bytes());
        let crc = salt.inverted().crc(out.get(footer_at::SEQUENCE..).unwrap_or_default());
        if let Some(mut at) = out.get_mut(footer_at::FOOTER_CRC..) {
            put(&mut at, &crc.to_le_bytes());
        }
    }

    /// Reads a footer at the start of `bytes`, or `None` when there is no valid one.
    pub(super) fn decode_footer(salt: Salt, bytes: &[u8]) -> Option<Self> {
        let footer = bytes.get(..FOOTER_BYTES)?;
        if u32_at(footer, footer_at::MAGIC)? != FOOTER_MAGIC
            || u32_at(footer, footer_at::FOOTER_CRC)? != salt.inverted().crc(footer.get(footer_at::SEQUENCE..)?)
        {
            return None;
        }
        Some(Self {
            sequence: u64_at(footer, footer_at::SEQUENCE)?,
            offset: u64_at(footer, footer_at::OFFSET)?,
            partition: u16::try_from(u32_at(footer, footer_at::PARTITION)?).ok()?,
        })
    }
}

/// Fills the front of `cursor`, which was sized for the fields put into it.
fn put(cursor: &mut &mut [u8], bytes: &[u8]) {
    let whole = std::mem::take(cursor);
    if let Some((front, rest)) = whole.split_at_mut_checked(bytes.len()) {
        front.copy_from_slice(bytes);
        *cursor = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt(0x1234_5678);

    fn header(body: &[u8]) -> Header {
        Header {
            identity: Identity { sequence: 7, partition: 3, offset: 5 },
            group_index: 4,
            stored_at: 11,
            body_len: u32::try_from(body.len()).unwrap(),
            body_crc: crc32fast::hash(body),
            head_crc: 99,
        }
    }

    fn frame(salt: Salt, body: &[u8]) -> Vec<u8> {
        let mut bytes = [&[0; HEADER_BYTES], body, &[0; FOOTER_BYTES]].concat();
        header(body).seal(salt, &mut bytes);
        bytes
    }

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        let written = header(b"body");
        let bytes = frame(SALT, b"body");
        assert_eq!(bytes.len() as u64, written.frame_bytes());
        assert_eq!(Header::decode(SALT, &bytes, 4), Some(written));
        assert_eq!(Identity::decode_footer(SALT, &bytes[HEADER_BYTES + 4..]), Some(written.identity));
        assert_eq!(Header::decode(SALT, &bytes, 3), None, "a body larger than any record");
    }

    #[test]
    fn any_flipped_bit_of_header_or_footer_is_noticed() {
        let bytes = frame(SALT, b"");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let header = Header::decode(SALT, &flipped, 100).is_some();
            let footer = Identity::decode_footer(SALT, &flipped[HEADER_BYTES..]).is_some();
            assert_eq!((header, footer), (bit / 8 >= HEADER_BYTES, bit / 8 < HEADER_BYTES), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_of_another_log_is_none_of_ours() {
        let bytes = frame(Salt::of(&[1; 16], "a"), b"");
        for other in [Salt::of(&[1; 16], "b"), Salt::of(&[2; 16], "a")] {
            assert_eq!(Header::decode(other, &bytes, 100), None);
        }
        assert!(Header::decode(SALT, &[0; HEADER_BYTES], 100).is_none(), "zeros are no header");
    }
}
