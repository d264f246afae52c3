//! What expires from a topic with `cold_format: segments` is in a segment first, whatever fails and whenever the process ends (B-041).

use std::sync::Arc;

use latent_bridge::cold::segment::SegmentSizes;
use latent_bridge::cold::verify::{Verification, VerifyReport};
use latent_bridge::cold::{ArchiveOptions, ControlKeys};
use latent_bridge::embedded::EngineOptions;
use latent_bridge::manifest::ColdFormat;
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus};
use latent_core::{Partition, UnixMillis};

use crate::support::cold::{HOUR, KEY, archive, manifest};
use crate::support::doubles::{Fault, MemoryStore};
use crate::support::fixtures::{Published, SetClock, copy_directory, publish, scratch, small_limits};
use crate::support::storage::{Failing, TestStorage};

/// When what was stored at 0 has expired.
const THEN: u64 = HOUR + 1;

fn segmented(topics: &[(&str, u32)]) -> BridgeManifest {
    let mut manifest = manifest(topics, "x");
    manifest.topics.iter_mut().for_each(|topic| topic.retention.cold_format = Some(ColdFormat::Segments));
    manifest
}

fn options(storage: &Arc<TestStorage>, clock: &Arc<SetClock>, store: &Arc<MemoryStore>) -> EngineOptions {
    let archive = ArchiveOptions { segment_sizes: SegmentSizes { items: 9, ..SegmentSizes::default() }, ..archive(store) };
    EngineOptions {
        storage: Arc::clone(storage) as _,
        clock: Arc::clone(clock) as _,
        limits: small_limits(),
        archive,
        ..EngineOptions::default()
    }
}

/// A closed log with records that have expired at `THEN` and ten that have not.
fn aged() -> (tempfile::TempDir, Vec<Published>) {
    let (directory, clock, store) = (scratch(), Arc::new(SetClock::default()), Arc::new(MemoryStore::new()));
    let options = options(&TestStorage::without_syncs(), &clock, &store);
    let broker = EmbeddedBroker::provision_with(directory.path(), &segmented(&[("t", 3)]), options).unwrap();
    let old = publish(&broker, "t", "old", 40);
    clock.set(HOUR / 2);
    broker.maintain(UnixMillis(0)).unwrap();
    publish(&broker, "t", "young", 10);
    (directory, old)
}

fn open(directory: &std::path::Path, storage: &Arc<TestStorage>, store: &Arc<MemoryStore>) -> Result<EmbeddedBroker, BusError> {
    let clock = Arc::new(SetClock::default());
    clock.set(HOUR / 2);
    EmbeddedBroker::open_with(directory, options(storage, &clock, store))
}

/// Nothing is wrong with the archive, beside the log and with its heads.
fn verified(broker: &EmbeddedBroker, store: &MemoryStore, context: &str) -> VerifyReport {
    let heads = (0..3).filter_map(|partition| broker.archive_head("t", Partition(partition)).unwrap());
    let heads: Vec<_> = heads.map(|attested| attested.head).collect();
    // Nothing leaves this engine before it is archived, so there is nothing to look out for.
    assert!(heads.iter().all(|head| head.lookout.is_none() && head.holes.total() == 0), "{context}");
    let keys = ControlKeys::new(&[KEY]).unwrap();
    let log = Some(broker as &dyn EventBus);
    let verification = Verification { store, topic: None, partition: None, keys: Some(&keys), heads: &heads, log, dense: true };
    let report = verification.run(&mut |_| {}).unwrap();
    assert_eq!(report.findings.kept(), [], "{context}");
    assert_eq!(report.unattested_ends, 0, "{context}");
    report
}

fn hot(broker: &EmbeddedBroker) -> u64 {
    broker.statistics()[0].partitions.iter().map(|partition| partition.records).sum()
}

/// Every old record is in the archive or in the log; maintenance is run until it is only in the archive.
fn finished(broker: &EmbeddedBroker, store: &MemoryStore, context: &str) {
    for pass in 0..20 {
        broker.maintain(UnixMillis(THEN + HOUR / 4 + pass * 10_000)).unwrap();
        if hot(broker) == 10 {
            let report = verified(broker, store, context);
            assert!(report.records >= 40, "{context}: {report:?}");
            return;
        }
    }
    panic!("{context}: {} records are still hot", hot(broker));
}

