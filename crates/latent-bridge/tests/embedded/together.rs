//! Everything at once: publishers, readers and retention over segments that are sealed, prepared and merged all the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use latent_bridge::embedded::EngineOptions;
use latent_bridge::{BusError, EmbeddedBroker, EventBus};
use latent_core::{Offset, Partition, UnixMillis};

use crate::support::fixtures::{Seeded, SetClock, manifest, options, quick, record, scratch};
use crate::support::history::{Kept, TOPICS, check_complete, records, tiny};
use crate::support::storage::{Fault, Op, TestStorage};

const HOUR: u64 = 3_600_000;

/// Tells the others to end, however this one ends.
struct Ends<'d>(&'d AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn what_was_acknowledged_is_never_absent_for_a_moment() {
    let directory = scratch();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), quick(tiny())).unwrap();
    let acknowledged: Mutex<Vec<Kept>> = Mutex::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let publishers: Vec<_> = (0..3)
            .map(|thread| {
                let (broker, acknowledged) = (&broker, &acknowledged);
                scope.spawn(move || {
                    for round in 0..40 {
                        // Every second batch is published by all three: one of them stores it.
                        let prefix = if round % 2 == 0 { format!("{thread}-{round}") } else { format!("all-{round}") };
                        let batch = records(&prefix, 6);
                        let acks = broker.publish_batch("a", &batch);
                        let kept = batch.into_iter().zip(acks).map(|(record, ack)| (record, ack.unwrap()));
                        let kept = kept.filter(|(_, ack)| !ack.duplicate).map(|(record, ack)| Kept { record, ack });
                        acknowledged.lock().unwrap().extend(kept);
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (broker, acknowledged, done) = (&broker, &acknowledged, &done);
                scope.spawn(move || {
                    let mut seeded = Seeded(seed);
                    while !done.load(Ordering::SeqCst) {
                        let known = {
                            let known = acknowledged.lock().unwrap();
                            if known.is_empty() {
                                continue;
                            }
                            known[seeded.below(known.len())].clone()
                        };
                        assert_eq!(broker.find_event_by_uid("a", "", &known.ack.uid), Ok(Some(known.ack.clone())));
                        let read = broker.submit_fetch("a", Partition(known.ack.partition), Offset(known.ack.offset), 3).wait().unwrap();
                        assert_eq!((read[0].record.uid.as_str(), read[0].offset.0), (&*known.ack.uid, known.ack.offset));
                    }
                })
            })
            .collect();
        let end = Ends(&done);
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
        drop(end);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    let kept = acknowledged.into_inner().unwrap();
    assert_eq!(kept.len(), 3 * 20 * 6 + 20 * 6, "each record of a shared batch was stored once");
    check_complete(&broker, &kept, "afterwards");
    drop(broker);
    check_complete(&EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap(), &kept, "opened again");
}

#[test]
fn reading_beside_retention_gives_what_is_there_in_order_and_no_error() {
    let directory = scratch();
    let clock = Arc::new(SetClock::default());
    let with_clock = EngineOptions { clock: Arc::clone(&clock) as _, ..quick(tiny()) };
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), with_clock).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut turn = 0;
            while !done.load(Ordering::SeqCst) {
                for partition in (0..3).map(Partition) {
                    let (first, _) = broker.bounds("a", partition).unwrap();
                    let read = broker.submit_fetch("a", partition, first, 50).wait().unwrap();
                    assert!(read.windows(2).all(|pair| pair[0].offset.0 + 1 == pair[1].offset.0), "{read:?}");
                    broker.submit_heads("a", partition, first, 50).wait().unwrap();
                }
                turn += 1;
                assert!(broker.find_event_by_uid("a", "", &format!("{}-{}", turn % 60, turn % 5)).is_ok());
            }
        });
        let end = Ends(&done);
        let mut expired = 0;
        for round in 0..60 {
            clock.set(round * 100 * HOUR);
            assert!(broker.publish_batch("a", &records(&round.to_string(), 10)).iter().all(Result::is_ok));
            let report = broker.maintain(UnixMillis(round * 100 * HOUR)).unwrap();
            assert!(report.skipped_topics.is_empty() && report.unremoved_files == 0, "{report:?}");
            expired += report.expired_records;
        }
        drop(end);
        reader.join().unwrap();
        assert!(expired > 400, "{expired}");
    });
    let files = std::fs::read_dir(directory.path().join("topics/a")).unwrap().count();
    drop(broker);
    assert!(files < 80, "what expired is gone with its index: {files}");
}

#[test]
fn of_two_publishers_only_the_one_whose_write_failed_is_told_so() {
    let mut failed = 0;
    for number in 0..12 {
        let (directory, storage) = (scratch(), TestStorage::without_syncs());
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, tiny())).unwrap();
        storage.inject(&[Fault { written: 33, ..Fault::once(Op::Write, ".seg", number) }]);
        let publish = |thread: u32| {
            let publish_one = |n| {
                let record = record(&format!("{thread}-{n}"), &format!("key-{thread}"), vec![1; 50]);
                let result = broker.publish_record("a", &record);
                (record, result)
            };
            (0..8).map(publish_one).collect::<Vec<_>>()
        };
        let results = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|thread| scope.spawn(move || publish(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        drop(broker);
        let broker = EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap();
        let mut kept = Vec::new();
        for (record, result) in results {
            match result {
                Ok(ack) => kept.push(Kept { record, ack }),
                Err(BusError::NotSent { .. }) => {
                    failed += 1;
                    assert_eq!(broker.find_event_by_uid("a", "", record.uid.as_ref().unwrap().as_str()), Ok(None), "write {number}");
                }
                Err(error) => panic!("write {number}: {error}"),
            }
        }
        assert!(kept.len() >= 14, "a group of two at most was lost");
        check_complete(&broker, &kept, &format!("write {number} failed"));
    }
    assert!(failed > 4, "{failed}");
}
