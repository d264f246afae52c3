//! What expires from a topic with `cold_format: segments` is in a segment first, whatever fails and whenever the process ends (B-041).

use std::path::Path;
use std::sync::Arc;

use latent_bridge::cold::segment::SegmentSizes;
use latent_bridge::cold::verify::{Known, Verification, VerifyReport};
use latent_bridge::cold::{ArchiveOptions, ColdStore, ControlKeys};
use latent_bridge::embedded::{EngineOptions, Storage};
use latent_bridge::manifest::ColdFormat;
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus};
use latent_core::{Partition, UnixMillis};

use crate::support::cold::{HOUR, KEY, archive, manifest};
use crate::support::doubles::{Fault, MemoryStore};
use crate::support::fixtures::{Published, SetClock, copy_directory, publish, scratch, small_limits};
use crate::support::storage::TestStorage;

/// When what was stored at 0 has expired.
pub(super) const THEN: u64 = HOUR + 1;
/// Records that have expired then, and younger ones.
pub(super) const OLD: usize = 40;
pub(super) const YOUNG: usize = 10;

pub(super) fn segmented(topics: &[(&str, u32)], uri: &str) -> BridgeManifest {
    let mut manifest = manifest(topics, uri);
    manifest.topics.iter_mut().for_each(|topic| topic.retention.cold_format = Some(ColdFormat::Segments));
    manifest
}

/// Segments of nine records.
pub(super) fn nine(archive: ArchiveOptions) -> ArchiveOptions {
    ArchiveOptions { segment_sizes: SegmentSizes { items: 9, ..SegmentSizes::default() }, ..archive }
}

pub(super) fn options(storage: Arc<dyn Storage>, clock: &Arc<SetClock>, archive: ArchiveOptions) -> EngineOptions {
    EngineOptions { storage, clock: Arc::clone(clock) as _, limits: small_limits(), archive: nine(archive), ..EngineOptions::default() }
}

/// A log with records that have expired at [`THEN`] and younger ones.
pub(super) fn fill(directory: &Path, storage: Arc<dyn Storage>, archive: ArchiveOptions, uri: &str) -> (EmbeddedBroker, Vec<Published>) {
    let clock = Arc::new(SetClock::default());
    let broker = EmbeddedBroker::provision_with(directory, &segmented(&[("t", 3)], uri), options(storage, &clock, archive)).unwrap();
    let old = publish(&broker, "t", "old", OLD);
    clock.set(HOUR / 2);
    broker.maintain(UnixMillis(0)).unwrap();
    publish(&broker, "t", "young", YOUNG);
    (broker, old)
}

/// As [`fill`], closed.
pub(super) fn aged() -> tempfile::TempDir {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    drop(fill(directory.path(), TestStorage::without_syncs(), archive(&store), "x"));
    directory
}

pub(super) fn open_with(directory: &Path, storage: &Arc<TestStorage>, archive: ArchiveOptions) -> Result<EmbeddedBroker, BusError> {
    let clock = Arc::new(SetClock::default());
    clock.set(HOUR / 2);
    EmbeddedBroker::open_with(directory, options(Arc::clone(storage) as _, &clock, archive))
}

pub(super) fn open<S: ColdStore + 'static>(
    directory: &Path,
    storage: &Arc<TestStorage>,
    store: &Arc<S>,
) -> Result<EmbeddedBroker, BusError> {
    open_with(directory, storage, archive(store))
}

/// Nothing is wrong with the archive, beside the log and with its heads.
pub(super) fn verified(broker: &EmbeddedBroker, store: &dyn ColdStore, context: &str) -> VerifyReport {
    let heads = (0..3).filter_map(|partition| broker.archive_head("t", Partition(partition)).unwrap());
    let heads: Vec<_> = heads.map(|attested| attested.head).collect();
    // Nothing leaves this engine before it is archived, so there is nothing to look out for.
    assert!(heads.iter().all(|head| head.lookout.is_none() && head.holes.total() == 0), "{context}");
    let keys = ControlKeys::new(&[KEY]).unwrap();
    let log = Some(broker as &dyn EventBus);
    let verification =
        Verification { store, topic: None, partition: None, keys: Some(&keys), heads: &heads, log, dense: true, known: Known::default() };
    let report = verification.run(&mut |_| {}).unwrap();
    assert_eq!(report.findings.kept(), [], "{context}");
    assert_eq!(report.unattested_ends, 0, "{context}");
    report
}

pub(super) fn hot(broker: &EmbeddedBroker) -> u64 {
    broker.statistics()[0].partitions.iter().map(|partition| partition.records).sum()
}

/// Every old record is in the archive or in the log; maintenance is run until it is only in the archive.
pub(super) fn finished(broker: &EmbeddedBroker, store: &dyn ColdStore, context: &str) {
    for pass in 0..20 {
        broker.maintain(UnixMillis(THEN + HOUR / 4 + pass * 10_000)).unwrap();
        if hot(broker) == YOUNG as u64 {
            let report = verified(broker, store, context);
            assert!(report.records >= OLD as u64, "{context}: {report:?}");
            return;
        }
    }
    panic!("{context}: {} records are still hot", hot(broker));
}

#[test]
fn what_has_expired_is_in_segments_and_then_leaves_and_a_second_pass_does_nothing() {
    let directory = aged();
    let (storage, store) = (TestStorage::without_syncs(), Arc::new(MemoryStore::new()));
    let broker = open(directory.path(), &storage, &store).unwrap();
    let report = broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((report.expired_records, report.intents_completed, report.intents_pending), (40, 0, 0), "{report:?}");
    let objects = store.objects();
    assert!(objects.keys().all(|path| path.ends_with(".seg") || path.starts_with("latent-probe/")), "{:?}", objects.keys());
    verified(&broker, &*store, "first pass");
    assert_eq!(broker.maintain(UnixMillis(THEN)).unwrap().archived_records, 0);
    drop(broker);
    let broker = open(directory.path(), &storage, &store).unwrap();
    assert_eq!(broker.maintain(UnixMillis(THEN)).unwrap().archived_records, 0);
    assert_eq!(store.objects(), objects);
    // What comes later goes behind it.
    publish(&broker, "t", "later", 30);
    assert_eq!(broker.maintain(UnixMillis(3 * HOUR)).unwrap().expired_records, 40);
    assert_eq!(verified(&broker, &*store, "second pass").records, 80);
}

#[test]
fn while_the_store_is_away_nothing_leaves_and_then_everything_goes_once() {
    let directory = aged();
    let (storage, store) = (TestStorage::without_syncs(), Arc::new(MemoryStore::new()));
    let broker = open(directory.path(), &storage, &store).unwrap();
    store.set_down(true);
    let report = broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((report.expired_records, report.unarchived_topics.len(), report.unreachable_topics.len()), (0, 1, 1), "{report:?}");
    let [problem] = &*report.archive_problems else { panic!("told once: {report:?}") };
    assert!(problem.starts_with("t/p0 on its way to ") && problem.contains("failed: planned"), "{problem}");
    assert_eq!(hot(&broker), 50);
    store.set_down(false);
    finished(&broker, &*store, "the store is back");
}

#[test]
fn a_store_that_fails_at_any_call_in_any_way_gets_nothing_twice() {
    let directory = aged();
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
            finished(&broker, &*store, &format!("{fault:?} at {at}"));
        }
    }
}
