//! Makes a segment: items go in by ascending offset until it is full, then it is closed behind the segment before it.

use bytes::Bytes;
use latent_core::Offset;
use sha2::{Digest as _, Sha256};

use super::index::{self, BlockEntry};
use super::item::ITEM_BYTES_MAX;
use super::trailer::Trailer;
use super::{Attest, Hole, Item, PreviousSegment, SegmentDigest, SegmentError, SegmentHeader, SegmentPlace};
use crate::limits;

/// Keeps proofs of segments apart from all others.
pub(super) const LABEL: &str = "latent-cold-segment-v1";
/// Three is what the compressor itself takes for the balance of time and size.
const LEVEL: i32 = 3;

/// When a segment is full. What comes in is bounded by `limits`; a smaller size makes smaller objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSizes {
    /// Items of a segment.
    pub items: u32,
    /// Bytes of its items before they are compressed.
    pub raw_bytes: usize,
    /// Bytes at which a block ends.
    pub block_bytes: usize,
}

impl Default for SegmentSizes {
    #[allow(clippy::cast_possible_truncation, reason = "the limit's range ends at 65,536")]
    fn default() -> Self {
        Self {
            items: limits::ARCHIVE_SEGMENT_RECORDS.default as u32,
            raw_bytes: limits::ARCHIVE_SEGMENT_BYTES.default_usize(),
            block_bytes: limits::ARCHIVE_BLOCK_BYTES.default_usize(),
        }
    }
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is in.
    Taken,
    /// It is the first of the next segment.
    Full,
}

/// A segment as it goes to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedSegment {
    /// What it says of itself.
    pub header: SegmentHeader,
    /// What the next segment repeats.
    pub digest: SegmentDigest,
    /// The object.
    pub bytes: Bytes,
}

/// See the module.
pub struct SegmentBuilder {
    sizes: SegmentSizes,
    compressor: zstd::bulk::Compressor<'static>,
    block: Vec<u8>,
    block_first: Option<Offset>,
    block_items: u32,
    compressed: Vec<u8>,
    blocks: Vec<BlockEntry>,
    raw_bytes: usize,
    items: u32,
    damaged: u32,
    offsets: Option<(Offset, Offset)>,
    times: Option<(u64, u64)>,
    hole: Option<Hole>,
}

impl SegmentBuilder {
    /// One with nothing in it.
    ///
    /// # Errors
    /// [`SegmentError::Unwritable`] when the compressor cannot be made.
    pub fn new(sizes: SegmentSizes) -> Result<Self, SegmentError> {
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(|_| compression_failed())?;
        Ok(Self {
            sizes,
            compressor,
            block: Vec::new(),
            block_first: None,
            block_items: 0,
            compressed: Vec::new(),
            blocks: Vec::new(),
            raw_bytes: 0,
            items: 0,
            damaged: 0,
            offsets: None,
            times: None,
            hole: None,
        })
    }

    /// Items in it.
    pub const fn items(&self) -> u32 {
        self.items
    }

    /// Offset of its first item.
    pub fn first(&self) -> Option<Offset> {
        self.offsets.map(|(first, _)| first)
    }

    /// Offset of its last item.
    pub fn last(&self) -> Option<Offset> {
        self.offsets.map(|(_, last)| last)
    }

    /// Earliest `stored_at` of what is in it.
    pub fn oldest(&self) -> Option<u64> {
        self.times.map(|(oldest, _)| oldest)
    }

    /// Names what the log lost behind the segment before it.
    pub const fn set_hole(&mut self, hole: Option<Hole>) {
        self.hole = hole;
    }

    /// Puts the next item in, unless that would make it larger than it may be; one item always has room.
    ///
    /// # Errors
    /// [`SegmentError::Unwritable`] for an item whose offset is not above the last one.
    pub fn push(&mut self, item: &Item) -> Result<Pushed, SegmentError> {
        let offset = item.offset();
        if self.last().is_some_and(|last| last >= offset) {
            return Err(SegmentError::Unwritable { what: format!("offset {offset}"), problem: "it does not ascend" });
        }
        let start = self.block.len();
        item.encode(&mut self.block)
            .ok_or_else(|| SegmentError::Unwritable { what: format!("offset {offset}"), problem: "it is larger than any record" })?;
        let bytes = self.block.len() - start;
        if self.items > 0 && (self.items >= self.sizes.items || self.raw_bytes + bytes > self.sizes.raw_bytes) {
            self.block.truncate(start);
            return Ok(Pushed::Full);
        }
        self.block_first.get_or_insert(offset);
        self.block_items += 1;
        self.note(item, bytes);
        if self.block.len() >= self.sizes.block_bytes.min(limits::ARCHIVE_BLOCK_RAW_BYTES.default_usize() - ITEM_BYTES_MAX) {
            self.end_block()?;
        }
        Ok(Pushed::Taken)
    }

