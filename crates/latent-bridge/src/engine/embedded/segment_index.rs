//! The index file of a full segment: which offsets it holds and where. Derived from the segment, written once, checksummed in pages.
//! `docs/formats/embedded-log.md` has the tables. It knows files, not what a missing one means: `recovery` decides that.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{parse_segment_name, write_control};
use super::frame::{Salt, u32_at, u64_at};
use super::numbers::Numbers;
use super::positions::{Entry, Place, Positions, search};
use super::storage::{OpenAs, Storage, StorageFile};
use super::uid_hash::UidHasher;
use crate::BusError;

/// First bytes, little-endian.
pub(super) const INDEX_MAGIC: u32 = u32::from_le_bytes(*b"LTX1");
/// Bytes before the partitions.
pub(super) const INDEX_FIXED_BYTES: usize = 68;
/// Bytes of one partition in the header.
pub(super) const INDEX_PARTITION_BYTES: usize = 28;
/// Bytes of a page of entries: its checksum, and as many entries as fit.
pub(super) const PAGE_BYTES: usize = 4_096;
const PAGE_HEADER_BYTES: usize = 8;
const ENTRY_BYTES: usize = 8;
const PAGE_ENTRIES: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / ENTRY_BYTES;

/// Byte positions in the header.
pub(super) mod index_at {
    pub(in super::super) const MAGIC: usize = 0;
    pub(in super::super) const CRC: usize = 4;
    pub(in super::super) const FIRST_SEQUENCE: usize = 8;
    pub(in super::super) const NEXT_SEQUENCE: usize = 16;
    pub(in super::super) const LENGTH: usize = 24;
    pub(in super::super) const OLDEST: usize = 32;
    pub(in super::super) const NEWEST: usize = 40;
    pub(in super::super) const DISPLACED: usize = 48;
    pub(in super::super) const WITNESS: usize = 56;
    pub(in super::super) const PARTITIONS: usize = 64;
}

/// Byte positions in a partition of the header.
pub(super) mod index_partition_at {
    pub(in super::super) const START: usize = 0;
    pub(in super::super) const NEXT: usize = 8;
    pub(in super::super) const BYTES: usize = 16;
    pub(in super::super) const ENTRIES: usize = 24;
}

/// What is known of a full segment besides its positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentSummary {
    /// Numbers given before the segment.
    pub(super) start: Numbers,
    /// Numbers given when it ended.
    pub(super) end: Numbers,
    /// Bytes to the end of its last frame.
    pub(super) length: u64,
    /// Smallest and largest `stored_at` of its records, as they were written; the largest and smallest number when it has none.
    pub(super) oldest: u64,
    pub(super) newest: u64,
    /// Records that are not shown because their numbers repeat or fall.
    pub(super) displaced: u64,
    /// See [`witness`].
    pub(super) witness: u64,
    /// For each partition, readable records and the bytes of their frames.
    pub(super) partitions: Vec<PartitionSummary>,
}

/// See [`SegmentSummary`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PartitionSummary {
    pub(super) entries: u32,
    pub(super) bytes: u64,
}

/// Tells the end of a segment from any other end with the same numbers and length: the keyed hash of its last bytes. A directory that
/// was put together from copies may have derived files of another history, and since a log only grows at its end, the end stands
/// for everything before it.
pub(super) fn witness(file: &dyn StorageFile, hasher: &UidHasher, length: u64) -> std::io::Result<u64> {
    let mut tail = vec![0; usize::try_from(length).unwrap_or(PAGE_BYTES).min(PAGE_BYTES)];
    let from = length.saturating_sub(tail.len() as u64);
    let read = file.read_at(&mut tail, from)?;
    Ok(hasher.hash_bytes(tail.get(..read).unwrap_or_default()))
}

/// Name of the index of a segment.
pub(super) fn index_path(segment: &Path) -> PathBuf {
    segment.with_extension("idx")
}

/// The first sequence of the segment whose index, finished or not, has this name. `None` when it is no index's name.
pub(super) fn parse_index_name(name: &str) -> Option<u64> {
    let stem = name.strip_suffix(".tmp").unwrap_or(name).strip_suffix(".idx")?;
    parse_segment_name(&format!("{stem}.seg"))
}

/// An index file open for reading.
pub(super) struct IndexFile {
    file: Arc<dyn StorageFile>,
    /// Of its pages: the header's checksum is in it, so that a page of another index is noticed.
    page_salt: Salt,
    header_bytes: u64,
}

/// Why an index cannot be used. Always curable: the segment has everything.
#[derive(Debug)]
pub(super) enum IndexError {
    /// It is not there.
    Missing,
    /// It is not what was written.
    Unusable,
    /// It could not be read.
    Io(std::io::Error),
}

