//! The first page of a run: what it covers and how its pages are laid out. Bytes in, values out; no I/O.
//!
//! Invariants of a header that was decoded: `first < next`, `1 ≤ bucket_pages ≤ entry_pages`, and `file_bytes` does not overflow.

use super::filter::PAGE_BLOCKS;
use super::page::{PAGE_BYTES, PAGE_ENTRIES};
use super::{SequenceRange, UidHash};
use crate::engine::embedded::frame::{Salt, u32_at, u64_at};

/// First bytes, little-endian.
pub(in super::super) const RUN_MAGIC: u32 = u32::from_le_bytes(*b"LTU1");
/// The one layout that is read. Runs of another are dropped and made again from the log.
pub(in super::super) const RUN_FORMAT: u32 = 1;
/// Bytes of the header's fields; zeros follow to the end of the page.
#[cfg(test)]
pub(in super::super) const RUN_HEADER_BYTES: usize = 72;
/// Entries that a page is meant to have, three quarters of a full one: the chance that one spills is about 1 in 30,000.
const PAGE_ENTRIES_MEAN: u64 = PAGE_ENTRIES as u64 * 3 / 4;

/// Byte positions in a header.
pub(in super::super) mod run_header_at {
    pub(in super::super::super) const MAGIC: usize = 0;
    pub(in super::super::super) const HEADER_CRC: usize = 4;
    pub(in super::super::super) const FORMAT: usize = 8;
    pub(in super::super::super) const LEVEL: usize = 12;
    pub(in super::super::super) const FIRST: usize = 16;
    pub(in super::super::super) const NEXT: usize = 24;
    pub(in super::super::super) const WITNESS: usize = 32;
    pub(in super::super::super) const ENTRIES: usize = 40;
    pub(in super::super::super) const BUCKET_PAGES: usize = 48;
    pub(in super::super::super) const ENTRY_PAGES: usize = 56;
    pub(in super::super::super) const FILTER_BLOCKS: usize = 64;
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunHeader {
    /// Merges that made it: 0 for one made from memory or from the log.
    pub(super) level: u32,
    pub(super) range: SequenceRange,
    /// See [`super::RunToWrite::witness`].
    pub(super) witness: u64,
    pub(super) entries: u64,
    /// Pages among which the hashes are divided evenly.
    pub(super) bucket_pages: u64,
    /// Pages with entries: the bucket pages and what the last of them spilled.
    pub(super) entry_pages: u64,
    /// Blocks of the filter, 0 when it has none.
    pub(super) filter_blocks: u64,
}

/// Bucket pages for about so many entries.
pub(super) const fn bucket_pages_for(entries: u64) -> u64 {
    let pages = entries.div_ceil(PAGE_ENTRIES_MEAN);
    if pages == 0 { 1 } else { pages }
}

impl RunHeader {
    /// The header page.
    pub(super) fn encode(&self, salt: Salt) -> Vec<u8> {
        let mut fields = self.identifying_fields();
        for number in [self.entries, self.bucket_pages, self.entry_pages, self.filter_blocks] {
            fields.extend_from_slice(&number.to_le_bytes());
        }
        fields.resize(PAGE_BYTES - run_header_at::FORMAT, 0);
        let mut out = RUN_MAGIC.to_le_bytes().to_vec();
        out.extend_from_slice(&salt.crc(&fields).to_le_bytes());
        out.extend_from_slice(&fields);
        out
    }

