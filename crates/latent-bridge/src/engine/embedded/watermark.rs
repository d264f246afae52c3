//! The watermark of a topic: numbers that were durable once. Next numbers are derived and only ever raise: without them the log alone
//! decides, with them a record that was acknowledged and then lost from the end of the log keeps its offset occupied. First numbers
//! say what has expired; they are written before anything is removed.

use std::path::{Path, PathBuf};

use super::directory::{read_control, write_control};
use super::frame::{Salt, u32_at, u64_at};
use super::numbers::Numbers;
use super::storage::Storage;
use crate::BusError;
use crate::error::base_name;

/// First bytes, little-endian.
pub(super) const WATERMARK_MAGIC: u32 = u32::from_le_bytes(*b"LTW2");
/// Bytes before the offsets.
pub(super) const WATERMARK_FIXED_BYTES: usize = 28;

/// Byte positions in a watermark.
pub(super) mod watermark_at {
    pub(in super::super) const MAGIC: usize = 0;
    pub(in super::super) const CRC: usize = 4;
    pub(in super::super) const SEQUENCE: usize = 8;
    pub(in super::super) const FIRST_SEQUENCE: usize = 16;
    pub(in super::super) const PARTITIONS: usize = 24;
}

/// What a watermark holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watermark {
    /// Everything below has expired.
    pub(super) first: Numbers,
    /// Everything below was given.
    pub(super) next: Numbers,
}

/// What a watermark's file says.
#[derive(Debug)]
pub(super) enum Kept {
    /// There is no such file.
    Missing,
    /// It is not what was written, which was warned of.
    Unusable,
    Found(Watermark),
}

/// Where a topic's watermark is.
pub(super) fn path(topic_directory: &Path) -> PathBuf {
    topic_directory.join("watermark")
}

/// Reads a watermark. A foreign or damaged one is as none, with a warning: the log has everything but lost records. What a missing one
/// means depends on the log.
pub(super) fn read(storage: &dyn Storage, path: &Path, salt: Salt, partitions: u32) -> Result<Kept, BusError> {
    let content = match read_control(storage, path) {
        Ok(content) => content,
        Err(BusError::Config { problem }) => {
            tracing::warn!(problem, "a watermark is ignored; the log is read without it");
            return Ok(Kept::Unusable);
        }
        Err(error) => return Err(error),
    };
    let Some(content) = content else { return Ok(Kept::Missing) };
    let decoded = decode(salt, &content).filter(|watermark| watermark.next.offsets.len() == partitions as usize);
    Ok(decoded.map_or_else(
        || {
            tracing::warn!(file = base_name(path), "a watermark that is damaged or of another log is ignored; the log is read without it");
            Kept::Unusable
        },
        Kept::Found,
    ))
}

/// Replaces a watermark.
pub(super) fn write(storage: &dyn Storage, path: &Path, salt: Salt, watermark: &Watermark) -> Result<(), BusError> {
    write_control(storage, path, &encode(salt, watermark))
}

fn encode(salt: Salt, watermark: &Watermark) -> Vec<u8> {
    let Watermark { first, next } = watermark;
    let mut fields = next.sequence.to_le_bytes().to_vec();
    fields.extend_from_slice(&first.sequence.to_le_bytes());
    let count = u32::try_from(next.offsets.len()).unwrap_or(u32::MAX);
    fields.extend_from_slice(&count.to_le_bytes());
    for (next, first) in next.offsets.iter().zip(&first.offsets) {
        fields.extend_from_slice(&next.to_le_bytes());
        fields.extend_from_slice(&first.to_le_bytes());
    }
    let mut out = WATERMARK_MAGIC.to_le_bytes().to_vec();
    out.extend_from_slice(&salt.crc(&fields).to_le_bytes());
    out.extend_from_slice(&fields);
    out
}

fn decode(salt: Salt, content: &[u8]) -> Option<Watermark> {
    let fields = content.get(watermark_at::SEQUENCE..)?;
    let valid = u32_at(content, watermark_at::MAGIC)? == WATERMARK_MAGIC && u32_at(content, watermark_at::CRC)? == salt.crc(fields);
    let count = u32_at(content, watermark_at::PARTITIONS)? as usize;
    let offsets = content.get(WATERMARK_FIXED_BYTES..)?;
    if !valid || offsets.len() != count.checked_mul(16)? {
        return None;
    }
    let column = |at: usize| (0..count).map(|partition| u64_at(offsets, partition * 16 + at)).collect::<Option<Vec<_>>>();
    Some(Watermark {
        first: Numbers { sequence: u64_at(content, watermark_at::FIRST_SEQUENCE)?, offsets: column(8)? },
        next: Numbers { sequence: u64_at(content, watermark_at::SEQUENCE)?, offsets: column(0)? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_reads_back_and_any_flipped_bit_or_cut_is_noticed() {
        let salt = Salt::of(&[7; 16], "t");
        let numbers = |sequence, offsets: [u64; 2]| Numbers { sequence, offsets: offsets.to_vec() };
        let watermark = Watermark { first: numbers(2, [1, 1]), next: numbers(5, [3, 2]) };
        let bytes = encode(salt, &watermark);
        assert_eq!(decode(salt, &bytes), Some(watermark));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(salt, &flipped), None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(decode(salt, &bytes[..length]), None, "length {length}");
        }
    }
}
