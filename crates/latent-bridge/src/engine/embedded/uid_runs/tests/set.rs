//! Finding entries, and the decisions of the set.

use super::super::page::PAGE_ENTRIES;
use super::super::store::run_name;
use super::*;

#[test]
fn every_entry_is_found_before_and_after_reopening_and_others_are_not() {
    for filter_bytes in [MANY_BYTES, 0] {
        let directory = tempfile::tempdir().unwrap();
        let store = store_over(Arc::new(OsStorage), directory.path(), filter_bytes);
        let runs = set_of(&store, &[range(0, 1), range(1, 154), range(154, 20_000), range(20_000, 20_003)]);
        for runs in [runs, store.open().unwrap()] {
            assert_finds_all(&runs, range(0, 20_003));
            for hash in random_hashes(u64::MAX).take(20_000).chain([UidHash(0), UidHash(u64::MAX)]) {
                assert_eq!(all_candidates(&runs, hash, 0), Ok(vec![]));
            }
        }
    }
}

#[test]
fn the_least_and_the_greatest_values_are_found() {
    let (_directory, store) = store();
    let entries: Vec<_> = [(0, 0, 0), (0, u64::MAX - 1, u32::MAX), (u64::MAX, 0, 0), (u64::MAX, u64::MAX - 1, u32::MAX)]
        .map(|(hash, sequence, at)| UidEntry { hash: UidHash(hash), sequence, at })
        .into();
    let run = store.write(RunToWrite { range: range(0, u64::MAX), level: u32::MAX, witness: u64::MAX, entries: entries.clone() }).unwrap();
    let runs = UidRuns::default().with(run).runs;
    for entry in entries {
        assert_eq!(finds(&runs, entry), Ok(true), "{entry:?}");
    }
}

#[test]
fn entries_of_one_hash_are_all_found_however_many_pages_they_fill() {
    let full = PAGE_ENTRIES as u64;
    for hash in [0, 1 << 62, u64::MAX] {
        for count in [1, full - 1, full, full + 1, 2 * full, 7 * full + 3] {
            let (_directory, store) = store();
            let same = (0..count).map(|sequence| UidEntry { hash: UidHash(hash), sequence, at: 1 });
            let others = entries(range(count, count + 300));
            let wanted: Vec<_> = same.clone().collect();
            let run = RunToWrite { entries: others.iter().copied().chain(same).collect(), ..written(range(0, count + 300)) };
            let runs = UidRuns::default().with(store.write(run).unwrap()).runs;
            assert_eq!(all_candidates(&runs, UidHash(hash), 0), Ok(wanted), "{count} of {hash}");
            for neighbour in [hash.wrapping_sub(1), hash.wrapping_add(1)] {
                assert_eq!(all_candidates(&runs, UidHash(neighbour), 0), Ok(vec![]), "{count} of {hash}");
            }
            assert!(others.iter().all(|entry| finds(&runs, *entry) == Ok(true)), "{count} of {hash}");
        }
    }
}

