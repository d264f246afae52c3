//! Many threads at once: nothing doubled, nothing lost, nothing out of order.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};

use latent_bridge::{AppendWatcher, EventBus};
use latent_core::{Offset, Partition};
use serde_json::json;

use super::Make;
use crate::support::fixtures::{manifest, record};

pub(crate) fn thirty_two_threads_with_one_uid_store_one_record(make: Make) {
    let engine = make(&manifest(&[("t", 4)]));
    let (bus, start) = (engine.bus(), Barrier::new(32));
    let acks: Vec<_> = std::thread::scope(|scope| {
        let publish = || {
            start.wait();
            bus.publish_idempotent("t", "key", &json!({ "same": true }), "one").unwrap()
        };
        let threads: Vec<_> = (0..32).map(|_| scope.spawn(publish)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(acks.iter().all(|ack| (ack.partition, ack.offset) == (acks[0].partition, acks[0].offset)));
    assert_eq!(acks.iter().filter(|ack| !ack.duplicate).count(), 1);
    assert_eq!(stored_uids(bus, "t"), ["one"]);
}

pub(crate) fn four_writers_and_four_readers_see_whole_ascending_records(make: Make) {
    let engine = make(&manifest(&[("t", 4)]));
    let (bus, done) = (engine.bus(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|partition| {
                scope.spawn({
                    let done = &done;
                    move || read_until(bus, partition, done)
                })
            })
            .collect();
        let write = |writer: usize| {
            for n in 0..200 {
                let text = format!("w{writer}-{n}");
                bus.publish_record("t", &record(&text, &format!("key-{writer}-{}", n % 7), text.clone())).unwrap();
            }
        };
        let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
        let seen: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert_eq!(seen, 800);
    });
    assert_eq!(stored_uids(bus, "t").len(), 800);
}

/// Tails one partition and checks what it sees; returns how many records that was.
fn read_until(bus: &dyn EventBus, partition: u32, done: &AtomicBool) -> usize {
    let mut next = 0;
    loop {
        // Read before the records: when it was set, everything written is readable by now.
        let last_round = done.load(Ordering::SeqCst);
        let records = bus.submit_fetch("t", Partition(partition), Offset(next), 50).wait().unwrap();
        for stored in &records {
            assert_eq!(stored.offset, Offset(next), "dense and ascending");
            assert_eq!(stored.record.payload, stored.record.uid.as_str(), "whole");
            next += 1;
        }
        if records.is_empty() && last_round {
            return usize::try_from(next).unwrap();
        }
        std::thread::yield_now();
    }
}

pub(crate) fn every_seventh_shared_uid_is_stored_once(make: Make) {
    let engine = make(&manifest(&[("t", 8)]));
    let bus = engine.bus();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            scope.spawn(move || {
                for n in 0..100 {
                    let uid = if n % 7 == 0 { "shared".to_owned() } else { format!("w{writer}-{n}") };
                    bus.publish_record("t", &record(&uid, "key", "same payload")).unwrap();
                }
            });
        }
    });
    let unique = 8 * (0..100).filter(|n| n % 7 != 0).count();
    assert_eq!(stored_uids(bus, "t").len(), unique + 1);
}

pub(crate) fn order_of_a_key_survives_interleaved_publishers(make: Make) {
    let engine = make(&manifest(&[("t", 4)]));
    let bus = engine.bus();
    std::thread::scope(|scope| {
        for key in 0..8 {
            scope.spawn(move || (0..50).for_each(|n| drop(bus.publish("t", &format!("key-{key}"), &json!(n)).unwrap())));
        }
    });
    let events: Vec<_> = (0..4).flat_map(|partition| bus.fetch("t", partition, 0, 1_000).unwrap()).collect();
    for key in 0..8 {
        let of_key = events.iter().filter(|event| event.key == format!("key-{key}"));
        assert!(of_key.map(|event| event.value.as_u64().unwrap()).eq(0..50), "key {key}");
    }
}

pub(crate) fn a_watcher_is_told_after_the_record_is_readable(make: Make) {
    struct Told {
        next: Mutex<Option<u64>>,
        changed: Condvar,
    }
    impl AppendWatcher for Told {
        fn appended(&self, topic: &str, partition: Partition, next: Offset) {
            assert_eq!((topic, partition), ("t", Partition(0)));
            *self.next.lock().unwrap() = Some(next.0);
            self.changed.notify_all();
        }
    }
    let engine = make(&manifest(&[("t", 1)]));
    let bus = engine.bus();
    let told = Arc::new(Told { next: Mutex::new(None), changed: Condvar::new() });
    bus.watch_appends(Arc::clone(&told) as _);
    let ack = bus.publish("t", "k", &json!(1)).unwrap();
    let mut next = told.next.lock().unwrap();
    while *next != Some(ack.offset + 1) {
        next = told.changed.wait(next).unwrap();
    }
    assert_eq!(bus.fetch("t", 0, ack.offset, 10).unwrap().len(), 1);
}

fn stored_uids(bus: &dyn EventBus, topic: &str) -> Vec<String> {
    let partitions = bus.partitions(topic).unwrap();
    let uids: Vec<_> =
        (0..partitions).flat_map(|partition| bus.fetch(topic, partition, 0, 10_000).unwrap()).map(|event| event.uid).collect();
    assert_eq!(uids.iter().collect::<BTreeSet<_>>().len(), uids.len(), "a uid is stored twice");
    uids
}
