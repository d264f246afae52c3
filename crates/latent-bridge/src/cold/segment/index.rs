//! The index: where each block lies, with which offset it begins, and how large it becomes. It finds the block of an offset; a block is
//! small enough to be read for one record.

use latent_core::Offset;

use super::SegmentError;
use super::cursor::Cursor;
use crate::limits;

/// Bytes of one entry.
pub(super) const ENTRY_BYTES: usize = 20;

/// One block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockEntry {
    /// Offset of its first item.
    pub(super) first: Offset,
    /// Items in it.
    pub(super) items: u32,
    /// Bytes in the object.
    pub(super) bytes: u32,
    /// Bytes when it is no longer compressed.
    pub(super) raw_bytes: u32,
}

pub(super) fn encode(blocks: &[BlockEntry], out: &mut Vec<u8>) {
    for block in blocks {
        out.extend_from_slice(&block.first.0.to_le_bytes());
        for number in [block.items, block.bytes, block.raw_bytes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// Reads an index and checks it against what the header says: items, first and last offset. `blocks_bytes` is what lies between header
/// and index, all of which the blocks fill.
pub(super) fn decode(bytes: &[u8], items: u32, offsets: (Offset, Offset), blocks_bytes: usize) -> Result<Vec<BlockEntry>, SegmentError> {
    let wrong = |problem| SegmentError::Inconsistent { problem };
    if !bytes.len().is_multiple_of(ENTRY_BYTES) || bytes.is_empty() {
        return Err(wrong("the size of its index"));
    }
    let mut cursor = Cursor(bytes);
    let mut blocks: Vec<BlockEntry> = Vec::with_capacity(bytes.len() / ENTRY_BYTES);
    let (mut filled, mut counted) = (0_u64, 0_u64);
    while let (Some(first), Some(items), Some(bytes), Some(raw_bytes)) = (cursor.u64(), cursor.u32(), cursor.u32(), cursor.u32()) {
        let raw_max = limits::ARCHIVE_BLOCK_RAW_BYTES.default;
        if u64::from(raw_bytes) > raw_max {
            return Err(SegmentError::TooLarge { what: "a block of it", bytes: raw_bytes.into(), max: raw_max });
        }
        let entry = BlockEntry { first: Offset(first), items, bytes, raw_bytes };
        let ascends = blocks.last().map_or(entry.first == offsets.0, |before| before.first < entry.first) && entry.first <= offsets.1;
        if !ascends || items == 0 {
            return Err(wrong("the offsets of its index"));
        }
        filled += u64::from(bytes);
        counted += u64::from(items);
        blocks.push(entry);
    }
    if filled != blocks_bytes as u64 {
        return Err(wrong("the sizes of its blocks"));
    }
    if counted != u64::from(items) {
        return Err(wrong("the number of its items"));
    }
    Ok(blocks)
}
