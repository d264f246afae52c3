//! The index over real files.

mod damage;
mod faults;
mod merging;
mod model;
mod set;
mod storage;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::super::frame::Salt;
use super::super::storage::{OsStorage, Storage};
use super::*;

/// Evenly distributed hashes, always the same for one seed (splitmix64).
pub(super) fn random_hashes(seed: u64) -> impl Iterator<Item = UidHash> {
    let mix = |mut number: u64| {
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        UidHash(number ^ (number >> 31))
    };
    (1_u64..).map(move |step| mix(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
}

fn range(first: u64, next: u64) -> SequenceRange {
    SequenceRange { first, next }
}

/// An entry for every sequence of a range. A sequence has the same entry in every call.
fn entries(range: SequenceRange) -> Vec<UidEntry> {
    let entry = |sequence: u64| UidEntry { hash: hash_of(sequence), sequence, at: u32::try_from(sequence % 1_000_000).unwrap() * 100 };
    (range.first..range.next).map(entry).collect()
}

fn hash_of(sequence: u64) -> UidHash {
    random_hashes(sequence).next().unwrap()
}

fn written(range: SequenceRange) -> RunToWrite {
    RunToWrite { range, level: 0, witness: range.next, entries: entries(range) }
}

fn store_over(storage: Arc<dyn Storage>, directory: &Path, filter_bytes: u64) -> RunStore {
    let budget = FilterBudget::new(filter_bytes);
    RunStore { storage, directory: directory.to_owned(), salt: Salt::of(&[1; 16], "topics/t"), budget }
}

const MANY_BYTES: u64 = 1 << 30;

fn store() -> (TempDir, RunStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = store_over(Arc::new(OsStorage), directory.path(), MANY_BYTES);
    (directory, store)
}

/// A set of new runs of these ranges, all of level 0.
fn set_of(store: &RunStore, ranges: &[SequenceRange]) -> UidRuns {
    ranges.iter().fold(UidRuns::default(), |runs, range| runs.with(store.write(written(*range)).unwrap()).runs)
}

fn all_candidates(runs: &UidRuns, hash: UidHash, first_live: u64) -> Result<Vec<UidEntry>, BusError> {
    let mut found = Vec::new();
    runs.candidates(hash, first_live, &mut |entry| {
        found.push(entry);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn finds(runs: &UidRuns, entry: UidEntry) -> Result<bool, BusError> {
    Ok(all_candidates(runs, entry.hash, 0)?.contains(&entry))
}

#[track_caller]
fn assert_finds_all(runs: &UidRuns, range: SequenceRange) {
    for entry in entries(range) {
        assert_eq!(finds(runs, entry), Ok(true), "{entry:?}");
    }
}

fn ranges_of(runs: &UidRuns) -> Vec<(u64, u64)> {
    runs.iter().map(|run| (run.range().first, run.range().next)).collect()
}

/// Names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let mut names = OsStorage.list(directory).unwrap();
    names.sort();
    names
}
