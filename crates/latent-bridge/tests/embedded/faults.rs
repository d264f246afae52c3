//! Every call to the storage fails in turn. What was acknowledged is there, what was refused is not, what was uncertain is told.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use latent_bridge::embedded::EngineLimits;
use latent_bridge::{BusError, EmbeddedBroker, EventBus, PublishResult};
use latent_core::{Partition, UncertainCause};

use crate::support::fixtures::{Published, count, fates, manifest, options, publish, quick, record, scratch, small_limits};
use crate::support::storage::{Failing, Fault, Op, TestStorage};

const TOPICS: [(&str, u32); 2] = [("a", 2), ("b", 1)];

/// More than any scenario makes.
const CALLS_MAX: u64 = 10_000;

fn limits() -> EngineLimits {
    EngineLimits { segment_bytes: 1_024, ..small_limits() }
}

/// Publishes one record after the other, so that every group is one record; the third of each topic starts a segment.
fn publish_six(broker: &dyn EventBus) -> Vec<(String, String, PublishResult)> {
    let publish = |n: usize| {
        let (topic, uid) = (TOPICS[n % 2].0, format!("uid-{n}"));
        let result = broker.publish_record(topic, &record(&uid, &format!("key-{n}"), vec![7; 400]));
        (topic.to_owned(), uid, result)
    };
    (0..8).map(publish).collect()
}

fn check_after_reopening(directory: &Path, results: &[(String, String, PublishResult)], context: &str) {
    let broker = EmbeddedBroker::open_with(directory, quick(limits())).unwrap_or_else(|error| panic!("{context}: {error}"));
    for (topic, uid, result) in results {
        let found = broker.find_event_by_uid(topic, "", uid).unwrap();
        match result {
            Ok(ack) => {
                let found = found.unwrap_or_else(|| panic!("{context}: {uid} was acknowledged and is lost"));
                assert_eq!((found.partition, found.offset), (ack.partition, ack.offset), "{context}");
            }
            Err(BusError::Uncertain { uid: named, cause: UncertainCause::Storage }) => assert_eq!(named.as_str(), uid),
            Err(BusError::NotSent { .. } | BusError::Poisoned { .. }) => {
                assert_eq!(found, None, "{context}: {uid} was refused and is there")
            }
            Err(other) => panic!("{context}: {other}"),
        }
    }
    // Again, as a publisher would: now everything is there exactly once.
    let again: Vec<_> = publish_six(&broker).into_iter().map(|(_, _, result)| result.unwrap()).collect();
    assert_eq!(again.len(), results.len());
    for (topic, partitions) in TOPICS {
        let mut uids = BTreeMap::new();
        for partition in 0..partitions {
            let (first, next) = broker.bounds(topic, Partition(partition)).unwrap();
            for event in broker.fetch(topic, partition, first.0, 100).unwrap() {
                *uids.entry(event.uid).or_insert(0) += 1;
            }
            assert_eq!(broker.fetch(topic, partition, first.0, 100).unwrap().len() as u64, next.0 - first.0, "{context}: dense");
        }
        assert!(uids.len() == 4 && uids.values().all(|count| *count == 1), "{context}: {uids:?}");
    }
}

#[test]
fn a_failing_call_while_publishing_loses_and_doubles_nothing() {
    for (sticky, fail) in [(false, Failing::Only as fn(u64) -> Failing), (true, Failing::From)] {
        let mut outcomes = BTreeMap::new();
        let mut hit_all = false;
        for call in 0..CALLS_MAX {
            let directory = scratch();
            let storage = TestStorage::without_syncs();
            let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, limits())).unwrap();
            storage.fail(fail(call));
            let results = publish_six(&broker);
            let missed = storage.failed() == 0;
            drop(broker);
            results.iter().for_each(|(_, _, result)| {
                *outcomes.entry(result.as_ref().map_or_else(BusError::kind, |_| "stored")).or_insert(0) += 1;
            });
            storage.fail(Failing::Never);
            check_after_reopening(directory.path(), &results, &format!("call {call}, sticky {sticky}"));
            if missed {
                hit_all = true;
                break;
            }
        }
        assert!(hit_all);
        assert!(
            ["stored", "not-sent", "uncertain", "poisoned"]
                .iter()
                .all(|kind| outcomes.contains_key(kind) || (sticky && *kind == "not-sent")),
            "{outcomes:?}"
        );
    }
}

