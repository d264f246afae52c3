//! What is restored is what was archived: uid, key, media type, attributes, bytes and order; after any number of ends on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use latent_bridge::EventBus;
use latent_bridge::cold::restore::{Progress, Restoration, RestoreError, RestoreReport};
use latent_bridge::cold::verify::{Known, Verification};
use latent_bridge::cold::{ColdError, ColdStore, Listed, PutEnd};

use super::*;

const WORDS: &str = "archive to bus";

/// An archive of 120 events.
fn archive() -> (tempfile::TempDir, EmbeddedBroker, MemoryStore) {
    let (directory, broker) = log(120);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    let exporter = exporter(&storage, directory.path(), ten());
    for partition in 0..2 {
        export(&exporter, &store, &broker, partition, all()).unwrap();
    }
    (directory, broker, store)
}

fn empty(topics: &[(&str, u32)]) -> (tempfile::TempDir, EmbeddedBroker) {
    let directory = scratch();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(topics), quick(tiny())).unwrap();
    (directory, broker)
}

fn restore_from(store: &MemoryStore, bus: &dyn EventBus, into: Option<&str>, progress: Progress) -> Result<RestoreReport, RestoreError> {
    let keys = Keys::one();
    let archive = Verification {
        store,
        topic: None,
        partition: None,
        keys: Some(&keys),
        heads: &[],
        log: None,
        dense: true,
        known: Known::default(),
    };
    Restoration { archive, bus, key_by_key: false, into }.run(progress, &mut |_| Ok(()), &mut |_| {})
}

fn restore(store: &MemoryStore, bus: &dyn EventBus) -> Result<RestoreReport, RestoreError> {
    restore_from(store, bus, None, Progress::of(WORDS))
}

fn contents(broker: &dyn EventBus, topic: &str, partition: u32) -> Vec<(String, String, String, Bytes)> {
    let fetched = broker.submit_fetch(topic, Partition(partition), Offset(0), 10_000).wait().unwrap();
    let one = |stored: latent_core::StoredRecord| {
        let record = stored.record;
        (record.uid.as_str().to_owned(), record.key, format!("{:?} {:?}", record.media_type, record.attributes), record.payload)
    };
    fetched.into_iter().map(one).collect()
}

fn assert_same(one: &dyn EventBus, other: &dyn EventBus, topic: &str) {
    for partition in 0..2 {
        assert_eq!(contents(other, topic, partition), contents(one, "t", partition));
    }
}

#[test]
fn a_restored_topic_has_the_same_events_in_the_same_order() {
    let (_archived, broker, store) = archive();
    let (_directory, other) = empty(&[("t", 2)]);
    let report = restore(&store, &other).unwrap();
    assert_same(&broker, &other, "t");
    let sum = |number: fn(&latent_bridge::cold::restore::RestoredPartition) -> u64| report.partitions.iter().map(number).sum::<u64>();
    assert_eq!(
        (sum(|one| one.records), sum(|one| one.compared), sum(|one| one.already_there), sum(|one| one.out_of_order)),
        (120, 120, 0, 0)
    );
    assert_eq!(report.partitions[0].offsets, BTreeMap::from([(0, (0, report.partitions[0].records - 1))]));
    assert_eq!(report.partitions[0].into, "t");
    let again = restore(&store, &other).unwrap();
    assert!(again.partitions.iter().all(|one| one.already_there == one.records), "{:?}", again.partitions);
    assert_same(&broker, &other, "t");
}

#[test]
fn it_can_go_into_a_topic_of_another_name_and_with_another_number_of_partitions() {
    let (_archived, broker, store) = archive();
    let (_directory, other) = empty(&[("u", 2), ("v", 5)]);
    restore_from(&store, &other, Some("u"), Progress::of(WORDS)).unwrap();
    assert_same(&broker, &other, "u");
    let report = restore_from(&store, &other, Some("v"), Progress::of(WORDS)).unwrap();
    for one in &report.partitions {
        let count: u64 = one.offsets.values().map(|(first, last)| last - first + 1).sum();
        assert!(one.into == "v" && one.offsets.len() > 1 && count >= one.records, "each partition has its offsets: {one:?}");
    }
    let uids = |bus: &dyn EventBus, topic, partitions: u32| -> BTreeSet<_> {
        (0..partitions).flat_map(|partition| contents(bus, topic, partition)).map(|(uid, ..)| uid).collect()
    };
    assert_eq!(uids(&other, "v", 5), uids(&broker, "t", 2));
    assert!(restore(&store, &other).is_err(), "there is no topic t");
}

