//! Damaged files: noticed or harmless, but never an entry that is not found without an error.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::super::page::PAGE_BYTES;
use super::super::store::run_name;
use super::*;

const COVERED: SequenceRange = SequenceRange { first: 0, next: 700 };

fn one_run() -> (TempDir, RunStore, PathBuf) {
    let (directory, store) = store();
    store.write(written(COVERED)).unwrap();
    let path = directory.path().join(run_name(COVERED));
    (directory, store, path)
}

/// How many entries are found, or are answered with an error that makes the run say that it is damaged.
#[track_caller]
fn assert_nothing_is_missing(runs: &UidRuns) -> (usize, usize) {
    let mut counts = (0, 0);
    if runs.iter().next().is_none() {
        return counts;
    }
    for entry in entries(COVERED) {
        match finds(runs, entry) {
            Ok(found) => {
                assert!(found, "{entry:?}");
                counts.0 += 1;
            }
            Err(BusError::Io { operation: "read", kind: std::io::ErrorKind::InvalidData, .. }) => {
                assert!(!runs.uncovered(COVERED).is_empty(), "a damaged run covers nothing");
                counts.1 += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    counts
}

#[test]
fn a_file_cut_anywhere_is_dropped_at_opening() {
    let (directory, store, path) = one_run();
    let content = std::fs::read(&path).unwrap();
    for length in (0..content.len()).step_by(512).chain([content.len() - 1, content.len() + 1]) {
        let mut cut = content.clone();
        cut.resize(length, 0);
        std::fs::write(&path, cut).unwrap();
        assert_eq!(store.open().unwrap().uncovered(COVERED), [COVERED], "{length}");
        assert_eq!(names(directory.path()), [""; 0], "{length}");
    }
}

#[test]
fn a_file_whose_end_was_never_written_is_noticed() {
    let (_directory, store, path) = one_run();
    let content = std::fs::read(&path).unwrap();
    let mut noticed = 0;
    for from in (0..content.len()).step_by(512) {
        let mut torn = content.clone();
        torn[from..].fill(0);
        let harmless = torn == content;
        std::fs::write(&path, torn).unwrap();
        let runs = store.open().unwrap();
        assert_nothing_is_missing(&runs);
        let is_noticed = runs.iter().all(|run| run.is_damaged());
        assert_eq!(is_noticed, !harmless, "{from}");
        noticed += usize::from(is_noticed);
    }
    assert!(noticed > content.len() / 512 - 8);
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let (_directory, store, path) = one_run();
    let content = std::fs::read(&path).unwrap();
    let mut dropped = 0;
    for UidHash(random) in random_hashes(42).take(2_000) {
        let bit = usize::try_from(random).unwrap() % (content.len() * 8);
        let (at, flipped) = (bit as u64 / 8, content[bit / 8] ^ (1 << (bit % 8)));
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[flipped], at).unwrap();
        let runs = store.open().unwrap();
        if runs.iter().next().is_none() {
            assert!(bit / 8 < PAGE_BYTES, "only its header makes a run useless: {bit}");
            std::fs::write(&path, &content).unwrap();
            dropped += 1;
            continue;
        }
        let (_, failed) = assert_nothing_is_missing(&runs);
        assert!(runs.iter().all(|run| run.is_damaged()), "bit {bit} was not noticed");
        assert!(failed < 250, "bit {bit} damaged more than a page");
        file.write_all_at(&content[bit / 8..=bit / 8], at).unwrap();
    }
    assert!(dropped > 0);
}

#[test]
fn a_damaged_filter_is_done_without_and_the_run_says_so() {
    let (_directory, store, path) = one_run();
    let mut content = std::fs::read(&path).unwrap();
    let last = content.len() - PAGE_BYTES + 100;
    content[last] ^= 1;
    std::fs::write(&path, &content).unwrap();
    let runs = store.open().unwrap();
    assert_finds_all(&runs, COVERED);
    assert!(runs.iter().all(|run| run.is_damaged() && run.resident_filter_bytes() == 0));
    assert_eq!((runs.uncovered(COVERED), store.budget.taken_bytes()), (vec![COVERED], 0));
}

/// Exchanges two pages of a file.
fn exchange_pages(file: &File, pages: [u64; 2]) {
    let at = pages.map(|page| page * PAGE_BYTES as u64);
    let mut contents = [[0; PAGE_BYTES]; 2];
    file.read_exact_at(&mut contents[0], at[0]).unwrap();
    file.read_exact_at(&mut contents[1], at[1]).unwrap();
    file.write_all_at(&contents[1], at[0]).unwrap();
    file.write_all_at(&contents[0], at[1]).unwrap();
}

#[test]
fn a_page_in_another_place_or_of_another_run_is_noticed() {
    let (directory, store, path) = one_run();
    let other = range(2_000, 4_000);
    store.write(written(other)).unwrap();
    let runs = store.open().unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    exchange_pages(&file, [1, 2]);
    let (_, failed) = assert_nothing_is_missing(&runs);
    assert!(failed > 0);
    exchange_pages(&file, [1, 2]);
    let mut page = [0; PAGE_BYTES];
    File::open(directory.path().join(run_name(other))).unwrap().read_exact_at(&mut page, PAGE_BYTES as u64).unwrap();
    file.write_all_at(&page, PAGE_BYTES as u64).unwrap();
    let runs = store.open().unwrap();
    assert!(entries(COVERED).iter().any(|entry| finds(&runs, *entry).is_err()));
    assert!(entries(COVERED).iter().all(|entry| finds(&runs, *entry) != Ok(false)));
}

#[test]
fn a_damaged_run_is_not_merged_and_goes_when_its_live_part_was_made_again() {
    let (_directory, store) = store();
    let ranges: Vec<_> = (0..4).map(|at| range(at * 500, (at + 1) * 500)).collect();
    let runs = set_of(&store, &ranges);
    let plan = runs.merge_due().unwrap();
    let path = store.directory.join(run_name(ranges[0]));
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[0; PAGE_BYTES], PAGE_BYTES as u64).unwrap();
    assert!(matches!(store.merge(&plan, 0, &mut || ControlFlow::Continue(())), Err(BusError::Io { .. })));
    assert!(runs.merge_due().is_none());
    assert_eq!(runs.uncovered(range(0, 2_000)), [ranges[0]]);
    assert!(runs.pruned(200).is_none(), "nothing else covers it yet");
    for entry in entries(ranges[0]) {
        assert_eq!(all_candidates(&runs, entry.hash, 500), Ok(vec![]), "an expired run is not even read");
    }
    let runs = runs.with(store.write(written(range(200, 500))).unwrap()).runs;
    assert_eq!(runs.uncovered(range(200, 2_000)), []);
    let Successor { runs, dropped } = runs.pruned(200).unwrap();
    assert_eq!((ranges_of(&runs)[0], dropped.len()), ((200, 500), 1));
    assert_finds_all(&runs, range(200, 2_000));
}
