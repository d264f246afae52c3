//! Reads a segment. Opening checks everything but the blocks and the proof; the blocks are checked as they are read.

use bytes::Bytes;
use latent_core::{MediaType, Offset};
use sha2::{Digest as _, Sha256};

use super::builder::LABEL;
use super::cursor::Cursor;
use super::index::{self, BlockEntry};
use super::trailer::{POINTER_BYTES, SEAL_BYTES, Trailer};
use super::{Attest, Attestation, Item, SegmentDigest, SegmentError, SegmentHeader};
use crate::limits;

/// A segment whose bytes are those that its digest is of.
#[derive(Debug, Clone)]
pub struct Segment {
    bytes: Bytes,
    header: SegmentHeader,
    blocks_at: usize,
    blocks: Vec<BlockEntry>,
    trailer: Trailer,
}

impl Segment {
    /// Opens an object.
    ///
    /// # Errors
    /// [`SegmentError`]: it is not one, or it is not as it was written.
    pub fn open(bytes: Bytes) -> Result<Self, SegmentError> {
        let max = limits::ARCHIVE_SEGMENT_OBJECT_BYTES.default;
        if bytes.len() as u64 > max {
            return Err(SegmentError::TooLarge { what: "it", bytes: bytes.len() as u64, max });
        }
        let (header, blocks_at) = SegmentHeader::decode(&bytes)?;
        let trailer = Trailer::decode(&bytes)?;
        let covered = bytes.get(..bytes.len() - SEAL_BYTES).unwrap_or_default();
        let found = SegmentDigest(Sha256::digest(covered).into());
        if found != trailer.digest {
            return Err(SegmentError::Changed { said: trailer.digest, found });
        }
        let wrong = || SegmentError::Inconsistent { problem: "where its index is" };
        let index_at = usize::try_from(trailer.index_at).ok().filter(|at| *at >= blocks_at).ok_or_else(wrong)?;
        let index_bytes = covered.get(index_at..covered.len() - POINTER_BYTES).ok_or_else(wrong)?;
        if index_bytes.len() != trailer.index_bytes as usize {
            return Err(wrong());
        }
        let items_max = limits::ARCHIVE_SEGMENT_RECORDS.max;
        if u64::from(header.items) > items_max {
            return Err(SegmentError::Inconsistent { problem: "more items than any segment has" });
        }
        let blocks = index::decode(index_bytes, header.items, (header.first, header.last), index_at - blocks_at)?;
        // One item has room whatever its size, and with it a block that is not full.
        let raw_max = limits::ARCHIVE_SEGMENT_BYTES.max + limits::ARCHIVE_BLOCK_RAW_BYTES.max;
        let raw_bytes = blocks.iter().map(|block| u64::from(block.raw_bytes)).sum();
        if raw_bytes > raw_max {
            return Err(SegmentError::TooLarge { what: "what is in it", bytes: raw_bytes, max: raw_max });
        }
        Ok(Self { bytes, header, blocks_at, blocks, trailer })
    }

    /// What bytes claim that are no whole segment any more: for whoever has to name what is lost. Nothing of it can be relied on.
    pub fn claims(bytes: &[u8]) -> Option<SegmentHeader> {
        SegmentHeader::decode(bytes).ok().map(|(header, _)| header)
    }

    /// What it says of itself.
    pub const fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// What the next one repeats.
    pub const fn digest(&self) -> SegmentDigest {
        self.trailer.digest
    }

    /// Name of the key that it is proven with.
    pub fn key_id(&self) -> &str {
        &self.trailer.key_id
    }

    /// Whether it was made by who has a key of this ring.
    pub fn attested(&self, keys: &dyn Attest) -> Attestation {
        keys.check(LABEL, &self.trailer.key_id, &self.trailer.digest.0, &self.trailer.proof)
    }