#[test]
fn a_restoration_that_ends_after_any_batch_goes_on_where_it_was() {
    let (_archived, broker, store) = archive();
    let (_directory, other) = empty(&[("t", 2)]);
    let keys = Keys::one();
    let archive = Verification {
        store: &store,
        topic: None,
        partition: None,
        keys: Some(&keys),
        heads: &[],
        log: None,
        dense: true,
        known: Known::default(),
    };
    let mut kept = Progress::of(WORDS).to_json();
    for _ in 0..2 {
        let progress = Progress::from_json(&kept, WORDS).unwrap();
        let keep = &mut |progress: &Progress| {
            kept = progress.to_json();
            Err("the process ends here".to_owned())
        };
        assert!(Restoration { archive, bus: &other, key_by_key: false, into: None }.run(progress, keep, &mut |_| {}).is_err());
    }
    let report = restore_from(&store, &other, None, Progress::from_json(&kept, WORDS).unwrap()).unwrap();
    assert_eq!(report.partitions.iter().map(|one| one.already_there).sum::<u64>(), 0, "nothing was published again");
    assert_same(&broker, &other, "t");
    assert!(Progress::from_json(&kept, "something else").is_err() && Progress::from_json("{", WORDS).is_err());
    // What does not say where the events went may be of any log.
    let unnumbered = kept.replace("\"version\":2,", "");
    assert!(Progress::from_json(&unnumbered, WORDS).unwrap_err().starts_with("it is of another restoration"), "{unnumbered}");
}

#[test]
fn an_event_that_is_there_with_other_content_is_never_replaced() {
    let (_archived, broker, store) = archive();
    let (_directory, other) = empty(&[("t", 2)]);
    let (uid, key, ..) = contents(&broker, "t", 0)[5].clone();
    other.publish_record("t", &record(&uid, &key, "another event")).unwrap();
    let refused = restore(&store, &other).unwrap_err();
    assert!(matches!(&refused, RestoreError::Publish { topic, partition: 0, offset: 5, .. } if topic == "t"), "{refused}");
    assert_eq!(contents(&other, "t", 0)[0].3, "another event");
}

#[test]
fn events_that_were_there_before_are_counted_and_not_doubled() {
    let (_archived, broker, store) = archive();
    let (_directory, other) = empty(&[("t", 2)]);
    let late: Vec<_> = broker.submit_fetch("t", Partition(0), Offset(30), 10).wait().unwrap();
    for stored in &late {
        let record = stored.record.clone();
        let new = latent_core::NewRecord::new(Some(record.uid), &record.key, record.media_type, record.attributes, record.payload).unwrap();
        other.publish_record("t", &new).unwrap();
    }
    let report = restore(&store, &other).unwrap();
    let first = &report.partitions[0];
    assert_eq!((first.already_there, first.compared), (late.len() as u64, first.records));
    assert!(first.out_of_order >= 1, "{first:?}");
    assert_eq!(contents(&other, "t", 0).len() as u64, first.records);
}

#[test]
fn of_an_archive_that_is_not_sound_nothing_is_published() {
    let (_archived, _broker, store) = archive();
    let path = store.objects().into_keys().next_back().unwrap();
    changed(&store, &path, |bytes| bytes[60] ^= 1);
    let (_directory, other) = empty(&[("t", 2)]);
    let refused = restore(&store, &other).unwrap_err();
    assert!(matches!(&refused, RestoreError::Unsound { report } if report.findings.total() == 1), "{refused}");
    assert!(contents(&other, "t", 0).is_empty() && contents(&other, "t", 1).is_empty());
}

