//! The first bytes of a segment: which numbers were given before it. With it a segment says by itself where its records belong,
//! whatever became of the segments before. Bytes in, values out; no I/O.

use super::frame::{Salt, u32_at, u64_at};
use super::numbers::Numbers;

/// First bytes, little-endian.
pub(super) const START_MAGIC: u32 = u32::from_le_bytes(*b"LTB1");
/// Bytes before the offsets.
pub(super) const START_FIXED_BYTES: usize = 20;

/// Byte positions.
pub(super) mod start_at {
    pub(in super::super) const MAGIC: usize = 0;
    pub(in super::super) const CRC: usize = 4;
    pub(in super::super) const PARTITIONS: usize = 8;
    pub(in super::super) const SEQUENCE: usize = 12;
}

/// Bytes of a segment's start in a topic with `partitions` partitions.
pub(super) const fn start_bytes(partitions: usize) -> usize {
    START_FIXED_BYTES + partitions * 8
}

/// Appends a segment's start to `out`.
pub(super) fn encode(salt: Salt, start: &Numbers, out: &mut Vec<u8>) {
    let mut fields = u32::try_from(start.offsets.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    fields.extend_from_slice(&start.sequence.to_le_bytes());
    start.offsets.iter().for_each(|offset| fields.extend_from_slice(&offset.to_le_bytes()));
    out.extend_from_slice(&START_MAGIC.to_le_bytes());
    out.extend_from_slice(&salt.crc(&fields).to_le_bytes());
    out.extend_from_slice(&fields);
}

/// Reads a segment's start, or `None` when there is no valid one for `partitions` partitions.
pub(super) fn decode(salt: Salt, bytes: &[u8], partitions: usize) -> Option<Numbers> {
    let bytes = bytes.get(..start_bytes(partitions))?;
    let valid = u32_at(bytes, start_at::MAGIC)? == START_MAGIC
        && u32_at(bytes, start_at::CRC)? == salt.crc(bytes.get(start_at::PARTITIONS..)?)
        && u32_at(bytes, start_at::PARTITIONS)? as usize == partitions;
    let offsets = valid.then(|| (0..partitions).map(|at| u64_at(bytes, START_FIXED_BYTES + at * 8)).collect::<Option<_>>())?;
    Some(Numbers { sequence: u64_at(bytes, start_at::SEQUENCE)?, offsets: offsets? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_reads_back_and_any_flipped_bit_or_cut_is_noticed() {
        let (salt, start) = (Salt::of(&[7; 16], "t"), Numbers { sequence: 5, offsets: vec![3, 2] });
        let mut bytes = Vec::new();
        encode(salt, &start, &mut bytes);
        assert_eq!((decode(salt, &bytes, 2), bytes.len()), (Some(start), start_bytes(2)));
        assert_eq!(decode(salt, &bytes, 1), None, "of a topic with other partitions");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(salt, &flipped, 2), None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(decode(salt, &bytes[..length], 2), None, "length {length}");
        }
    }
}
