//! The crash matrix of the archive on the embedded engine: the process ends at every change of a file and at every call of the store, the
//! power may be cut with it, and whoever opens the directory again and maintains it finds each record once: hot and then cold, or cold.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use latent_bridge::cold::{ArchiveOptions, ColdError, ColdStore, Listed, PutEnd};
use latent_bridge::embedded::{EngineOptions, OsStorage, Storage};
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::UnixMillis;

use crate::support::cold::{HOUR, KEY, archive, assert_archived, intents, maintain_to_the_end, manifest, objects_in};
use crate::support::crash::JournalledStorage;
use crate::support::doubles::MemoryStore;
use crate::support::fixtures::{Published, Seeded, SetClock, copy_directory, publish, scratch, small_limits};
use crate::support::storage::{Failing, TestStorage};

const THEN: u64 = HOUR + 1;
const RECORDS: usize = 12;

fn options(storage: Arc<dyn Storage>, archive: ArchiveOptions) -> EngineOptions {
    EngineOptions { storage, clock: Arc::new(SetClock::default()), limits: small_limits(), archive, ..EngineOptions::default() }
}

fn keys() -> ArchiveOptions {
    ArchiveOptions { control_keys: vec![KEY], uploads: 1, ..ArchiveOptions::default() }
}

/// Calls of a store after which nothing is answered any more: the process has ended. The last one may have been done or not.
pub(super) struct Ending {
    pub(super) store: Arc<MemoryStore>,
    pub(super) left: AtomicU64,
    pub(super) last_is_done: bool,
}

impl Ending {
    fn begin(&self) -> Result<bool, ColdError> {
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            return Err(ended());
        }
        self.left.store(left - 1, Ordering::SeqCst);
        Ok(left == 1)
    }
}

fn ended() -> ColdError {
    ColdError::Failed { operation: "any", object: "any".to_owned(), reason: "the process has ended".to_owned() }
}

impl ColdStore for Ending {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        if self.begin()? {
            if self.last_is_done {
                self.store.put_new(path, bytes)?;
            }
            return Err(ended());
        }
        self.store.put_new(path, bytes)
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        if self.begin()? { Err(ended()) } else { self.store.get(path, bytes_max) }
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        if self.begin()? { Err(ended()) } else { self.store.list_after(prefix, after, count_max) }
    }
}

/// A closed directory of records that have expired at `THEN`, archived at `uri`.
fn filled(uri: &str, archive: ArchiveOptions) -> (tempfile::TempDir, Vec<Published>) {
    let directory = scratch();
    let broker =
        EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 2)], uri), options(TestStorage::without_syncs(), archive))
            .unwrap();
    let published = publish(&broker, "t", "old", RECORDS);
    drop(broker);
    (directory, published)
}

/// Everything is hot, or is cold, or has an intent.
fn assert_nothing_lost(directory: &Path, cold: usize, context: &str, archive: ArchiveOptions) {
    let broker = EmbeddedBroker::open_with(directory, options(TestStorage::without_syncs(), archive)).unwrap();
    let hot: u64 = broker.statistics()[0].partitions.iter().map(|partition| partition.records).sum();
    let waiting = intents(&directory.join("cold-outbox")).len();
    assert!(usize::try_from(hot).unwrap() + waiting + cold >= RECORDS, "{context}: {hot} hot, {waiting} waiting, {cold} cold");
}

/// The store's calls: each of them is the last, done or not.
#[test]
fn the_process_ends_at_every_call_of_the_store() {
    let probe = Arc::new(MemoryStore::new());
    let (directory, published) = filled("x", archive(&probe));
    let mut ends = 0;
    for last_is_done in [false, true] {
        for calls in 0.. {
            assert!(calls < 1_000);
            let (copy, store) = (copy_directory(directory.path()), Arc::new(MemoryStore::new()));
            let ending = Arc::new(Ending { store: Arc::clone(&store), left: AtomicU64::new(calls), last_is_done });
            let context = format!("{calls} calls, last done: {last_is_done}");
            let broker = EmbeddedBroker::open_with(copy.path(), options(TestStorage::without_syncs(), archive(&ending))).unwrap();
            let report = broker.maintain(UnixMillis(THEN)).unwrap();
            let is_whole = ending.left.load(Ordering::SeqCst) > 0;
            drop(broker);
            let cold = store.objects().keys().filter(|path| path.starts_with("t/")).count();
            assert_nothing_lost(copy.path(), cold, &context, archive(&store));
            let broker = EmbeddedBroker::open_with(copy.path(), options(TestStorage::without_syncs(), archive(&store))).unwrap();
            let expired = maintain_to_the_end(&broker, THEN + HOUR);
            assert_eq!(report.expired_records + expired, RECORDS as u64, "{context}");
            assert_archived(&store.objects(), &published, &context);
            ends += 1;
            if is_whole {
                break;
            }
        }
    }
    assert!(ends > 2 * RECORDS, "{ends}");
}

