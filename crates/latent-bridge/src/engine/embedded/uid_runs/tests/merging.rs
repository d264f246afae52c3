//! Merging: what comes out, what stays when it is stopped, and how much memory filters take.

use super::super::filter::{blocks_for, bytes_of};
use super::super::page::PAGE_BYTES;
use super::super::write::CHUNK_PAGES;
use super::*;

fn quarters(each: u64) -> [SequenceRange; 4] {
    [0, 1, 2, 3].map(|at| range(at * each, (at + 1) * each))
}

fn undisturbed() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// All entries of a run in its order.
fn entries_in(run: &Run) -> Vec<UidEntry> {
    let mut buffer = [0; PAGE_BYTES];
    let mut all = Vec::new();
    for number in 1..run.header().entries_end() {
        all.extend(run.entry_page(number, &mut buffer).unwrap().entries());
    }
    all
}

#[test]
fn a_merge_is_the_union_of_what_is_live() {
    for first_live in [0, 1, 2_999, 3_000, 7_777, 12_000] {
        let (directory, store) = store();
        let runs = set_of(&store, &quarters(3_000));
        let merged = store.merge(&runs.merge_due().unwrap(), first_live, &mut undisturbed).unwrap().unwrap();
        let mut expected = entries(range(first_live, 12_000));
        expected.sort();
        assert_eq!(entries_in(&merged), expected, "{first_live}");
        assert_eq!((merged.entries(), merged.level(), merged.range()), (expected.len() as u64, 1, range(0, 12_000)));
        assert_eq!(merged.witness(), 12_000, "that of the newest");
        let Successor { runs, dropped } = runs.with(merged);
        dropped.iter().for_each(|run| store.remove(run));
        assert_eq!((ranges_of(&runs), names(directory.path()).len()), (vec![(0, 12_000)], 1));
        for runs in [runs, store.open().unwrap()] {
            assert_finds_all(&runs, range(first_live, 12_000));
        }
    }
}

#[test]
fn one_hash_in_all_inputs_is_merged_with_all_its_entries() {
    let (_directory, store) = store();
    let same =
        |range: SequenceRange| (range.first..range.next).map(|sequence| UidEntry { hash: UidHash(9 << 60), sequence, at: 7 }).collect();
    let add = |set: UidRuns, range| set.with(store.write(RunToWrite { level: 3, entries: same(range), ..written(range) }).unwrap()).runs;
    let runs = quarters(500).into_iter().fold(UidRuns::default(), add);
    let merged = store.merge(&runs.merge_due().unwrap(), 0, &mut undisturbed).unwrap().unwrap();
    assert_eq!(merged.level(), 4);
    assert_eq!(all_candidates(&runs.with(merged).runs, UidHash(9 << 60), 0), Ok(same(range(0, 2_000))));
}

#[test]
fn a_merge_that_is_stopped_at_any_pause_leaves_nothing_and_its_inputs_as_they_were() {
    let (directory, store) = store();
    let runs = set_of(&store, &quarters(20_000));
    let before = names(directory.path());
    let plan = runs.merge_due().unwrap();
    let stopped_at = |last: u64| {
        let mut pauses = 0;
        let mut stop = || {
            pauses += 1;
            if pauses == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        store.merge(&plan, 0, &mut stop).unwrap()
    };
    let mut pauses = 0;
    let merged = loop {
        if let Some(merged) = stopped_at(pauses + 1) {
            break merged;
        }
        assert_eq!(names(directory.path()), before);
        pauses += 1;
    };
    let chunks = merged.path().metadata().unwrap().len() / PAGE_BYTES as u64 / CHUNK_PAGES;
    assert!(pauses > chunks, "{pauses} pauses for {chunks} chunks written and as many read");
    assert_finds_all(&runs, range(0, 80_000));
}

#[test]
fn a_merged_filter_takes_the_place_of_its_inputs_and_is_made_only_up_to_a_quarter_of_the_budget() {
    let merged_bytes = bytes_of(blocks_for(4_096, u64::MAX));
    for (filter_bytes, has_filter) in [(4 * merged_bytes - 1, false), (4 * merged_bytes, true), (MANY_BYTES, true), (0, false)] {
        let directory = tempfile::tempdir().unwrap();
        let store = store_over(Arc::new(OsStorage), directory.path(), filter_bytes);
        let mut runs = set_of(&store, &quarters(1_024));
        let merged = store.merge(&runs.merge_due().unwrap(), 0, &mut undisturbed).unwrap().unwrap();
        let expected = if has_filter { merged_bytes } else { 0 };
        assert_eq!(merged.resident_filter_bytes(), expected, "{filter_bytes}");
        runs = runs.with(merged).runs;
        assert_eq!(store.budget.taken_bytes(), expected);
        assert_finds_all(&runs, range(0, 4_096));
        drop(runs);
        assert_eq!(store.open().unwrap().iter().map(|run| run.resident_filter_bytes()).sum::<u64>(), expected);
    }
}

#[test]
fn a_merged_filter_fits_a_budget_that_its_inputs_fill() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_over(Arc::new(OsStorage), directory.path(), 400 * 64);
    let input_bytes = bytes_of(blocks_for(1_024, u64::MAX));
    let filling = store.budget.take(400 * 64 - 4 * input_bytes, 0).unwrap();
    let runs = set_of(&store, &quarters(1_024));
    assert_eq!(store.budget.taken_bytes(), 400 * 64);
    let merged = store.merge(&runs.merge_due().unwrap(), 0, &mut undisturbed).unwrap().unwrap();
    assert_eq!(merged.resident_filter_bytes(), 4 * input_bytes);
    drop((runs, filling));
    assert_eq!(store.budget.taken_bytes(), 4 * input_bytes);
}

#[test]
fn a_run_left_after_its_merge_is_removed_at_opening() {
    let (directory, store) = store();
    let runs = set_of(&store, &quarters(100));
    store.merge(&runs.merge_due().unwrap(), 0, &mut undisturbed).unwrap().unwrap();
    assert_eq!(names(directory.path()).len(), 5);
    let runs = store.open().unwrap();
    assert_eq!((ranges_of(&runs), names(directory.path()).len()), (vec![(0, 400)], 1));
    assert_finds_all(&runs, range(0, 400));
}
