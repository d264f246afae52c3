//! Fuzz targets of the log's files. Each reads its input twice: as it is, and with its checksums made right, because else hardly any
//! input would come past them.

#[cfg(test)]
mod corpus;
mod memory;
mod seals;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use latent_core::Partition;

use super::directory::StoreId;
use super::frame::{FOOTER_BYTES, Salt, u64_at};
use super::frame_reader::FrameReader;
use super::numbers::Numbers;
use super::segment_index::{self, IndexFile, PartitionEntries, SegmentSummary};
use super::segment_scan::{ScannedSegment, read_segment};
use super::state_scan::{Scanned, encode_entry, scan_entries};
use super::storage::{Storage, StorageFile};
use super::uid_hash::UidHasher;
use super::uid_runs::header::run_header_at;
use super::uid_runs::{FilterBudget, RunStore, SequenceRange, UidHash, run_name};
use super::watermark::{self, Kept};
use super::window::Window;
pub(super) use memory::MemoryFile;
use memory::MemoryStorage;

#[cfg(test)]
pub(crate) use corpus::corpus;

/// Partitions of the topic that the inputs are of.
const PARTITIONS: u32 = 3;
/// Identity of the store that the inputs are of.
const STORE: StoreId = StoreId([7; 16]);
/// Records asked for at once.
const PAGE_RECORDS: usize = 64;

fn salt() -> Salt {
    STORE.salt("topics/fuzz")
}

fn twice(input: &[u8], seal: fn(Salt, &mut [u8]), body: fn(&[u8])) {
    body(input);
    let mut sealed = input.to_vec();
    seal(salt(), &mut sealed);
    body(&sealed);
}

/// Reading a segment finds no offset and no sequence twice, in ascending order, and what it says can be kept in an index.
pub(crate) fn segment(input: &[u8]) {
    twice(input, seals::segment, |input| {
        let file: Arc<dyn StorageFile> = Arc::new(MemoryFile::of(input));
        let scanned = read_segment(&file, salt(), &UidHasher::of(STORE), Numbers::zero(PARTITIONS));
        assert!(scanned.is_ok(), "memory can be read");
        if let Ok(scanned) = scanned {
            check_segment(&file, &scanned);
        }
    });
}

fn check_segment(file: &Arc<dyn StorageFile>, scanned: &ScannedSegment) {
    let summary = scanned.summary();
    // Of the last record, the footer may be missing.
    assert!(scanned.end.length <= scanned.end.file_bytes + FOOTER_BYTES as u64, "a segment ends behind its file");
    assert!(summary.start.all_reached_by(&summary.end), "numbers fell");
    let mut frames = BTreeSet::new();
    for (partition, number) in (0..PARTITIONS).zip(0_usize..) {
        let (start, end) = (summary.start.offsets.get(number).copied(), summary.end.offsets.get(number).copied());
        let places = scanned.rebuilt.positions.from(number, 0, usize::MAX);
        assert!(places.is_sorted_by(|a, b| a.offset < b.offset), "offsets of a partition ascend, each there once");
        assert!(places.iter().all(|place| start <= Some(place.offset) && Some(place.offset) < end), "an offset out of its segment");
        let reader = FrameReader::new(file, salt(), &places);
        assert!(reader.is_ok(), "memory can be read");
        let Ok(mut reader) = reader else { continue };
        for place in places {
            assert!(frames.insert(place.at), "two records in one frame");
            assert!(matches!(reader.frame(place.at), Ok(Some(_))), "a position that leads to no frame");
            // It may still be no record, which is not for the scan to know.
            assert!(reader.record(Partition(partition), place).is_ok() && reader.head(Partition(partition), place).is_ok());
        }
    }
    let sequences: Vec<_> = scanned.rebuilt.uids.sorted().into_iter().map(|entry| entry.sequence).collect();
    let distinct: BTreeSet<_> = sequences.iter().collect();
    assert_eq!(distinct.len(), sequences.len(), "a sequence is there twice");
    check_index(scanned, &summary);
}

/// The index of what was found says the same.
fn check_index(scanned: &ScannedSegment, summary: &SegmentSummary) {
    let (storage, path) = (MemoryStorage::default(), Path::new("topic/0.idx"));
    let written = segment_index::write(&storage, path, salt(), (summary, &scanned.rebuilt.positions));
    assert_eq!(written, Ok(()), "memory can be written");
    let opened = IndexFile::open(&storage, path, salt(), PARTITIONS);
    let Ok((index, read)) = opened else { return assert!(opened.is_ok(), "an index that was just written") };
    assert_eq!(&read, summary);
    let mut first = 0_u32;
    for (number, partition) in summary.partitions.iter().enumerate() {
        let start = summary.start.offsets.get(number).copied().unwrap_or_default();
        let entries = first..first.saturating_add(partition.entries);
        first = entries.end;
        let places = index.from(PartitionEntries { start, entries }, 0, usize::MAX);
        assert_eq!(places.ok(), Some(scanned.rebuilt.positions.from(number, 0, usize::MAX)));
    }
}

