//! What fails while records expire: calls of the file system, single files, the power.

use std::sync::Arc;

use latent_bridge::{BusError, EmbeddedBroker, EventBus};
use latent_core::UnixMillis;

use super::retention::{Aging, HOT_HOURS, HOUR, START, bounds, files, hot, offsets, options};
use crate::support::crash::JournalledStorage;
use crate::support::fixtures::{Published, Seeded, SetClock, copy_directory, count, fates, publish, record, scratch};
use crate::support::storage::{Failing, Fault, Op, TestStorage};

/// When what was stored at `START` has just expired.
const THEN: u64 = START + HOT_HOURS * HOUR + 1;

/// A closed directory with six records that are about to expire and as many that are not.
fn filled() -> (tempfile::TempDir, Arc<SetClock>, Vec<Published>, Vec<Published>) {
    let aging = Aging::new(&[("t", 1)]);
    let (old, young) = (aging.publish_at(START, "old", 6), aging.publish_at(START + HOUR, "young", 6));
    let Aging { directory, clock, broker } = aging;
    drop(broker);
    (directory, clock, old, young)
}

#[test]
fn whatever_call_fails_what_is_not_old_stays_and_what_is_old_is_there_or_gone() {
    let (directory, clock, old, young) = filled();
    let mut met = [0_u64; 2];
    for (kind, failing) in [Failing::Only, Failing::From].into_iter().enumerate() {
        for call in 0.. {
            assert!(call < 1_000);
            let copy = copy_directory(directory.path());
            let storage = TestStorage::without_syncs();
            let broker = EmbeddedBroker::open_with(copy.path(), options(Arc::clone(&storage) as _, &clock)).unwrap();
            storage.fail(failing(call));
            let report = broker.maintain(UnixMillis(THEN)).unwrap();
            let failed = storage.failed();
            storage.fail(Failing::Never);
            let context = format!("kind {kind}, call {call}: {report:?}");
            if report.expired_records == 0 {
                assert_eq!((report.skipped_topics.len(), bounds(&broker, 0)), (1, (0, 12)), "{context}");
                assert_eq!(count(&fates(&broker, &old)), (6, 0, 0), "{context}");
            } else {
                assert_eq!((report.expired_records, bounds(&broker, 0)), (6, (6, 12)), "{context}");
            }
            assert_eq!(count(&fates(&broker, &young)), (6, 0, 0), "{context}");
            drop(broker);
            let broker = EmbeddedBroker::open_with(copy.path(), options(TestStorage::without_syncs(), &clock)).unwrap();
            let first = bounds(&broker, 0).0;
            assert!(first == 6 || first == 0 && report.expired_records == 0, "{context}: {first}");
            assert_eq!(offsets(&broker, 0), (first..12).collect::<Vec<_>>(), "{context}");
            assert_eq!(publish(&broker, "t", "new", 1)[0].ack.offset, 12, "{context}");
            assert_eq!(broker.maintain(UnixMillis(THEN)).unwrap().expired_records, 6 - first, "{context}");
            let topic = copy.path().join("topics/t");
            assert!(files(&topic, ".seg")[0].starts_with("00000000000000000006"), "{context}");
            if failed == 0 {
                break;
            }
            met[kind] += 1;
        }
    }
    assert!(met.iter().all(|met| *met > 5), "{met:?}");
}

#[test]
fn an_emptying_that_fails_half_way_gives_no_offset_again() {
    let aging = Aging::new(&[("t", 1)]);
    let old = aging.publish_at(START, "old", 6);
    let Aging { directory, clock, broker } = aging;
    drop(broker);
    for call in 0.. {
        assert!(call < 1_000);
        let copy = copy_directory(directory.path());
        let storage = TestStorage::without_syncs();
        let broker = EmbeddedBroker::open_with(copy.path(), options(Arc::clone(&storage) as _, &clock)).unwrap();
        storage.fail(Failing::Only(call));
        let report = broker.maintain(UnixMillis(THEN)).unwrap();
        let failed = storage.failed();
        storage.fail(Failing::Never);
        let intact = count(&fates(&broker, &old)).0;
        assert!(report.expired_records == 6 || (report.expired_records, intact) == (0, 6), "call {call}: {report:?}");
        // At once, and after another opening.
        assert_eq!(publish(&broker, "t", "new", 1)[0].ack.offset, 6, "call {call}: {report:?}");
        drop(broker);
        let broker = EmbeddedBroker::open_with(copy.path(), options(TestStorage::without_syncs(), &clock)).unwrap();
        assert_eq!(publish(&broker, "t", "newer", 1)[0].ack.offset, 7, "call {call}: {report:?}");
        assert_eq!(*offsets(&broker, 6), [6, 7], "call {call}");
        if failed == 0 {
            break;
        }
    }
}

/// Every call of this kind on files whose name ends so.
fn always(op: Op, ending: &'static str) -> Fault {
    Fault { which: Failing::From(0), ..Fault::once(op, ending, 0) }
}

