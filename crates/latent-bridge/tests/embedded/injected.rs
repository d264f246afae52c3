//! Each call to the storage fails, by its kind and the file it is about, while the log publishes, seals, merges and expires. Whatever
//! the order in which two threads get there: nothing acknowledged is lost, nothing refused is stored, no offset is given twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::embedded::{Durability, EngineOptions};
use latent_bridge::{BusError, EmbeddedBroker, EventBus, PublishResult};
use latent_core::{NewRecord, UncertainCause};

use crate::support::fixtures::{SetClock, manifest, options, quick, record, scratch};
use crate::support::history::{Kept, TOPICS, check_complete, eventually, keep, records, tiny};
use crate::support::storage::{Fault, Op, TestStorage};

const HOUR: u64 = 3_600_000;

/// Hour in which the later records are stored; the earlier ones have expired then.
const LATER: u64 = 2_000;

struct Published {
    topic: &'static str,
    record: NewRecord,
    result: PublishResult,
    /// Stored so late that retention must leave it alone.
    young: bool,
}

/// What a process did until it ended.
#[derive(Default)]
struct Work {
    published: Vec<Published>,
    notes: Vec<(&'static str, Result<(), BusError>)>,
}

impl Work {
    fn publish(&mut self, broker: &dyn EventBus, topic: &'static str, prefix: &str, young: bool) {
        let single = record(&format!("{prefix}-one"), "key-one", vec![7; 300]);
        let result = broker.publish_record(topic, &single);
        self.published.push(Published { topic, record: single, result, young });
        let batch = records(prefix, 14);
        let results = broker.publish_batch(topic, &batch);
        assert_eq!(results.len(), batch.len());
        let published = batch.into_iter().zip(results).map(|(record, result)| Published { topic, record, result, young });
        self.published.extend(published);
    }

    fn note(&mut self, broker: &EmbeddedBroker, note: &'static str) {
        let appended = broker.state_log("notes").and_then(|log| log.append(Bytes::from_static(note.as_bytes()), Durability::Synced).wait());
        self.notes.push((note, appended));
    }
}

/// Publishes, notes, replaces, expires, and publishes again.
fn work(broker: &EmbeddedBroker, clock: &SetClock) -> Work {
    let mut work = Work::default();
    work.publish(broker, "a", "early", false);
    work.publish(broker, "b", "early", false);
    work.note(broker, "first");
    clock.set(LATER * HOUR);
    work.publish(broker, "a", "late", true);
    // A full segment that is not sealed yet may keep it from expiring, which is said.
    broker.maintain(latent_core::UnixMillis((LATER + 10) * HOUR)).unwrap();
    work.note(broker, "second");
    work.publish(broker, "a", "last", true);
    work.publish(broker, "b", "last", true);
    work
}

fn check(directory: &Path, work: &Work, context: &str) {
    let broker = EmbeddedBroker::open_with(directory, quick(tiny())).unwrap_or_else(|error| panic!("{context}: {error}"));
    let mut kept = Vec::new();
    let mut given: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    for Published { topic, record, result, young } in &work.published {
        let uid = record.uid.as_ref().unwrap().as_str();
        let found = || broker.find_event_by_uid(topic, "", uid).unwrap();
        match result {
            Ok(ack) => {
                assert!(!ack.duplicate, "{context}: {uid}");
                let next = given.entry((topic, ack.partition)).or_default();
                assert!(ack.offset >= *next, "{context}: {ack:?} was given before");
                *next = ack.offset + 1;
                if *young || found().is_some() {
                    kept.push(Kept { record: record.clone(), ack: ack.clone() });
                }
            }
            Err(BusError::Uncertain { uid: named, cause: UncertainCause::Storage }) => assert_eq!(named.as_str(), uid),
            Err(BusError::NotSent { .. } | BusError::Poisoned { .. }) => assert_eq!(found(), None, "{context}: {uid} was refused"),
            // Whether its uid is known could not be read.
            Err(BusError::Io { .. }) => assert_eq!(found(), None, "{context}: {uid} was not looked up"),
            Err(other) => panic!("{context}: {other}"),
        }
    }
    check_complete(&broker, &kept, context);
    for (topic, _) in TOPICS {
        for new in keep(&broker, topic, records("again", 9)) {
            let next = given.get(&(topic, new.ack.partition)).copied().unwrap_or_default();
            assert!(new.ack.offset >= next, "{context}: {:?} was given before", new.ack);
        }
    }
    let mut entries = Vec::new();
    broker.state_log("notes").unwrap().replay(|entry| entries.push(String::from_utf8_lossy(entry).into_owned())).unwrap();
    for (note, result) in &work.notes {
        match result {
            Ok(()) => assert!(entries.iter().any(|entry| entry == note), "{context}: {note} of {entries:?}"),
            Err(BusError::NotSent { .. } | BusError::Poisoned { .. }) => assert!(!entries.iter().any(|entry| entry == note), "{context}"),
            Err(BusError::Io { .. }) => {}
            Err(other) => panic!("{context}: {other}"),
        }
    }
}

/// Runs the work with each of these faults in turn, until the number is higher than there are such calls.
fn each_call(op: Op, endings: &[&'static str], fault: impl Fn(&'static str, u64) -> Vec<Fault>) -> u64 {
    let mut hits = 0;
    for ending in endings {
        for number in 0.. {
            let (directory, storage) = (scratch(), TestStorage::without_syncs());
            let clock = Arc::new(SetClock::default());
            let with_clock = EngineOptions { clock: Arc::clone(&clock) as _, ..options(&storage, tiny()) };
            let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), with_clock).unwrap();
            storage.inject(&fault(ending, number));
            let done = work(&broker, &clock);
            drop(broker);
            let missed = storage.failed() == 0;
            check(directory.path(), &done, &format!("{op:?} number {number} of {ending}"));
            if missed {
                break;
            }
            hits += 1;
            // The longest scenario makes some forty such calls; those that come later are like the first ones.
            if number > 60 {
                break;
            }
        }
    }
    hits
}

