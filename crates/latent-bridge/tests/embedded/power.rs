//! The power is cut after any change to the disk, with any part of what was not synced lost.

use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::embedded::{Durability, EngineLimits, EngineOptions};
use latent_bridge::{EmbeddedBroker, EventBus};

use crate::support::crash::JournalledStorage;
use crate::support::fixtures::{Published, Seeded, count, fates, manifest, publish, quick, record, scratch};

fn limits() -> EngineLimits {
    EngineLimits { segment_bytes: 4_096, preallocation_bytes: 2_048, ..EngineLimits::default() }
}

/// What was promised, and after how many changes.
#[derive(Default)]
struct Promises {
    records: Vec<(usize, Published)>,
    entries: Vec<(usize, String)>,
    replaced: usize,
}

fn work(broker: &EmbeddedBroker, storage: &JournalledStorage) -> Promises {
    let log = broker.state_log("d").unwrap();
    let mut promises = Promises::default();
    for round in 0..12 {
        let records: Vec<_> = (0..3)
            .map(|n| record(&format!("u{round}-{n}"), &format!("k{}", n + round), vec![b'x'; 40 + 300 * ((n + round) % 4)]))
            .collect();
        let acks = broker.publish_batch(["a", "b"][round % 2], &records);
        let published = records.iter().zip(acks).map(|(record, ack)| Published { ack: ack.unwrap(), payload: record.payload().clone() });
        promises.records.extend(published.map(|published| (storage.changes(), published)));
        let entry = format!("settled {round}");
        log.append(Bytes::from(entry.clone()), Durability::Synced).wait().unwrap();
        promises.entries.push((storage.changes(), entry));
        if round == 6 {
            let entries: Vec<_> = promises.entries.iter().map(|(_, entry)| Bytes::from(entry.clone())).collect();
            log.replace(&entries).wait().unwrap();
            promises.replaced = storage.changes();
        }
    }
    promises
}

#[test]
fn everything_acknowledged_before_a_power_cut_is_there_after_it() {
    let directory = scratch();
    let storage = JournalledStorage::default();
    let options = EngineOptions { storage: Arc::new(storage.clone()), limits: limits(), ..EngineOptions::default() };
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("a", 3), ("b", 2)]), options).unwrap();
    let provisioned = storage.changes();
    let promises = work(&broker, &storage);
    drop(broker);
    let changes = storage.changes();
    assert!(changes > provisioned + 60 && promises.replaced > 0, "{changes}");
    for seed in 0..4 {
        for cut in provisioned..=changes {
            let mut seeded = Seeded(seed * 100_000 + cut as u64);
            let after = scratch();
            storage.crash(cut, directory.path(), after.path(), &mut seeded);
            check(after.path(), &promises, cut, seed);
        }
    }
}

fn check(directory: &std::path::Path, promises: &Promises, cut: usize, seed: u64) {
    let context = format!("cut after change {cut}, seed {seed}");
    let promised: Vec<_> = promises.records.iter().filter(|(at, _)| *at <= cut).map(|(_, published)| published.clone()).collect();
    let broker = EmbeddedBroker::open_with(directory, quick(limits())).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(count(&fates(&broker, &promised)), (promised.len(), 0, 0), "{context}");
    let mut entries = Vec::new();
    let log = broker.state_log("d").unwrap();
    log.replay(|entry| entries.push(String::from_utf8_lossy(entry).into_owned())).unwrap();
    let promised_entries = promises.entries.iter().filter(|(at, _)| *at <= cut).count();
    assert!(entries.len() >= promised_entries, "{context}: {entries:?}");
    assert!(entries.iter().zip(&promises.entries).all(|(found, (_, promised))| found == promised), "{context}: {entries:?}");
    let new = publish(&broker, "a", "new", 4);
    drop(broker);
    let broker = EmbeddedBroker::open_with(directory, quick(limits())).unwrap();
    assert_eq!(count(&fates(&broker, &promised)), (promised.len(), 0, 0), "{context}, opened again");
    assert_eq!(count(&fates(&broker, &new)), (4, 0, 0), "{context}, opened again");
}