#[test]
fn what_has_expired_is_in_segments_and_then_leaves_and_a_second_pass_does_nothing() {
    let (directory, _old) = aged();
    let (storage, store) = (TestStorage::without_syncs(), Arc::new(MemoryStore::new()));
    let broker = open(directory.path(), &storage, &store).unwrap();
    let report = broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((report.expired_records, report.intents_completed, report.intents_pending), (40, 0, 0), "{report:?}");
    let objects = store.objects();
    assert!(objects.keys().all(|path| path.ends_with(".seg") || path.starts_with("latent-probe/")), "{:?}", objects.keys());
    verified(&broker, &store, "first pass");
    assert_eq!(broker.maintain(UnixMillis(THEN)).unwrap().archived_records, 0);
    drop(broker);
    let broker = open(directory.path(), &storage, &store).unwrap();
    assert_eq!(broker.maintain(UnixMillis(THEN)).unwrap().archived_records, 0);
    assert_eq!(store.objects(), objects);
    // What comes later goes behind it.
    publish(&broker, "t", "later", 30);
    assert_eq!(broker.maintain(UnixMillis(3 * HOUR)).unwrap().expired_records, 40);
    assert_eq!(verified(&broker, &store, "second pass").records, 80);
}

#[test]
fn while_the_store_is_away_nothing_leaves_and_then_everything_goes_once() {
    let (directory, _old) = aged();
    let (storage, store) = (TestStorage::without_syncs(), Arc::new(MemoryStore::new()));
    let broker = open(directory.path(), &storage, &store).unwrap();
    store.set_down(true);
    let report = broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((report.expired_records, report.unarchived_topics.len(), report.unreachable_topics.len()), (0, 1, 1), "{report:?}");
    assert_eq!(hot(&broker), 50);
    store.set_down(false);
    finished(&broker, &store, "the store is back");
}

#[test]
fn a_process_that_ends_at_any_file_operation_leaves_nothing_behind_and_nothing_twice() {
    let (directory, _old) = aged();
    for at in (0..).step_by(3) {
        let copy = copy_directory(directory.path());
        let (storage, store) = (TestStorage::without_syncs(), Arc::new(MemoryStore::new()));
        let broker = open(copy.path(), &storage, &store).unwrap();
        storage.fail(Failing::From(at));
        let ended = broker.maintain(UnixMillis(THEN));
        let has_failed = ended.as_ref().map_or(true, |report| report.expired_records < 40);
        drop(broker);
        storage.fail(Failing::Never);
        let broker = open(copy.path(), &storage, &store).unwrap();
        finished(&broker, &store, &format!("ended at file operation {at}"));
        if !has_failed {
            assert!(at > 30, "{at}");
            break;
        }
    }
}

#[test]
fn a_store_that_fails_at_any_call_in_any_way_gets_nothing_twice() {
    let (directory, _old) = aged();
    for fault in [Fault::Fail, Fault::DoneThenTimeout, Fault::SayExists, Fault::HalfRead] {
        for at in 0.. {
            let copy = copy_directory(directory.path());
            let (storage, store) = (TestStorage::without_syncs(), Arc::new(MemoryStore::new()));
            let broker = open(copy.path(), &storage, &store).unwrap();
            let calls = store.calls().len();
            store.plan((0..at).map(|_| None).chain([Some(fault)]));
            broker.maintain(UnixMillis(THEN)).unwrap();
            if store.calls().len() - calls <= at {
                assert!(at > 5, "{at}");
                break;
            }
            finished(&broker, &store, &format!("{fault:?} at {at}"));
        }
    }
}

/// A store restored from an older copy, or emptied: the head says what is missing, and nothing goes on behind a gap in silence.
#[test]
fn an_archive_that_was_set_back_is_found_by_its_head() {
    let (directory, _old) = aged();
    let (storage, store) = (TestStorage::without_syncs(), Arc::new(MemoryStore::new()));
    let broker = open(directory.path(), &storage, &store).unwrap();
    finished(&broker, &store, "sound");
    let last = store.objects().into_keys().rfind(|path| path.starts_with("t/p0/")).unwrap();
    store.lose(&last);
    let head = broker.archive_head("t", Partition(0)).unwrap().unwrap().head;
    let keys = ControlKeys::new(&[KEY]).unwrap();
    let verification = Verification {
        store: &*store,
        topic: None,
        partition: None,
        keys: Some(&keys),
        heads: std::slice::from_ref(&head),
        log: None,
        dense: true,
    };
    let report = verification.run(&mut |_| {}).unwrap();
    let [finding] = report.findings.kept() else { panic!("{:?}", report.findings) };
    assert_eq!((finding.kind.word(), finding.partition, finding.last), ("missing", Some(0), Some(head.last.0)));
}
