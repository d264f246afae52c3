//! The crash matrix of archiving in segments: the process ends at every operation on a file and at every call of the store, and the power is
//! cut after every change of a file, each of them also between the sealing of a segment, its commit and the removal of what is in it. At each
//! place nothing has left the log that does not lie in the store, and whoever goes on there ends with each record in one segment (B-041).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use latent_bridge::cold::segment::Segment;
use latent_bridge::cold::{ColdError, ColdStore, Listed, PutEnd};
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::{Partition, UnixMillis};

use super::cold_crash::Ending;
use super::cold_segments::{OLD, THEN, YOUNG, aged, fill, finished, hot, open, verified};
use crate::support::cold::{HOUR, archive};
use crate::support::crash::JournalledStorage;
use crate::support::doubles::MemoryStore;
use crate::support::fixtures::{Seeded, copy_directory, scratch};
use crate::support::storage::{Failing, TestStorage};

/// Retention never removes what is not safely cold: every offset that the log has no more lies in a segment of the store, and no head says
/// more than the store has.
pub(super) fn assert_safely_cold(broker: &EmbeddedBroker, store: &MemoryStore, context: &str) {
    let objects = store.objects();
    for partition in 0..3 {
        let prefix = format!("t/p{partition}/");
        let segments = objects.iter().filter(|(path, _)| path.starts_with(&prefix));
        let segments: Vec<_> = segments.map(|(_, bytes)| Segment::open(bytes.clone()).unwrap()).collect();
        let cold: BTreeSet<u64> = segments.iter().flat_map(Segment::items).map(|item| item.unwrap().offset().0).collect();
        let (first, _) = broker.bounds("t", Partition(partition)).unwrap();
        let lost: Vec<_> = (0..first.0).filter(|offset| !cold.contains(offset)).collect();
        assert!(lost.is_empty(), "{context}: of partition {partition} {lost:?} are neither hot nor cold");
        let head = broker.archive_head("t", Partition(partition)).unwrap();
        assert!(head.is_none_or(|head| cold.contains(&head.head.last.0)), "{context}: the head of partition {partition} is ahead");
    }
}

#[test]
fn a_process_that_ends_at_any_file_operation_leaves_nothing_behind_and_nothing_twice() {
    let directory = aged();
    for at in 0.. {
        let copy = copy_directory(directory.path());
        let (storage, store) = (TestStorage::without_syncs(), Arc::new(MemoryStore::new()));
        let broker = open(copy.path(), &storage, &store).unwrap();
        storage.fail(Failing::From(at));
        let ended = broker.maintain(UnixMillis(THEN));
        let has_ended = ended.as_ref().map_or(true, |report| report.expired_records < OLD as u64) || storage.failed() > 0;
        drop(broker);
        storage.fail(Failing::Never);
        let context = format!("ended at file operation {at}");
        let broker = open(copy.path(), &storage, &store).unwrap();
        assert_safely_cold(&broker, &store, &context);
        finished(&broker, &*store, &context);
        if !has_ended {
            assert!(at > 60, "{at}");
            break;
        }
    }
}

#[test]
fn a_process_that_ends_at_any_call_of_the_store_leaves_nothing_behind_and_nothing_twice() {
    let directory = aged();
    for last_is_done in [false, true] {
        for calls in 0.. {
            assert!(calls < 1_000);
            let (copy, store) = (copy_directory(directory.path()), Arc::new(MemoryStore::new()));
            let ending = Arc::new(Ending { store: Arc::clone(&store), left: AtomicU64::new(calls), last_is_done });
            let broker = open(copy.path(), &TestStorage::without_syncs(), &ending).unwrap();
            broker.maintain(UnixMillis(THEN)).unwrap();
            let has_ended = ending.left.load(Ordering::SeqCst) == 0;
            drop(broker);
            let context = format!("{calls} calls, last done: {last_is_done}");
            let broker = open(copy.path(), &TestStorage::without_syncs(), &store).unwrap();
            assert_safely_cold(&broker, &store, &context);
            finished(&broker, &*store, &context);
            if !has_ended {
                assert!(calls > 12, "{calls}");
                break;
            }
        }
    }
}

/// A store that remembers how many changes of files came before each of its objects.
struct Stamped {
    store: MemoryStore,
    storage: JournalledStorage,
    puts: Mutex<Vec<(usize, String)>>,
}

impl Stamped {
    /// What lies there when the power is cut after `changes`; that between this one and the next may have been done or not.
    fn cut(&self, changes: usize, is_last_done: bool) -> Arc<MemoryStore> {
        let (cut, objects) = (MemoryStore::new(), self.store.objects());
        let is_there = |at: &usize| *at < changes || (*at == changes && is_last_done);
        for (_, path) in self.puts.lock().unwrap().iter().filter(|(at, _)| is_there(at)) {
            cut.plant(path, objects[path].clone());
        }
        Arc::new(cut)
    }

    fn is_between(&self, changes: usize) -> bool {
        self.puts.lock().unwrap().iter().any(|(at, _)| *at == changes)
    }
}

impl ColdStore for Stamped {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        let end = self.store.put_new(path, bytes)?;
        if end == PutEnd::Created {
            self.puts.lock().unwrap().push((self.storage.changes(), path.to_owned()));
        }
        Ok(end)
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        self.store.get(path, bytes_max)
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        self.store.list_after(prefix, after, count_max)
    }
}

/// How many different losses of what was not synced each cut is tried with. `LATENT_COLD_CUTS` says another number.
fn seeds() -> u64 {
    std::env::var("LATENT_COLD_CUTS").map_or(1, |seeds| seeds.parse().unwrap())
}

/// To the end of the log, so that its active segment is sealed and removed as well.
#[test]
fn a_power_cut_after_any_change_of_a_file_loses_nothing_and_doubles_nothing() {
    let (directory, storage) = (scratch(), JournalledStorage::default());
    let store = Arc::new(Stamped { store: MemoryStore::new(), storage: storage.clone(), puts: Mutex::default() });
    let (broker, _) = fill(directory.path(), Arc::new(storage.clone()), archive(&store), "x");
    let before = storage.changes();
    assert_eq!(broker.maintain(UnixMillis(THEN)).unwrap().expired_records, OLD as u64);
    assert_eq!(broker.maintain(UnixMillis(3 * HOUR)).unwrap().expired_records, YOUNG as u64);
    drop(broker);
    let after = storage.changes();
    assert!(after - before > 80, "{before} to {after}");
    for seed in 0..seeds() {
        for changes in before..=after {
            let variants: &[bool] = if store.is_between(changes) { &[false, true] } else { &[true] };
            for is_last_done in variants {
                let context = format!("cut after {changes} of {before} to {after}, last put done: {is_last_done}, seed {seed}");
                let copy = scratch();
                storage.crash(changes, directory.path(), copy.path(), &mut Seeded(seed * 100_000 + changes as u64));
                go_on(copy.path(), &store.cut(changes, *is_last_done), &context);
            }
        }
    }
}

/// Who opens a directory after a crash ends with everything in the archive.
fn go_on(directory: &Path, store: &Arc<MemoryStore>, context: &str) {
    let broker = open(directory, &TestStorage::without_syncs(), store).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_safely_cold(&broker, store, context);
    for pass in 0..20 {
        broker.maintain(UnixMillis(3 * HOUR + pass * 10_000)).unwrap();
        assert_safely_cold(&broker, store, context);
        if hot(&broker) == 0 {
            assert_eq!(verified(&broker, &**store, context).records, (OLD + YOUNG) as u64, "{context}");
            return;
        }
    }
    panic!("{context}: {} records are still hot", hot(&broker));
}