/// An index is refused or answers, with no more than was asked for.
pub(crate) fn segment_index(input: &[u8]) {
    twice(input, seals::segment_index, |input| {
        let path = Path::new("topic/0.idx");
        let storage = MemoryStorage::with(path, input);
        let Ok((index, summary)) = IndexFile::open(&storage, path, salt(), PARTITIONS) else { return };
        let mut first = 0_u32;
        for (partition, start) in summary.partitions.iter().zip(&summary.start.offsets) {
            let entries = first..first.saturating_add(partition.entries);
            first = entries.end;
            for offset in [0, *start, start.saturating_add(1), start.saturating_add(u64::from(partition.entries)), u64::MAX] {
                if let Ok(places) = index.from(PartitionEntries { start: *start, entries: entries.clone() }, offset, PAGE_RECORDS) {
                    assert!(places.len() <= PAGE_RECORDS);
                }
            }
        }
    });
}

/// A run is dropped, or answers from the sequences it covers and the hash that was asked for.
pub(crate) fn uid_run(input: &[u8]) {
    twice(input, seals::uid_run, |input| {
        let number = |at| u64_at(input, at).unwrap_or_default();
        let range = SequenceRange { first: number(run_header_at::FIRST), next: number(run_header_at::NEXT) };
        let storage = MemoryStorage::with(&PathBuf::from("topic").join(run_name(range)), input);
        let runs = run_store(Arc::new(storage)).open();
        let Ok(runs) = runs else { return assert!(runs.is_ok(), "memory can be read") };
        let hashes = [0, 1 << 63, u64::MAX].into_iter().chain((4_096 + 16..input.len()).step_by(20).take(PAGE_RECORDS).map(number));
        for hash in hashes.map(UidHash) {
            let mut taken = 0;
            let mut take = |entry: super::uid_runs::UidEntry| {
                assert_eq!(entry.hash, hash);
                taken += 1;
                if taken < PAGE_RECORDS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            // A damaged page is an error; that it is noticed is all that is asked.
            let _ = runs.candidates(hash, 0, &mut take);
        }
        assert!(runs.merge_due().is_none() && runs.iter().all(|run| run.range() == range));
    });
}

fn run_store(storage: Arc<dyn Storage>) -> RunStore {
    RunStore { storage, directory: PathBuf::from("topic"), salt: salt(), budget: FilterBudget::new(1_048_576) }
}

/// A watermark is ignored, or reads back as the same.
pub(crate) fn watermark(input: &[u8]) {
    twice(input, seals::after_checksum, |input| {
        let path = Path::new("topic/watermark");
        let storage = MemoryStorage::with(path, input);
        let read = || watermark::read(&storage, path, salt(), PARTITIONS);
        let Ok(Kept::Found(found)) = read() else { return };
        assert_eq!(watermark::write(&storage, path, salt(), &found), Ok(()));
        assert!(matches!(read(), Ok(Kept::Found(again)) if again == found), "a watermark reads back as another");
    });
}

/// Entries of a state log that were found are found again when they are written one after the other.
pub(crate) fn state_log(input: &[u8]) {
    twice(input, seals::state_log, |input| {
        let (mut entries, mut again, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let scanned = scan(input, &mut entries);
        assert_eq!(scanned.entries, entries.len() as u64);
        assert!(scanned.length <= input.len() as u64, "the last entry ends behind the file");
        entries.iter().for_each(|entry: &Vec<u8>| encode_entry(salt(), entry, &mut written));
        let expected = Scanned { entries: scanned.entries, damaged: 0, length: written.len() as u64 };
        assert_eq!(scan(&written, &mut again), expected);
        assert_eq!(again, entries);
    });
}

fn scan(content: &[u8], entries: &mut Vec<Vec<u8>>) -> Scanned {
    let file = MemoryFile::of(content);
    let mut take = |entry: &[u8]| entries.push(entry.to_vec());
    let scanned = Window::new(&file).and_then(|mut window| scan_entries(&mut window, content.len() as u64, salt(), &mut take));
    assert!(scanned.is_ok(), "memory can be read");
    scanned.unwrap_or_default()
}