#[test]
fn a_failing_call_while_opening_changes_nothing_for_the_next_opening() {
    let directory = scratch();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), quick(limits())).unwrap();
    let mut old = publish(&broker, "a", "old", 10);
    old.extend(publish(&broker, "b", "old", 10));
    drop(broker);
    // A torn tail and no watermark, so that opening has the most to do.
    for (topic, _) in TOPICS {
        crate::support::fixtures::forget_watermark(directory.path(), topic);
        let last = crate::support::fixtures::segments(directory.path(), topic).pop().unwrap();
        let mut content = std::fs::read(&last).unwrap();
        content.truncate(crate::support::fixtures::data_end(&content));
        content.extend_from_slice(b"LTR1 and then nothing");
        std::fs::write(&last, content).unwrap();
    }
    let mut refused = 0;
    for call in 0..CALLS_MAX {
        let copy = crate::support::fixtures::copy_directory(directory.path());
        let storage = TestStorage::without_syncs();
        storage.fail(Failing::Only(call));
        match EmbeddedBroker::open_with(copy.path(), options(&storage, limits())) {
            // A watermark that cannot be written is only a warning.
            Ok(broker) => assert_eq!(count(&fates(&broker, &old)), (20, 0, 0), "call {call}"),
            Err(BusError::Io { .. }) => refused += 1,
            Err(other) => panic!("call {call}: {other}"),
        }
        let missed = storage.failed() == 0;
        let broker = EmbeddedBroker::open_with(copy.path(), quick(limits())).unwrap();
        assert_eq!(count(&fates(&broker, &old)), (20, 0, 0), "call {call}");
        if missed {
            assert!(refused >= 4, "{refused}");
            return;
        }
    }
    panic!("opening never ended");
}

#[test]
fn a_failing_call_while_provisioning_leaves_nothing_in_the_way() {
    for call in 0..CALLS_MAX {
        let directory = scratch();
        let path = directory.path().join("deep/data");
        let storage = TestStorage::without_syncs();
        storage.fail(Failing::Only(call));
        let provisioned = EmbeddedBroker::provision_with(&path, &manifest(&TOPICS), options(&storage, limits()));
        let missed = storage.failed() == 0;
        if let Err(error) = &provisioned {
            assert!(matches!(error, BusError::Io { .. }), "call {call}: {error}");
        }
        drop(provisioned);
        let broker = EmbeddedBroker::open_or_apply_with(&path, &manifest(&TOPICS), quick(limits()))
            .unwrap_or_else(|error| panic!("call {call}: {error}"));
        publish(&broker, "a", "new", 3);
        drop(broker);
        let names = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(names.into_iter().all(|name| !name.ends_with(".tmp")), "call {call}");
        if missed {
            return;
        }
    }
    panic!("provisioning never ended");
}

/// One topic `t`, whose file calls are: zeros ahead, frames, sync.
fn small_broker(storage: &Arc<TestStorage>) -> (tempfile::TempDir, EmbeddedBroker) {
    let directory = scratch();
    let manifest = manifest(&[("t", 1), ("other", 1)]);
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest, options(storage, EngineLimits::default())).unwrap();
    publish(&broker, "t", "old", 2);
    (directory, broker)
}

#[test]
fn a_failed_write_that_is_taken_back_is_a_known_failure_and_the_topic_goes_on() {
    let storage = TestStorage::without_syncs();
    let (_directory, broker) = small_broker(&storage);
    storage.fail(Failing::Only(0));
    let syncs = storage.syncs();
    let refused = broker.publish_record("t", &record("lost", "k", "x")).unwrap_err();
    assert_eq!(storage.syncs() - syncs, 1, "taken back durably: a power cut must not bring it back");
    assert!(matches!(&refused, BusError::NotSent { reason } if reason.contains("nothing was stored")), "{refused}");
    assert_eq!(broker.find_event_by_uid("t", "k", "lost"), Ok(None));
    let ack = broker.publish_record("t", &record("next", "k", "x")).unwrap();
    assert_eq!(ack.offset, 2, "the offset was not used up");
}

#[test]
fn a_failed_sync_poisons_its_topic_alone_and_is_never_retried_into_success() {
    let storage = TestStorage::without_syncs();
    let (directory, broker) = small_broker(&storage);
    // Calls of one publication into space written ahead: frames, then the sync.
    storage.fail(Failing::Only(1));
    let uncertain = broker.publish_record("t", &record("perhaps", "k", "x")).unwrap_err();
    assert!(uncertain.is_uncertain() && !uncertain.is_permanent(), "{uncertain}");
    assert_eq!(storage.failed(), 1);
    for uid in ["perhaps", "another", "old-0"] {
        let refused = broker.publish_record("t", &record(uid, "k", "x")).unwrap_err();
        assert!(matches!(refused, BusError::Poisoned { .. }) && refused.to_string().contains("restart"), "{refused}");
    }
    assert_eq!(broker.find_event_by_uid("t", "k", "perhaps"), Ok(None), "not acknowledged from memory");
    assert_eq!(broker.fetch("t", 0, 0, 10).unwrap().len(), 2, "reading goes on");
    assert_eq!(publish(&broker, "other", "fine", 3).len(), 3);
    let poisoned: Vec<_> = broker.statistics().into_iter().map(|topic| (topic.topic, topic.poisoned)).collect();
    assert_eq!(poisoned, [("other".to_owned(), false), ("t".to_owned(), true)]);
    drop(broker);
    let broker = EmbeddedBroker::open_with(directory.path(), quick(EngineLimits::default())).unwrap();
    let found = broker.find_event_by_uid("t", "k", "perhaps").unwrap();
    let ack = broker.publish_record("t", &record("perhaps", "k", "x")).unwrap();
    assert_eq!((ack.duplicate, ack.offset), (found.is_some(), 2));
}