impl From<std::io::Error> for IndexError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Io(error),
        }
    }
}

/// Writes the index of a segment, durably.
pub(super) fn write(storage: &dyn Storage, path: &Path, salt: Salt, content: (&SegmentSummary, &Positions)) -> Result<(), BusError> {
    write_control(storage, path, &encode(salt, content.0, content.1))
}

fn encode(salt: Salt, summary: &SegmentSummary, positions: &Positions) -> Vec<u8> {
    let mut fields = Vec::new();
    for number in
        [summary.start.sequence, summary.end.sequence, summary.length, summary.oldest, summary.newest, summary.displaced, summary.witness]
    {
        fields.extend_from_slice(&number.to_le_bytes());
    }
    fields.extend_from_slice(&u32::try_from(summary.partitions.len()).unwrap_or(u32::MAX).to_le_bytes());
    for ((start, end), partition) in summary.start.offsets.iter().zip(&summary.end.offsets).zip(&summary.partitions) {
        for number in [*start, *end, partition.bytes] {
            fields.extend_from_slice(&number.to_le_bytes());
        }
        fields.extend_from_slice(&partition.entries.to_le_bytes());
    }
    let header_crc = salt.crc(&fields);
    let mut out = INDEX_MAGIC.to_le_bytes().to_vec();
    out.extend_from_slice(&header_crc.to_le_bytes());
    out.extend_from_slice(&fields);
    out.resize(out.len().next_multiple_of(PAGE_BYTES), 0);
    let entries: Vec<Entry> = positions.partitions().iter().flat_map(|partition| partition.entries.iter().copied()).collect();
    for (page, entries) in (0_u32..).zip(entries.chunks(PAGE_ENTRIES)) {
        let mut fields = page.to_le_bytes().to_vec();
        for entry in entries {
            fields.extend_from_slice(&entry.relative.to_le_bytes());
            fields.extend_from_slice(&entry.at.to_le_bytes());
        }
        fields.resize(PAGE_BYTES - 4, 0);
        out.extend_from_slice(&salt.of_parts(header_crc).crc(&fields).to_le_bytes());
        out.extend_from_slice(&fields);
    }
    out
}

impl IndexFile {
    /// Opens an index and reads what it says of its segment.
    pub(super) fn open(storage: &dyn Storage, path: &Path, salt: Salt, partitions: u32) -> Result<(Self, SegmentSummary), IndexError> {
        let file = storage.open(path, OpenAs::Existing)?;
        let wanted = INDEX_FIXED_BYTES + INDEX_PARTITION_BYTES * partitions as usize;
        let mut header = vec![0; wanted];
        let read = file.read_at(&mut header, 0)?;
        let summary = decode_header(salt, header.get(..read).unwrap_or_default()).filter(|summary| {
            let entries: u64 = summary.partitions.iter().map(|partition| u64::from(partition.entries)).sum();
            summary.partitions.len() == partitions as usize && entries < u64::from(u32::MAX)
        });
        let page_salt = salt.of_parts(u32_at(&header, index_at::CRC).unwrap_or_default());
        let index = Self { file, page_salt, header_bytes: wanted.next_multiple_of(PAGE_BYTES) as u64 };
        Ok((index, summary.ok_or(IndexError::Unusable)?))
    }

    /// Up to `max` records from `offset` on, of a partition whose entries are `entries` in the file, counted from the segment's first.
    pub(super) fn from(&self, partition: PartitionEntries, offset: u64, max: usize) -> Result<Vec<Place>, IndexError> {
        let PartitionEntries { start, entries } = partition;
        let count = (entries.end - entries.start) as usize;
        let Ok(relative) = u32::try_from(offset.saturating_sub(start)) else { return Ok(Vec::new()) };
        let pages = std::cell::RefCell::new(Pages { index: self, page: None, failed: None });
        let relative_at = |at: usize| pages.borrow_mut().entry(entries.start as usize + at).map(|entry| entry.relative);
        let first = search(count, relative, relative_at);
        let mut pages = pages.into_inner();
        let first = first.ok_or_else(|| pages.take_error())?;
        let mut places = Vec::with_capacity(max.min(count.saturating_sub(first)));
        for at in (first..count).take(max) {
            let entry = pages.entry(entries.start as usize + at).ok_or_else(|| pages.take_error())?;
            places.push(Place { offset: start.saturating_add(entry.relative.into()), at: entry.at });
        }
        Ok(places)
    }