    /// Everything in it, in order. After an error there is nothing more.
    pub fn items(&self) -> Items<'_> {
        self.items_from_block(0)
    }

    /// As [`Segment::items`], from the block on that can hold `offset`: reading one record reads one block.
    pub fn items_from(&self, offset: Offset) -> Items<'_> {
        let after = self.blocks.partition_point(|block| block.first <= offset);
        self.items_from_block(after.saturating_sub(1))
    }

    fn items_from_block(&self, block: usize) -> Items<'_> {
        let passed = self.blocks.get(..block).unwrap_or_default();
        Items {
            segment: self,
            next_block: block,
            at: self.blocks_at + passed.iter().map(|block| block.bytes as usize).sum::<usize>(),
            raw: Vec::new(),
            read: 0,
            left: 0,
            last: None,
            damaged: 0,
            media_type: None,
            from_start: block == 0,
            failed: false,
        }
    }
}

/// See [`Segment::items`].
pub struct Items<'s> {
    segment: &'s Segment,
    next_block: usize,
    at: usize,
    raw: Vec<u8>,
    read: usize,
    left: u32,
    last: Option<Offset>,
    damaged: u32,
    media_type: Option<MediaType>,
    from_start: bool,
    failed: bool,
}

impl Items<'_> {
    fn advance(&mut self) -> Result<Option<Item>, SegmentError> {
        if self.left == 0 {
            if self.read != self.raw.len() {
                return Err(self.block_error("there is something behind its last item"));
            }
            if !self.open_block()? {
                return self.check_end().map(|()| None);
            }
        }
        let mut cursor = Cursor(self.raw.get(self.read..).unwrap_or_default());
        let item = Item::decode(&mut cursor, self.media_type.as_ref()).ok_or_else(|| self.block_error("an item of it is none"))?;
        self.read = self.raw.len() - cursor.0.len();
        self.left -= 1;
        self.check_item(&item)?;
        self.last = Some(item.offset());
        match item.record() {
            None => self.damaged += 1,
            Some(record) => self.media_type = Some(record.media_type.clone()),
        }
        Ok(Some(item))
    }

    /// Decompresses the next block. False when there is none.
    fn open_block(&mut self) -> Result<bool, SegmentError> {
        let Some(entry) = self.segment.blocks.get(self.next_block).copied() else { return Ok(false) };
        self.next_block += 1;
        let end = self.at + entry.bytes as usize;
        let compressed = self.segment.bytes.get(self.at..end).ok_or_else(|| self.block_error("it is not there"))?;
        // Room for what the index says and not for what the block says, which is bounded by nobody.
        let raw =
            zstd::bulk::decompress(compressed, entry.raw_bytes as usize).map_err(|_| self.block_error("it cannot be decompressed"))?;
        if raw.len() != entry.raw_bytes as usize {
            return Err(self.block_error("it has another size than the index says"));
        }
        (self.raw, self.read, self.left, self.at) = (raw, 0, entry.items, end);
        let mut first = Cursor(self.raw.get(1..).unwrap_or_default());
        if first.u64() != Some(entry.first.0) {
            return Err(self.block_error("it begins with another offset than the index says"));
        }
        Ok(true)
    }

    fn check_item(&self, item: &Item) -> Result<(), SegmentError> {
        let (header, offset) = (&self.segment.header, item.offset());
        if self.last.is_some_and(|last| last >= offset) || !(header.first..=header.last).contains(&offset) {
            return Err(self.block_error("its offsets do not ascend within those of the header"));
        }
        let in_time = |at: u64| (header.oldest..=header.newest).contains(&at);
        if item.record().is_some_and(|record| !in_time(record.stored_at.0)) {
            return Err(self.block_error("a time in it lies outside those of the header"));
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), SegmentError> {
        if self.last != Some(self.segment.header.last) || (self.from_start && self.damaged != self.segment.header.damaged) {
            return Err(SegmentError::Inconsistent { problem: "its header and its items" });
        }
        Ok(())
    }

    fn block_error(&self, problem: &'static str) -> SegmentError {
        SegmentError::Block { block: self.next_block.saturating_sub(1), problem }
    }
}

impl Iterator for Items<'_> {
    type Item = Result<Item, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.advance();
        self.failed = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