#[test]
fn a_record_found_after_a_failed_sync_is_written_again_before_it_is_acknowledged() {
    let storage = TestStorage::without_syncs();
    let (directory, broker) = small_broker(&storage);
    storage.fail(Failing::Only(1));
    assert!(broker.publish_record("t", &record("perhaps", "k", "x")).unwrap_err().is_uncertain());
    drop(broker);
    let storage = TestStorage::without_syncs();
    let mut refused = Vec::new();
    for call in 0..20 {
        storage.fail(Failing::Only(call));
        let copy = crate::support::fixtures::copy_directory(directory.path());
        if let Err(BusError::Io { operation, .. }) = EmbeddedBroker::open_with(copy.path(), options(&storage, EngineLimits::default())) {
            refused.push(operation);
        }
    }
    assert_eq!(refused.iter().filter(|operation| **operation == "repair").count(), 2, "write and sync of the tail: {refused:?}");
}

#[test]
fn a_full_disk_at_every_byte_of_a_write_leaves_no_half_record() {
    // The test storage writes half of what it fails to write; records of many sizes put that half at many places.
    for bytes in [0, 1, 40, 200, 1_000, 9_000] {
        let storage = TestStorage::without_syncs();
        let (directory, broker) = small_broker(&storage);
        storage.fail(Failing::Only(0));
        assert!(broker.publish_record("t", &record("lost", "k", vec![1; bytes])).is_err());
        storage.fail(Failing::Never);
        let new: Vec<Published> = publish(&broker, "t", "new", 3);
        drop(broker);
        let broker = EmbeddedBroker::open_with(directory.path(), quick(EngineLimits::default())).unwrap();
        assert_eq!((broker.recovered_torn_records(), count(&fates(&broker, &new))), (0, (3, 0, 0)), "{bytes}");
        assert_eq!(broker.find_event_by_uid("t", "k", "lost"), Ok(None));
    }
}

#[test]
fn zeros_that_find_no_room_do_not_refuse_the_record_they_are_for() {
    let storage = TestStorage::without_syncs();
    let directory = scratch();
    let limits = EngineLimits { preallocation_bytes: 512, ..EngineLimits::default() };
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)]), options(&storage, limits)).unwrap();
    // A segment that is there already does not take the next one's zeros for its own.
    publish(&broker, "t", "first", 1);
    let full = |number| Fault { which: Failing::Only(number), ..Fault::full_from(Op::Write, ".seg", 0) };
    // The zeros ahead of the record; then the zeros and the record itself, for which the next segment's zeros are given up.
    for (uid, faults) in [("a", vec![full(0)]), ("b", vec![full(0), full(1)])] {
        let next = directory.path().join("topics/t/next.zeros");
        std::fs::write(&next, [0; 64]).unwrap();
        storage.inject(&faults);
        broker.publish_record("t", &record(uid, "k", vec![1; 9_000])).unwrap();
        assert_eq!(storage.failed(), faults.len() as u64, "{uid}");
        assert_eq!(next.exists(), uid == "a");
    }
    storage.fail(Failing::Never);
    drop(broker);
    let broker = EmbeddedBroker::open_with(directory.path(), quick(EngineLimits::default())).unwrap();
    assert_eq!(broker.recovered_torn_records(), 0);
    assert!(["a", "b"].iter().all(|uid| broker.find_event_by_uid("t", "k", uid).unwrap().is_some()));
}

#[test]
fn nothing_of_a_batch_overtakes_what_the_log_did_not_take() {
    let storage = TestStorage::without_syncs();
    let directory = scratch();
    let limits = EngineLimits { group_records: 4, ..EngineLimits::default() };
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)]), options(&storage, limits)).unwrap();
    let records: Vec<_> = (0..12).map(|n| record(&format!("u{n}"), "k", "x")).collect();
    publish(&broker, "t", "first", 1);
    // The second group of four.
    storage.inject(&[Fault::once(Op::Write, ".seg", 1)]);
    let results = broker.publish_batch("t", &records);
    let refused: Vec<_> = results.iter().map(|result| matches!(result, Err(BusError::NotSent { .. }))).collect();
    assert_eq!(refused, [[false; 4], [true; 4], [true; 4]].concat(), "{results:?}");
    let again: Vec<_> = broker.publish_batch("t", &records).into_iter().map(Result::unwrap).collect();
    assert!(again.is_sorted_by_key(|ack| ack.offset) && again[..4].iter().all(|ack| ack.duplicate) && !again[4].duplicate);
}