/// A directory whose records wait for their store: they have left the log, and their intents are durable.
fn waiting() -> (tempfile::TempDir, Vec<Published>) {
    let store = Arc::new(MemoryStore::new());
    let (directory, published) = filled("x", archive(&store));
    let broker = EmbeddedBroker::open_with(directory.path(), options(TestStorage::without_syncs(), archive(&store))).unwrap();
    store.set_down(true);
    let report = broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((report.expired_records, report.intents_pending), (RECORDS as u64, RECORDS as u64), "{report:?}");
    drop(broker);
    (directory, published)
}

/// Another process finds each record once, after a first one that ended somewhere.
fn assert_finished(directory: &Path, store: &Arc<MemoryStore>, published: &[Published], context: &str) {
    let cold = store.objects().keys().filter(|path| path.starts_with("t/")).count();
    assert_nothing_lost(directory, cold, context, archive(store));
    let broker = EmbeddedBroker::open_with(directory, options(TestStorage::without_syncs(), archive(store))).unwrap();
    maintain_to_the_end(&broker, THEN + 2 * HOUR);
    let hot: u64 = broker.statistics()[0].partitions.iter().map(|partition| partition.records).sum();
    assert_eq!(hot, 0, "{context}");
    assert_archived(&store.objects(), published, context);
}

/// Every operation of a file, those that change nothing as well, when nothing is staged yet and when all of it waits.
#[test]
fn the_process_ends_at_every_operation_of_a_file_at_first_and_when_intents_wait() {
    for (scene, (directory, published)) in [("at first", filled("x", archive(&Arc::new(MemoryStore::new())))), ("waiting", waiting())] {
        for at in 0.. {
            let (copy, store, storage) = (copy_directory(directory.path()), Arc::new(MemoryStore::new()), TestStorage::without_syncs());
            let broker = EmbeddedBroker::open_with(copy.path(), options(Arc::clone(&storage) as _, archive(&store))).unwrap();
            storage.fail(Failing::From(at));
            let ended = broker.maintain(UnixMillis(THEN + HOUR));
            drop(broker);
            storage.fail(Failing::Never);
            let is_whole = ended.is_ok_and(|report| report.intents_completed == RECORDS as u64);
            assert_finished(copy.path(), &store, &published, &format!("{scene}: ended at operation {at}"));
            if is_whole {
                assert!(at >= RECORDS as u64, "{scene}: {at}");
                break;
            }
            assert!(at < 5_000);
        }
    }
}

/// As the calls of the store above, when everything waits for it.
#[test]
fn the_process_ends_at_every_call_of_the_store_when_intents_wait() {
    let (directory, published) = waiting();
    for last_is_done in [false, true] {
        for calls in 0.. {
            assert!(calls < 1_000);
            let (copy, store) = (copy_directory(directory.path()), Arc::new(MemoryStore::new()));
            let ending = Arc::new(Ending { store: Arc::clone(&store), left: AtomicU64::new(calls), last_is_done });
            let broker = EmbeddedBroker::open_with(copy.path(), options(TestStorage::without_syncs(), archive(&ending))).unwrap();
            drop(broker.maintain(UnixMillis(THEN + HOUR)).unwrap());
            let is_whole = ending.left.load(Ordering::SeqCst) > 0;
            drop(broker);
            assert_finished(copy.path(), &store, &published, &format!("{calls} calls, last done: {last_is_done}"));
            if is_whole {
                assert!(calls > RECORDS as u64, "{calls}");
                break;
            }
        }
    }
}