#[test]
fn an_object_that_changes_after_it_was_verified_is_not_published() {
    let (_archived, _broker, store) = archive();
    let path = store.objects().into_keys().next_back().unwrap();
    let (_directory, other) = empty(&[("t", 2)]);
    let keys = Keys::one();
    let archive = Verification {
        store: &store,
        topic: None,
        partition: None,
        keys: Some(&keys),
        heads: &[],
        log: None,
        dense: true,
        known: Known::default(),
    };
    let mut flipped = false;
    let tell = &mut |step: latent_bridge::cold::restore::Step<'_>| {
        if matches!(step, latent_bridge::cold::restore::Step::Publishing(_)) && !std::mem::replace(&mut flipped, true) {
            changed(&store, &path, |bytes| bytes[60] ^= 1);
        }
    };
    let refused =
        Restoration { archive, bus: &other, key_by_key: false, into: None }.run(Progress::of(WORDS), &mut |_| Ok(()), tell).unwrap_err();
    assert!(matches!(&refused, RestoreError::Changed { object, .. } if *object == path), "{refused}");
}

/// Does something to a store when it is read from for the n-th time.
struct Meanwhile<'m> {
    store: MemoryStore,
    gets: AtomicUsize,
    at: usize,
    then: &'m (dyn Fn(&MemoryStore) + Sync),
}

impl ColdStore for Meanwhile<'_> {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        self.store.put_new(path, bytes)
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        if self.gets.fetch_add(1, Ordering::SeqCst) == self.at {
            (self.then)(&self.store);
        }
        self.store.get(path, bytes_max)
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        self.store.list_after(prefix, after, count_max)
    }
}

/// An archive that is unmounted, loses a partition or gets a forged event while it is restored: that is said, and nothing forged is published.
#[test]
fn an_archive_that_changes_under_a_restoration_is_never_a_whole_one() {
    let lose = |store: &MemoryStore, prefix: &str| {
        store.objects().into_keys().filter(|path| path.starts_with(prefix)).for_each(|path| drop(store.lose(&path)));
    };
    let forged = "t/p1/00000000000000050000.json";
    let content = concat!(
        r#"{"uid":"forged","partition":1,"offset":50000,"key":"k","media_type":"application/json","#,
        r#""attributes":[],"value":1,"stored_at":9}"#
    );
    let changes: [&(dyn Fn(&MemoryStore) + Sync); 3] =
        [&|store| lose(store, ""), &|store| lose(store, "t/p1/"), &|store| store.plant(forged, Bytes::from_static(content.as_bytes()))];
    for (number, then) in changes.into_iter().enumerate() {
        let mut ended = BTreeSet::new();
        for at in 0.. {
            let (_archived, _broker, store) = archive();
            let (_directory, other) = empty(&[("t", 2)]);
            let store = Meanwhile { store, gets: AtomicUsize::new(0), at, then };
            let keys = Keys::one();
            let archive = Verification {
                store: &store,
                topic: None,
                partition: None,
                keys: Some(&keys),
                heads: &[],
                log: None,
                dense: true,
                known: Known::default(),
            };
            let restoration = Restoration { archive, bus: &other, key_by_key: false, into: None };
            let result = restoration.run(Progress::of(WORDS), &mut |_| Ok(()), &mut |_| {});
            if store.gets.load(Ordering::SeqCst) <= at {
                assert!(result.is_ok(), "nothing happened");
                break;
            }
            ended.insert(result.is_ok());
            if let Ok(report) = result {
                let compared = report.partitions.iter().map(|one| one.compared).sum::<u64>();
                assert_eq!(compared, 120, "change {number} at {at}: {report:?}");
            }
            let restored = (0..2).flat_map(|partition| contents(&other, "t", partition)).collect::<Vec<_>>();
            assert!(restored.iter().all(|(uid, ..)| uid != "forged"), "change {number} at {at}");
        }
        // What is not in a segment is not read at all behind a proven chain.
        assert_eq!(ended.contains(&false), number < 2, "change {number}");
    }
}