/// Names a call may be about.
const ENDINGS: [&str; 6] = [".seg", ".idx", ".idx.tmp", ".uids", ".uids.tmp", ".log"];

#[test]
fn a_failing_write_costs_its_own_records_only() {
    assert!(
        each_call(Op::Write, &[".seg", ".idx.tmp", ".uids.tmp", "watermark.tmp", "next.zeros.tmp", ".log"], |ending, number| {
            vec![Fault { written: 60, ..Fault::once(Op::Write, ending, number) }]
        }) > 40
    );
}

#[test]
fn a_failing_sync_costs_its_own_records_only() {
    assert!(
        each_call(Op::Sync, &[".seg", ".idx.tmp", ".uids.tmp", "watermark.tmp", "next.zeros.tmp", ".log"], |ending, number| {
            vec![Fault::once(Op::Sync, ending, number)]
        }) > 30
    );
}

#[test]
fn a_name_that_cannot_be_given_taken_or_made_durable_costs_nothing_acknowledged() {
    let names = [".seg", ".idx", ".uids", "watermark", "next.zeros", ".log"];
    assert!(each_call(Op::Rename, &names, |ending, number| vec![Fault::once(Op::Rename, ending, number)]) > 10);
    assert!(each_call(Op::Remove, &ENDINGS, |ending, number| vec![Fault::once(Op::Remove, ending, number)]) > 5);
    assert!(each_call(Op::SyncDirectory, &["a", "b", "state"], |ending, number| vec![Fault::once(Op::SyncDirectory, ending, number)]) > 10);
    let created = [".seg", ".idx.tmp", ".uids.tmp", "watermark.tmp", "next.zeros.tmp", ".log"];
    assert!(each_call(Op::Create, &created, |ending, number| vec![Fault::once(Op::Create, ending, number)]) > 20);
    // How many files one round opens depends on when the indexes of full segments are written.
    let mut opens_met = 0;
    for _ in 0..8 {
        if opens_met <= 3 {
            opens_met += each_call(Op::Open, &ENDINGS, |ending, number| vec![Fault::once(Op::Open, ending, number)]);
        }
    }
    assert!(opens_met > 3, "{opens_met}");
}