    /// `None` when this is no header of this log and format.
    pub(super) fn decode(salt: Salt, page: &[u8]) -> Option<Self> {
        let fields = page.get(run_header_at::FORMAT..PAGE_BYTES)?;
        let valid = u32_at(page, run_header_at::MAGIC)? == RUN_MAGIC
            && u32_at(page, run_header_at::HEADER_CRC)? == salt.crc(fields)
            && u32_at(page, run_header_at::FORMAT)? == RUN_FORMAT;
        let range = SequenceRange { first: u64_at(page, run_header_at::FIRST)?, next: u64_at(page, run_header_at::NEXT)? };
        let header = Self {
            level: u32_at(page, run_header_at::LEVEL)?,
            range,
            witness: u64_at(page, run_header_at::WITNESS)?,
            entries: u64_at(page, run_header_at::ENTRIES)?,
            bucket_pages: u64_at(page, run_header_at::BUCKET_PAGES)?,
            entry_pages: u64_at(page, run_header_at::ENTRY_PAGES)?,
            filter_blocks: u64_at(page, run_header_at::FILTER_BLOCKS)?,
        };
        let laid_out = range.first < range.next && header.bucket_pages > 0 && header.bucket_pages <= header.entry_pages;
        (valid && laid_out && header.file_bytes().is_some()).then_some(header)
    }

    /// What the pages of this run say they belong to.
    pub(super) fn mark(&self, salt: Salt) -> u32 {
        salt.crc(&self.identifying_fields())
    }

    fn identifying_fields(&self) -> Vec<u8> {
        let mut fields = RUN_FORMAT.to_le_bytes().to_vec();
        fields.extend_from_slice(&self.level.to_le_bytes());
        fields.extend_from_slice(&self.range.first.to_le_bytes());
        fields.extend_from_slice(&self.range.next.to_le_bytes());
        fields.extend_from_slice(&self.witness.to_le_bytes());
        fields
    }

    /// Number in the file of the page where entries with this hash begin.
    pub(super) fn first_page_of(&self, hash: UidHash) -> u64 {
        1 + hash.part_of(self.bucket_pages)
    }

    /// Number in the file of the first page after the entries, which is the filter's first.
    pub(super) const fn entries_end(&self) -> u64 {
        self.entry_pages.saturating_add(1)
    }

    /// Pages of the filter.
    pub(super) const fn filter_pages(&self) -> u64 {
        self.filter_blocks.div_ceil(PAGE_BLOCKS as u64)
    }

    /// Size of the whole file, or `None` when no file can be as large.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        let pages = self.entry_pages.checked_add(1)?.checked_add(self.filter_pages())?;
        pages.checked_mul(PAGE_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RunHeader {
        let range = SequenceRange { first: 5, next: 9 };
        RunHeader { level: 2, range, witness: 6, entries: 4, bucket_pages: 1, entry_pages: 2, filter_blocks: 64 }
    }

    #[test]
    fn a_header_reads_back_and_any_flipped_bit_is_noticed() {
        let salt = Salt::of(&[7; 16], "t");
        let page = header().encode(salt);
        assert_eq!((page.len(), RunHeader::decode(salt, &page)), (PAGE_BYTES, Some(header())));
        assert_eq!(header().file_bytes(), Some(5 * PAGE_BYTES as u64));
        assert_eq!(RunHeader::decode(Salt::of(&[7; 16], "u"), &page), None);
        for bit in 0..PAGE_BYTES * 8 {
            let mut flipped = page.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RunHeader::decode(salt, &flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn a_layout_that_cannot_be_is_refused() {
        let salt = Salt::of(&[7; 16], "t");
        let cases = [
            RunHeader { range: SequenceRange { first: 9, next: 9 }, ..header() },
            RunHeader { bucket_pages: 0, ..header() },
            RunHeader { bucket_pages: 3, ..header() },
            RunHeader { entry_pages: u64::MAX, ..header() },
            RunHeader { entry_pages: u64::MAX / PAGE_BYTES as u64, ..header() },
            RunHeader { filter_blocks: u64::MAX, entry_pages: u64::MAX / 2, ..header() },
        ];
        for case in cases {
            assert_eq!(RunHeader::decode(salt, &case.encode(salt)), None, "{case:?}");
        }
    }

    #[test]
    fn pages_are_three_quarters_full_and_no_run_is_without_one() {
        for (entries, pages) in [(0, 1), (1, 1), (153, 1), (154, 2), (306, 2), (307, 3)] {
            assert_eq!(bucket_pages_for(entries), pages, "{entries}");
        }
    }
}
