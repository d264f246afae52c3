//! Publishing, reading and expiring at once, over many small segments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use latent_bridge::embedded::{EngineLimits, EngineOptions};
use latent_bridge::{EmbeddedBroker, EventBus, HeadContent};
use latent_core::{Offset, Partition};

use super::retention::{HOUR, bounds, hot, limits, options};
use crate::support::fixtures::{SetClock, record, scratch};
use crate::support::storage::TestStorage;

const PUBLISHERS: usize = 2;
const RECORDS: u64 = 3_000;

struct Run {
    broker: EmbeddedBroker,
    clock: Arc<SetClock>,
    minutes: AtomicU64,
    publishing: AtomicBool,
    overtaken: AtomicU64,
}

/// Its payload tells what a record must be: torn or mixed ones would not.
fn payload(uid: &str) -> Vec<u8> {
    uid.repeat(20).into_bytes()
}

impl Run {
    /// Every record is a minute younger than the one before.
    fn publish(&self, publisher: usize) {
        for n in 0..RECORDS {
            self.clock.set(self.minutes.fetch_add(1, Ordering::SeqCst) * HOUR / 60);
            let uid = format!("p{publisher}-{n}");
            let ack = self.broker.publish_record("t", &record(&uid, &format!("k{}", n % 7), payload(&uid))).unwrap();
            assert!(!ack.duplicate);
            if n % 16 == 0 {
                // What is young is found, what has expired is not, and nothing else happens.
                let found = self.broker.find_event_by_uid("t", "", &uid).unwrap();
                assert!(found.is_none_or(|found| found.offset == ack.offset));
            }
        }
    }

    fn expire(&self) -> u64 {
        let mut expired = 0;
        while self.publishing.load(Ordering::SeqCst) {
            expired += self.broker.enforce_retention(self.minutes.load(Ordering::SeqCst) * HOUR / 60).unwrap();
        }
        expired
    }

    /// Reads a partition from its beginning to its end, and returns how many records it saw.
    fn read(&self, partition: u32, max: usize) -> u64 {
        let (mut next, mut seen) = (0, 0);
        loop {
            let last_round = !self.publishing.load(Ordering::SeqCst);
            let read = self.broker.submit_fetch("t", Partition(partition), Offset(next), max).wait().unwrap();
            let heads = self.broker.submit_heads("t", Partition(partition), Offset(next), max).wait().unwrap();
            assert!(heads.iter().all(|head| head.content != HeadContent::Damaged), "{heads:?}");
            assert!(heads.windows(2).all(|pair| pair[0].offset < pair[1].offset), "{heads:?}");
            if read.is_empty() && last_round {
                return seen;
            }
            for stored in read {
                assert_eq!(stored.record.payload, payload(stored.record.uid.as_str()));
                assert!(stored.offset.0 >= next, "{} comes after {next}", stored.offset);
                if stored.offset.0 > next {
                    self.overtaken.fetch_add(1, Ordering::SeqCst);
                    assert!(bounds(&self.broker, partition).0 >= stored.offset.0, "offsets from {next} on were left out");
                }
                (next, seen) = (stored.offset.0 + 1, seen + 1);
            }
        }
    }
}

#[test]
fn what_is_read_while_records_come_and_go_is_whole_ascending_and_complete() {
    let (directory, clock) = (scratch(), Arc::new(SetClock::default()));
    // Few open files, so that segments are opened again and again.
    let few = EngineLimits { open_segments: 2, group_records: 4, ..limits() };
    let options = EngineOptions { limits: few, ..options(TestStorage::without_syncs(), &clock) };
    let broker = EmbeddedBroker::provision_with(directory.path(), &hot(&[("t", 2)], 1), options.clone()).unwrap();
    let (minutes, publishing, overtaken) = (AtomicU64::new(1_000), AtomicBool::new(true), AtomicU64::new(0));
    let run = Run { broker, clock, minutes, publishing, overtaken };
    let (expired, seen) = std::thread::scope(|scope| {
        let run = &run;
        let publishers: Vec<_> = (0..PUBLISHERS).map(|publisher| scope.spawn(move || run.publish(publisher))).collect();
        let expiring = scope.spawn(|| run.expire());
        let readers = [(0, 1), (0, 64), (1, 5), (1, 1_000)].map(|(partition, max)| scope.spawn(move || run.read(partition, max)));
        let published: Result<Vec<()>, _> = publishers.into_iter().map(|publisher| publisher.join()).collect();
        run.publishing.store(false, Ordering::SeqCst);
        published.unwrap();
        (expiring.join().unwrap(), readers.map(|reader| reader.join().unwrap()))
    });
    let total = PUBLISHERS as u64 * RECORDS;
    let left: u64 = [0, 1].map(|partition| bounds(&run.broker, partition)).iter().map(|(first, next)| next - first).sum();
    assert_eq!(expired + left, total);
    assert!(expired > total / 2 && seen.iter().all(|seen| *seen > 0), "{expired} {seen:?} {:?}", run.overtaken);
    drop(run.broker);
    let broker = EmbeddedBroker::open_with(directory.path(), options).unwrap();
    let again: u64 = [0, 1].map(|partition| bounds(&broker, partition)).iter().map(|(first, next)| next - first).sum();
    assert_eq!(again, left);
}