#[test]
fn candidates_come_from_the_newest_run_first_without_expired_ones_until_the_caller_has_enough() {
    let (_directory, store) = store();
    let entry = |sequence| UidEntry { hash: UidHash(5), sequence, at: 0 };
    let run = |range: SequenceRange| {
        let entries = (range.first..range.next).map(entry).collect();
        store.write(RunToWrite { entries, ..written(range) }).unwrap()
    };
    let runs = [range(0, 2), range(4, 6), range(2, 4)].into_iter().fold(UidRuns::default(), |runs, range| runs.with(run(range)).runs);
    let sequences = |first_live| all_candidates(&runs, UidHash(5), first_live).unwrap().iter().map(|e| e.sequence).collect::<Vec<_>>();
    for (first_live, expected) in [(0, &[4, 5, 2, 3, 0, 1][..]), (3, &[4, 5, 3]), (4, &[4, 5]), (5, &[5]), (6, &[])] {
        assert_eq!(sequences(first_live), expected, "{first_live}");
    }
    let mut taken = 0;
    let mut take_three = |_| {
        taken += 1;
        if taken == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    runs.candidates(UidHash(5), 0, &mut take_three).unwrap();
    assert_eq!(taken, 3);
}

#[test]
fn what_no_run_covers_is_named() {
    let (_directory, store) = store();
    let runs = set_of(&store, &[range(10, 20), range(20, 30), range(40, 50), range(45, 60)]);
    let cases = [
        ((10, 30), &[][..]),
        ((12, 28), &[]),
        ((0, 10), &[(0, 10)]),
        ((0, 100), &[(0, 10), (30, 40), (60, 100)]),
        ((15, 45), &[(30, 40)]),
        ((35, 38), &[(35, 38)]),
        ((60, 61), &[(60, 61)]),
        ((45, 60), &[]),
        ((30, 30), &[]),
    ];
    for ((first, next), expected) in cases {
        let gaps: Vec<_> = runs.uncovered(range(first, next)).iter().map(|gap| (gap.first, gap.next)).collect();
        assert_eq!(gaps, expected, "{first} to {next}");
    }
    assert_eq!(UidRuns::default().uncovered(range(3, 5)), [range(3, 5)]);
}

#[test]
fn a_new_run_takes_the_place_of_those_it_contains() {
    let (directory, store) = store();
    let runs = set_of(&store, &[range(0, 10), range(10, 20), range(20, 30)]);
    let Successor { runs, dropped } = runs.with(store.write(written(range(5, 30))).unwrap());
    assert_eq!(ranges_of(&runs), [(0, 10), (5, 30)]);
    dropped.iter().for_each(|run| store.remove(run));
    let Successor { runs, dropped } = runs.with(store.write(written(range(5, 30))).unwrap());
    assert!(dropped.is_empty(), "the file of the run with this range is the new run's");
    assert_eq!(ranges_of(&runs), [(0, 10), (5, 30)]);
    assert_eq!(names(directory.path()), [run_name(range(0, 10)), run_name(range(5, 30))]);
    assert_finds_all(&runs, range(0, 30));
}

#[test]
fn runs_that_cover_nothing_live_are_dropped_and_may_be_read_until_nobody_does() {
    let (_directory, store) = store();
    let all = set_of(&store, &[range(0, 10), range(10, 20), range(20, 30)]);
    assert!(all.pruned(9).is_none());
    let Successor { runs, dropped } = all.pruned(10).unwrap();
    assert_eq!((ranges_of(&runs), dropped.len()), (vec![(10, 20), (20, 30)], 1));
    dropped.iter().for_each(|run| store.remove(run));
    assert_finds_all(&all, range(0, 30));
    assert_eq!(ranges_of(&store.open().unwrap()), ranges_of(&runs));
    assert_eq!(ranges_of(&runs.pruned(30).unwrap().runs), []);
}

#[test]
fn runs_of_another_history_are_told_by_their_witness() {
    let (_directory, store) = store();
    set_of(&store, &[range(0, 10), range(10, 20), range(20, 30)]);
    let runs = store.open().unwrap();
    assert_eq!(runs.iter().map(|run| run.witness()).collect::<Vec<_>>(), [10, 20, 30]);
    assert!(runs.without(|run| run.witness() != run.range().next).is_none());
    let Successor { runs, dropped } = runs.without(|run| run.witness() > 10).unwrap();
    assert_eq!((ranges_of(&runs), dropped.len()), (vec![(0, 10)], 2));
}

#[test]
fn the_oldest_four_neighbours_of_the_lowest_level_are_merged_next() {
    let cases = [
        (&[(0, 1, 0), (1, 2, 0), (2, 3, 0)][..], None),
        (&[(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0)], Some((0, 4, 0))),
        (&[(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0), (4, 5, 0)], Some((0, 4, 0))),
        (&[(0, 1, 0), (1, 2, 0), (3, 4, 0), (4, 5, 0)], None),
        (&[(0, 1, 0), (1, 2, 1), (2, 3, 0), (3, 4, 0), (4, 5, 0)], None),
        (&[(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1), (4, 5, 0), (5, 6, 0), (6, 7, 0), (7, 8, 0)], Some((4, 8, 0))),
        (&[(0, 1, 2), (1, 2, 1), (2, 3, 1), (3, 4, 1), (4, 5, 1), (5, 6, 0), (6, 7, 0), (7, 8, 0)], Some((1, 5, 1))),
    ];
    for (runs, expected) in cases {
        let (_directory, store) = store();
        let add = |set: UidRuns, (first, next, level): &(u64, u64, u32)| {
            let run = RunToWrite { level: *level, ..written(range(*first, *next)) };
            set.with(store.write(run).unwrap()).runs
        };
        let set = runs.iter().fold(UidRuns::default(), add);
        let plan = set.merge_due().map(|plan| (plan.range().first, plan.range().next, plan.level()));
        assert_eq!(plan, expected, "{runs:?}");
    }
}

#[test]
fn opening_removes_what_is_ours_and_useless_and_leaves_the_rest_alone() {
    let (directory, store) = store();
    set_of(&store, &[range(0, 10), range(30, 40), range(10, 20), range(15, 25)]);
    store.write(written(range(0, 20))).unwrap();
    let leftover = format!("{}.tmp", run_name(range(0, 20)));
    let foreign = ["00000000000000000000.seg", "watermark", "x.uids", "x.uids.tmp", "notes.tmp"];
    for name in foreign.iter().copied().chain([&*leftover, &run_name(range(50, 60))]) {
        std::fs::write(directory.path().join(name), "other content").unwrap();
    }
    let folder = run_name(range(70, 80));
    std::fs::create_dir(directory.path().join(&folder)).unwrap();
    let runs = store.open().unwrap();
    assert_eq!(ranges_of(&runs), [(0, 20), (15, 25), (30, 40)]);
    let mut expected: Vec<_> = foreign.iter().map(ToString::to_string).chain([folder]).collect();
    expected.extend([range(0, 20), range(15, 25), range(30, 40)].map(run_name));
    expected.sort();
    assert_eq!(names(directory.path()), expected);
}

#[test]
fn a_run_of_another_log_or_under_another_name_is_dropped() {
    let (directory, store) = store();
    let runs = set_of(&store, &[range(0, 10), range(10, 20)]);
    let other = RunStore { salt: Salt::of(&[1; 16], "topics/u"), ..store_over(Arc::new(OsStorage), directory.path(), MANY_BYTES) };
    std::fs::rename(directory.path().join(run_name(range(0, 10))), directory.path().join(run_name(range(0, 15)))).unwrap();
    assert_eq!(ranges_of(&store.open().unwrap()), [(10, 20)]);
    assert_eq!(ranges_of(&other.open().unwrap()), []);
    assert_eq!(names(directory.path()), [""; 0]);
    assert_finds_all(&runs, range(0, 20));
}

#[test]
fn entries_outside_the_range_and_empty_ranges_are_refused_before_anything_is_written() {
    let (directory, store) = store();
    let cases = [(range(5, 5), range(5, 5)), (range(6, 5), range(5, 5)), (range(5, 9), range(4, 9)), (range(5, 9), range(5, 10))];
    for (range, given) in cases {
        let refused = store.write(RunToWrite { entries: entries(given), ..written(range) });
        assert!(matches!(refused, Err(BusError::OutOfRange { .. })), "{range:?} with {given:?}");
    }
    let nothing = store.write(RunToWrite { entries: vec![], ..written(range(5, 9)) }).unwrap();
    assert_eq!((nothing.entries(), names(directory.path()).len()), (0, 1));
    let runs = store.open().unwrap();
    assert_eq!((runs.uncovered(range(5, 9)), all_candidates(&runs, UidHash(0), 0)), (vec![], Ok(vec![])));
}

#[test]
fn filters_are_in_memory_while_the_budget_lasts_newest_first() {
    const BLOCKS_BYTES: u64 = 20 * 64;
    let directory = tempfile::tempdir().unwrap();
    let open = |filter_bytes| {
        let store = store_over(Arc::new(OsStorage), directory.path(), filter_bytes);
        (store.open().unwrap(), store)
    };
    let ranges = [range(0, 1_024), range(1_024, 2_048), range(2_048, 3_072)];
    set_of(&open(MANY_BYTES).1, &ranges);
    for (filter_bytes, resident) in [
        (0, [false; 3]),
        (BLOCKS_BYTES - 1, [false; 3]),
        (BLOCKS_BYTES, [false, false, true]),
        (2 * BLOCKS_BYTES, [false, true, true]),
        (3 * BLOCKS_BYTES - 1, [false, true, true]),
        (3 * BLOCKS_BYTES, [true; 3]),
    ] {
        let (runs, store) = open(filter_bytes);
        let bytes = resident.map(|resident| if resident { BLOCKS_BYTES } else { 0 });
        assert_eq!(runs.iter().map(|run| run.resident_filter_bytes()).collect::<Vec<_>>(), bytes, "{filter_bytes}");
        assert_eq!(store.budget.taken_bytes(), bytes.iter().sum::<u64>());
        assert_finds_all(&runs, range(0, 3_072));
        drop(runs);
        assert_eq!(store.budget.taken_bytes(), 0);
    }
}

#[test]
fn a_filter_that_found_no_room_comes_into_memory_when_there_is_some() {
    const BLOCKS_BYTES: u64 = 20 * 64;
    let directory = tempfile::tempdir().unwrap();
    let store = store_over(Arc::new(OsStorage), directory.path(), 4 * BLOCKS_BYTES);
    let ranges: Vec<_> = (0..5).map(|at| range(at * 1_024, (at + 1) * 1_024)).collect();
    let mut runs = set_of(&store, &ranges);
    let resident = |runs: &UidRuns| runs.iter().filter(|run| run.resident_filter_bytes() > 0).count();
    assert_eq!((resident(&runs), store.budget.taken_bytes()), (4, 4 * BLOCKS_BYTES));
    runs = runs.pruned(1_024).unwrap().runs;
    runs.load_filters(&store.budget);
    assert_eq!((resident(&runs), store.budget.taken_bytes()), (4, 4 * BLOCKS_BYTES));
    assert_finds_all(&runs, range(1_024, 5 * 1_024));
}