#[test]
fn a_failing_read_or_resize_costs_nothing_acknowledged() {
    assert!(each_call(Op::Read, &[".seg", ".idx", ".uids", ".uids.tmp"], |ending, number| vec![Fault::once(Op::Read, ending, number)]) > 3);
    assert!(each_call(Op::Resize, &[".seg", ".log"], |ending, number| vec![Fault::once(Op::Resize, ending, number)]) > 3);
}

#[test]
fn a_disk_that_fills_up_or_a_write_that_cannot_be_taken_back_loses_and_doubles_nothing() {
    assert!(each_call(Op::Write, &[""], |ending, number| vec![Fault::full_from(Op::Write, ending, number * 5)]) > 5);
    assert!(
        each_call(Op::Write, &[".seg", ".log"], |ending, number| {
            vec![Fault { written: 60, ..Fault::once(Op::Write, ending, number) }, Fault::full_from(Op::Resize, ending, 0)]
        }) > 10
    );
}

#[test]
fn when_the_disk_has_space_again_the_same_process_goes_on() {
    for number in 0..12 {
        let (directory, storage) = (scratch(), TestStorage::without_syncs());
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, tiny())).unwrap();
        let mut kept = keep(&broker, "a", records("before", 10));
        storage.inject(&[Fault::full_from(Op::Write, "", number)]);
        let refused = broker.publish_batch("a", &records("full", 20));
        storage.inject(&[]);
        let full: Vec<_> = records("full", 20).into_iter().zip(refused).filter(|(_, result)| result.is_ok()).collect();
        kept.extend(full.into_iter().map(|(record, result)| Kept { record, ack: result.unwrap() }));
        // Whether it is the index of the segment before that is written first, is not told from outside.
        let after = eventually("the log goes on", || {
            let results = broker.publish_batch("a", &records("after", 20));
            let stuck = |error: &BusError| matches!(error, BusError::NotSent { .. });
            let go_on = results.iter().all(|result| result.as_ref().is_ok());
            assert!(results.iter().filter_map(|result| result.as_ref().err()).all(stuck), "{number}: {results:?}");
            go_on.then(|| results.into_iter().map(Result::unwrap).collect::<Vec<_>>())
        });
        kept.extend(records("after", 20).into_iter().zip(after).map(|(record, mut ack)| {
            ack.duplicate = false;
            Kept { record, ack }
        }));
        check_complete(&broker, &kept, "with space again");
        drop(broker);
        check_complete(&EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap(), &kept, "opened again");
    }
}

#[test]
fn a_prepared_segment_that_cannot_be_opened_is_not_in_the_way_of_the_next_attempt() {
    let (directory, storage) = (scratch(), TestStorage::without_syncs());
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, tiny())).unwrap();
    let prepared = directory.path().join("topics/a/next.zeros");
    let mut kept = Vec::new();
    // One after the other, until the next segment is made ready.
    eventually("a segment is prepared", || {
        kept.extend(keep(&broker, "a", vec![record(&format!("r{}", kept.len()), "k", vec![1; 700])]));
        prepared.exists().then_some(())
    });
    storage.inject(&[Fault::once(Op::Open, ".seg", 0)]);
    let mut refused = 0;
    for n in 0..6 {
        let next = record(&format!("next{n}"), "k", vec![2; 700]);
        match broker.publish_record("a", &next) {
            Ok(ack) => kept.push(Kept { record: next, ack }),
            Err(BusError::NotSent { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((refused, storage.failed()), (1, 1), "only the one that needed it");
    check_complete(&broker, &kept, "after it could not be opened");
}