    fn page(&self, number: usize) -> Result<Vec<u8>, IndexError> {
        let mut page = vec![0; PAGE_BYTES];
        let read = self.file.read_at(&mut page, self.header_bytes + (number * PAGE_BYTES) as u64)?;
        let fields = page.get(4..).unwrap_or_default();
        let sound = read == PAGE_BYTES
            && u32_at(&page, 0) == Some(self.page_salt.crc(fields))
            && u32_at(&page, 4).map(|page| page as usize) == Some(number);
        if sound { Ok(page) } else { Err(IndexError::Unusable) }
    }
}

/// Which entries of an index belong to a partition, and its first offset in the segment.
#[derive(Debug, Clone)]
pub(super) struct PartitionEntries {
    pub(super) start: u64,
    pub(super) entries: std::ops::Range<u32>,
}

/// The page of an index used last, and why one could not be.
struct Pages<'i> {
    index: &'i IndexFile,
    page: Option<(usize, Vec<u8>)>,
    failed: Option<IndexError>,
}

impl Pages<'_> {
    fn entry(&mut self, at: usize) -> Option<Entry> {
        let (number, slot) = (at / PAGE_ENTRIES, PAGE_HEADER_BYTES + at % PAGE_ENTRIES * ENTRY_BYTES);
        if self.page.as_ref().is_none_or(|(held, _)| *held != number) {
            self.page = Some((number, self.index.page(number).map_err(|error| self.failed = Some(error)).ok()?));
        }
        let (_, page) = self.page.as_ref()?;
        Some(Entry { relative: u32_at(page, slot)?, at: u32_at(page, slot + 4)? })
    }

    fn take_error(&mut self) -> IndexError {
        self.failed.take().unwrap_or(IndexError::Unusable)
    }
}

fn decode_header(salt: Salt, header: &[u8]) -> Option<SegmentSummary> {
    let fields = header.get(index_at::FIRST_SEQUENCE..)?;
    if u32_at(header, index_at::MAGIC)? != INDEX_MAGIC || u32_at(header, index_at::CRC)? != salt.crc(fields) {
        return None;
    }
    let count = u32_at(header, index_at::PARTITIONS)? as usize;
    let partitions = header.get(INDEX_FIXED_BYTES..)?;
    // Before anything of that size is asked for.
    (partitions.len() == count.checked_mul(INDEX_PARTITION_BYTES)?).then_some(())?;
    let mut summary = SegmentSummary {
        start: Numbers { sequence: u64_at(header, index_at::FIRST_SEQUENCE)?, offsets: Vec::with_capacity(count) },
        end: Numbers { sequence: u64_at(header, index_at::NEXT_SEQUENCE)?, offsets: Vec::with_capacity(count) },
        length: u64_at(header, index_at::LENGTH)?,
        oldest: u64_at(header, index_at::OLDEST)?,
        newest: u64_at(header, index_at::NEWEST)?,
        displaced: u64_at(header, index_at::DISPLACED)?,
        witness: u64_at(header, index_at::WITNESS)?,
        partitions: Vec::with_capacity(count),
    };
    for partition in partitions.chunks(INDEX_PARTITION_BYTES) {
        summary.start.offsets.push(u64_at(partition, index_partition_at::START)?);
        summary.end.offsets.push(u64_at(partition, index_partition_at::NEXT)?);
        let bytes = u64_at(partition, index_partition_at::BYTES)?;
        summary.partitions.push(PartitionSummary { bytes, entries: u32_at(partition, index_partition_at::ENTRIES)? });
    }
    Some(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::directory::StoreId;
    use crate::engine::embedded::fuzz_bodies::MemoryFile;

    #[test]
    fn a_witness_tells_ends_that_a_checksum_takes_for_the_same() {
        let witness_in = |store: u8, content: &[u8], length: u64| {
            witness(&MemoryFile::of(content), &UidHasher::of(StoreId([store; 16])), length).unwrap()
        };
        let content: Vec<u8> = (0..10_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let changed = |at: usize| {
            let mut changed = content.clone();
            // The polynomial itself: added anywhere, it leaves every CRC-32 as it was.
            let pattern = (1 | 0xedb8_8320_u64 << 1).to_le_bytes();
            changed[at..].iter_mut().zip(pattern).for_each(|(byte, pattern)| *byte ^= pattern);
            assert_eq!(crc32fast::hash(&changed), crc32fast::hash(&content));
            changed
        };
        let ours = witness_in(1, &content, 10_000);
        for (at, same) in [(0, true), (10_000 - PAGE_BYTES - 8, true), (10_000 - PAGE_BYTES, false), (9_992, false)] {
            assert_eq!(witness_in(1, &changed(at), 10_000) == ours, same, "{at}");
        }
        assert_ne!(witness_in(2, &content, 10_000), ours, "of another store");
        assert_ne!(witness_in(1, &content, 9_999), ours, "of another length");
    }
}
