//! Many threads at once: nothing doubled, nothing lost, nothing out of order.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use latent_bridge::PublishAck;
use latent_core::{Offset, Partition};
use serde_json::json;

use super::Engine;
use super::stored::{assert_in_order, page, stored};
use crate::support::fixtures::{manifest, record};

pub(crate) fn thirty_two_threads_with_one_uid_store_one_record<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 4)]));
    let (bus, start) = (engine.bus(), Barrier::new(32));
    let acks: Vec<_> = std::thread::scope(|scope| {
        let publish = || {
            start.wait();
            bus.publish_idempotent("t", "key", &json!({ "same": true }), "one").unwrap()
        };
        let threads: Vec<_> = (0..32).map(|_| scope.spawn(publish)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(acks.iter().filter(|ack| !ack.duplicate).count(), 1);
    // But for that mark, which says who was first, all of them say the same.
    let first = PublishAck { duplicate: false, ..acks[0].clone() };
    let marks_aside: Vec<_> = acks.into_iter().map(|ack| PublishAck { duplicate: false, ..ack }).collect();
    assert_eq!(marks_aside, vec![first.clone(); 32]);
    let stored: Vec<_> =
        stored(&engine, "t").iter().map(|stored| (stored.partition.0, stored.offset.0, stored.record.uid.to_string())).collect();
    assert_eq!(stored, [(first.partition, first.offset, "one".to_owned())]);
}

pub(crate) fn four_writers_and_four_readers_see_whole_ascending_records<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 4)]));
    let (bus, done) = (engine.bus(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (engine, done) = (&engine, &done);
        let readers: Vec<_> = (0..4).map(|partition| scope.spawn(move || read_until(engine, Partition(partition), done))).collect();
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
    assert_eq!(stored(&engine, "t").len(), 800);
}

/// Tails one partition and checks what it sees; returns how many records that was.
fn read_until<E: Engine>(engine: &E, partition: Partition, done: &AtomicBool) -> usize {
    let (mut next, _) = engine.bus().bounds("t", partition).unwrap();
    let mut seen = 0;
    loop {
        // Read before the records: when it was set, everything written is readable by now.
        let last_round = done.load(Ordering::SeqCst);
        let records = page(engine.bus(), "t", partition, next, 50);
        assert_in_order::<E>(next, records.iter().map(|stored| stored.offset));
        assert!(records.iter().all(|stored| stored.record.payload == stored.record.uid.as_str()), "whole");
        seen += records.len();
        match records.last() {
            Some(last) => next = Offset(last.offset.0 + 1),
            None if last_round => return seen,
            None => std::thread::yield_now(),
        }
    }
}

pub(crate) fn every_seventh_shared_uid_is_stored_once<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 8)]));
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
    assert_eq!((unique, stored(&engine, "t").len()), (680, unique + 1));
}

pub(crate) fn order_of_a_key_survives_interleaved_publishers<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 4)]));
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