#[test]
fn a_file_that_cannot_be_removed_is_counted_and_goes_at_the_next_opening() {
    for (ending, kept) in [(".seg", 2), (".idx", 2), (".uids", 2)] {
        let storage = TestStorage::without_syncs();
        let aging = Aging::over(Arc::clone(&storage) as _, &[("t", 1)]);
        aging.publish_at(START, "old", 6);
        aging.publish_at(START + HOUR, "young", 4);
        let topic = aging.directory.path().join("topics/t");
        // The last full segment waits for its index; those before it have theirs.
        storage.inject(&[always(Op::Remove, ending)]);
        let report = aging.maintain(THEN);
        assert_eq!((report.expired_records, report.unremoved_files), (6, kept), "{ending}");
        assert_eq!((aging.bounds(), offsets(&aging.broker, 0)), ((6, 10), vec![6, 7, 8, 9]), "{ending}");
        assert_eq!(aging.maintain(THEN).unremoved_files, 0, "{ending}: said once");
        storage.inject(&[]);
        let is_old = |name: &String| name.starts_with("0000000000000000000") && name[19..20] < *"6";
        assert_eq!(files(&topic, ending).iter().filter(|name| is_old(name)).count() as u64, kept, "{ending}");
        let aging = aging.reopened();
        assert_eq!(files(&topic, "").iter().filter(|name| is_old(name)).count(), 0, "{:?}", files(&topic, ""));
        assert_eq!((aging.bounds(), offsets(&aging.broker, 0)), ((6, 10), vec![6, 7, 8, 9]), "{ending}");
    }
}

#[test]
fn a_disk_that_takes_no_index_does_not_keep_what_has_expired() {
    let storage = TestStorage::without_syncs();
    let aging = Aging::over(Arc::clone(&storage) as _, &[("t", 1)]);
    storage.inject(&[always(Op::Create, ".idx.tmp")]);
    aging.publish_at(START, "old", 6);
    let refused = aging.broker.publish_record("t", &record("too-many", "k", "x"));
    assert!(matches!(refused, Err(BusError::NotSent { .. })) && storage.failed() > 0, "{refused:?}");
    // The segment being written cannot be ended yet, the one before it can go, and then nothing is in the way.
    let reports = [aging.maintain(THEN), aging.maintain(THEN)];
    assert_eq!(reports.clone().map(|report| report.expired_records), [3, 3]);
    assert!(reports.iter().all(|report| report.skipped_topics.is_empty()), "{reports:?}");
    assert_eq!((aging.bounds(), aging.publish_at(START + 20 * HOUR, "new", 2)[1].ack.offset), ((6, 6), 7));
}

#[test]
fn a_power_cut_while_records_expire_loses_nothing_else_and_brings_nothing_back() {
    let storage = JournalledStorage::default();
    let aging = Aging::over(Arc::new(storage.clone()), &[("t", 2)]);
    let provisioned = storage.changes();
    let mut steps = Vec::new();
    let mut published = Vec::new();
    for round in 0..4 {
        let stored_at = START + 6 * round * HOUR;
        published.extend(aging.publish_at(stored_at, &format!("r{round}"), 5).into_iter().map(|one| (storage.changes(), one)));
        aging.maintain(stored_at + HOUR);
        steps.push((storage.changes(), [0, 1].map(|partition| bounds(&aging.broker, partition).0)));
    }
    aging.maintain(START + 40 * HOUR);
    steps.push((storage.changes(), [0, 1].map(|partition| bounds(&aging.broker, partition).0)));
    let Aging { directory, clock, broker } = aging;
    drop(broker);
    assert!(steps[1].1 != steps[2].1 && steps[4].1.iter().sum::<u64>() == 20, "{steps:?}");
    let changes = storage.changes();
    for seed in 0..4 {
        for cut in provisioned..=changes {
            let context = format!("cut after change {cut}, seed {seed}");
            let after = scratch();
            ["topics/t", "state"].iter().for_each(|folder| std::fs::create_dir_all(after.path().join(folder)).unwrap());
            storage.crash(cut, directory.path(), after.path(), &mut Seeded(seed * 100_000 + cut as u64));
            for opening in 0..2 {
                let broker = EmbeddedBroker::open_with(after.path(), options(TestStorage::without_syncs(), &clock))
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                let promised: Vec<_> = published.iter().filter(|(at, _)| *at <= cut).map(|(_, published)| published.clone()).collect();
                let first = [0, 1].map(|partition| bounds(&broker, partition).0);
                let certain = steps.iter().rev().find(|(at, _)| *at <= cut).map_or([0, 0], |(_, first)| *first);
                assert!(first[0] >= certain[0] && first[1] >= certain[1], "{context}, {opening}: {first:?} {certain:?}");
                let possible = steps.iter().find(|(at, _)| *at >= cut).map_or(first, |(_, first)| *first);
                assert!(first[0] <= possible[0] && first[1] <= possible[1], "{context}, {opening}: {first:?} {possible:?}");
                let live: Vec<_> = promised.into_iter().filter(|one| one.ack.offset >= first[one.ack.partition as usize]).collect();
                assert_eq!(count(&fates(&broker, &live)), (live.len(), 0, 0), "{context}, {opening}");
                // No offset that was acknowledged is given again.
                for new in publish(&broker, "t", &format!("new-{opening}"), 3) {
                    let given = published
                        .iter()
                        .filter(|(at, _)| *at <= cut)
                        .any(|(_, old)| (old.ack.partition, old.ack.offset) == (new.ack.partition, new.ack.offset));
                    assert!(!given, "{context}, {opening}: {new:?}");
                }
            }
        }
    }
}

#[test]
fn hours_that_are_longer_than_time_expire_nothing() {
    let (directory, clock, ..) = filled();
    let broker =
        EmbeddedBroker::open_or_apply_with(directory.path(), &hot(&[("t", 1)], 87_600), options(TestStorage::without_syncs(), &clock))
            .unwrap();
    assert_eq!([0, START, 87_600 * HOUR].map(|now| broker.enforce_retention(now)), [Ok(0), Ok(0), Ok(0)]);
}