/// Every change of a file, with the store in a folder, so that its files are among them; and the power is cut with the process.
#[test]
fn the_process_and_the_power_end_at_every_change_of_a_file() {
    let root = scratch();
    let place = |root: &Path| root.join("cold").to_str().unwrap().to_owned();
    let data = |root: &Path| root.join("data");
    let live = JournalledStorage::default();
    let broker = EmbeddedBroker::provision_with(
        &data(root.path()),
        &manifest(&[("t", 2)], &place(root.path())),
        options(Arc::new(live.clone()), keys()),
    )
    .unwrap();
    let published = publish(&broker, "t", "old", RECORDS);
    let before = live.changes();
    assert_eq!(broker.maintain(UnixMillis(THEN)).unwrap().intents_completed, RECORDS as u64);
    drop(broker);
    let (after, mut seeded) = (live.changes(), Seeded(7));
    assert!(after - before > 10 * RECORDS, "{before} to {after}");
    for cut in before..=after {
        let context = format!("after {cut} changes of {after}");
        let copy = scratch();
        live.crash(cut, root.path(), copy.path(), &mut seeded);
        // The manifest names the folder that it was made with; the copy's takes its place.
        let cold = objects_of(&copy.path().join("cold"), &context);
        let store = Arc::new(MemoryStore::new());
        cold.iter().for_each(|(path, object)| store.plant(path, object.clone()));
        let count = cold.keys().filter(|path| path.starts_with("t/")).count();
        assert_nothing_lost(&data(copy.path()), count, &context, archive(&store));
        let broker = EmbeddedBroker::open_with(&data(copy.path()), options(TestStorage::without_syncs(), archive(&store))).unwrap();
        maintain_to_the_end(&broker, THEN + HOUR);
        let hot: u64 = broker.statistics()[0].partitions.iter().map(|partition| partition.records).sum();
        assert_eq!(hot, 0, "{context}");
        assert_archived(&store.objects(), &published, &context);
    }
}

/// The objects of a folder after a crash. None is short or empty, whatever was not synced.
fn objects_of(folder: &Path, context: &str) -> std::collections::BTreeMap<String, Bytes> {
    let mut objects = objects_in(folder);
    objects.retain(|path, object| {
        let is_object = path.ends_with(".json");
        assert!(!is_object || serde_json::from_slice::<serde_json::Value>(object).is_ok(), "{context}: {path} is not whole");
        is_object
    });
    objects
}

/// A sample with a real process, which is killed somewhere while it archives.
#[test]
fn a_process_that_is_killed_while_it_archives_loses_and_doubles_nothing() {
    const CHILD: &str = "LATENT_TEST_COLD_CHILD";
    if let Some(root) = std::env::var_os(CHILD).map(PathBuf::from) {
        let broker = EmbeddedBroker::open_with(&root.join("data"), options(Arc::new(OsStorage), keys())).unwrap();
        drop(broker.maintain(UnixMillis(THEN)));
        return;
    }
    let root = scratch();
    let cold = root.path().join("cold");
    let broker = EmbeddedBroker::provision_with(
        &root.path().join("data"),
        &manifest(&[("t", 2)], cold.to_str().unwrap()),
        options(TestStorage::without_syncs(), keys()),
    )
    .unwrap();
    let published = publish(&broker, "t", "old", 200);
    drop(broker);
    let mut seen = 0;
    for _ in 0..6 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "embedded::cold_crash::a_process_that_is_killed_while_it_archives_loses_and_doubles_nothing", "--nocapture"])
            .env(CHILD, root.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Killed when it has archived a little more than the one before.
        latent_testkit::wait_until("the child archives or ends", || {
            objects_in(&cold).len() > seen + 10 || child.try_wait().unwrap().is_some()
        });
        drop(child.kill());
        child.wait().unwrap();
        seen = objects_in(&cold).len();
    }
    let broker = EmbeddedBroker::open_with(&root.path().join("data"), options(TestStorage::without_syncs(), keys())).unwrap();
    maintain_to_the_end(&broker, THEN + HOUR);
    assert_archived(&objects_of(&cold, "after the kills"), &published, "after the kills");
}