    fn note(&mut self, item: &Item, bytes: usize) {
        let offset = item.offset();
        self.items += 1;
        self.raw_bytes += bytes;
        self.offsets = Some((self.offsets.map_or(offset, |(first, _)| first), offset));
        match item.record() {
            None => self.damaged += 1,
            Some(record) => {
                let at = record.stored_at.0;
                self.times = Some(self.times.map_or((at, at), |(oldest, newest)| (oldest.min(at), newest.max(at))));
            }
        }
    }

    fn end_block(&mut self) -> Result<(), SegmentError> {
        let Some(first) = self.block_first.take() else { return Ok(()) };
        let block = self.compressor.compress(&self.block).map_err(|_| compression_failed())?;
        let sizes = u32::try_from(block.len()).ok().zip(u32::try_from(self.block.len()).ok());
        let (bytes, raw_bytes) = sizes.ok_or_else(compression_failed)?;
        self.blocks.push(BlockEntry { first, items: std::mem::take(&mut self.block_items), bytes, raw_bytes });
        self.compressed.extend_from_slice(&block);
        self.block.clear();
        Ok(())
    }

    /// Empties it. What it is made with stays: making a compressor costs as much as compressing some blocks.
    pub fn clear(&mut self) {
        self.block.clear();
        self.compressed.clear();
        self.blocks.clear();
        (self.block_first, self.block_items, self.raw_bytes) = (None, 0, 0);
        (self.items, self.damaged, self.offsets, self.times, self.hole) = (0, 0, None, None, None);
    }

    /// Closes it behind `previous`, whose number is one less, and proves it. Afterwards, also when that failed, nothing is in it.
    ///
    /// # Errors
    /// [`SegmentError::Unwritable`] when nothing is in it or it would begin before the previous one ends; [`SegmentError::NoKey`].
    pub fn finish(
        &mut self,
        place: SegmentPlace,
        number: u64,
        previous: Option<PreviousSegment>,
        keys: &dyn Attest,
    ) -> Result<FinishedSegment, SegmentError> {
        let closed = self.close(place, number, previous, keys);
        self.clear();
        closed
    }

    fn close(
        &mut self,
        place: SegmentPlace,
        number: u64,
        previous: Option<PreviousSegment>,
        keys: &dyn Attest,
    ) -> Result<FinishedSegment, SegmentError> {
        self.end_block()?;
        let unwritable = |problem| SegmentError::Unwritable { what: format!("{}/p{}", place.topic, place.partition), problem };
        let (first, last) = self.offsets.ok_or_else(|| unwritable("it has no items"))?;
        if previous.is_some_and(|previous| previous.last >= first) || previous.is_some() != (number > 0) {
            return Err(unwritable("it does not come after the segment before it"));
        }
        let (oldest, newest) = self.times.unwrap_or_default();
        let (items, damaged) = (self.items, self.damaged);
        let hole = self.hole;
        if hole.is_some_and(|hole| !hole.is_one() || previous.is_some_and(|previous| previous.last >= hole.first)) {
            return Err(unwritable("the hole it names does not lie behind the segment before it"));
        }
        let header = SegmentHeader { place, number, previous, first, last, items, damaged, oldest, newest, hole };
        let mut out = Vec::with_capacity(self.compressed.len() + self.blocks.len() * index::ENTRY_BYTES + 1_024);
        header.encode(&mut out)?;
        out.extend_from_slice(&self.compressed);
        let index_at = out.len();
        index::encode(&self.blocks, &mut out);
        Trailer::encode_pointer(index_at as u64, u32::try_from(out.len() - index_at).unwrap_or(u32::MAX), &mut out);
        let digest = SegmentDigest(Sha256::digest(&out).into());
        let (key_id, proof) = keys.prove(LABEL, &digest.0).ok_or(SegmentError::NoKey)?;
        Trailer::encode_seal(digest, &key_id, &proof, &mut out).ok_or(SegmentError::NoKey)?;
        Ok(FinishedSegment { header, digest, bytes: Bytes::from(out) })
    }
}

fn compression_failed() -> SegmentError {
    SegmentError::Unwritable { what: "a block".to_owned(), problem: "the compressor failed" }
}
