//! A cold store that cannot be reached, or is slow, for as long as it likes (B-079, B-080): the log goes on, what waits is counted, and it
//! is archived once. Time is virtual.

use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use latent_bridge::cold::{ArchiveOptions, ColdError, ColdStore, Listed, PutEnd};
use latent_bridge::embedded::EngineOptions;
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::UnixMillis;

use crate::support::cold::{HOUR, archive, assert_archived, maintain_to_the_end, manifest};
use crate::support::doubles::{Call, MemoryStore};
use crate::support::fixtures::{Published, SetClock, publish, scratch, small_limits};
use crate::support::storage::TestStorage;

const MINUTE: u64 = 60_000;

fn options(clock: &Arc<SetClock>, archive: ArchiveOptions) -> EngineOptions {
    let storage = TestStorage::without_syncs();
    EngineOptions { storage, clock: Arc::clone(clock) as _, limits: small_limits(), archive, ..EngineOptions::default() }
}

#[test]
fn an_archive_that_is_away_for_an_hour_stops_no_publication_and_is_filled_once() {
    let (directory, clock, store) = (scratch(), Arc::new(SetClock::default()), Arc::new(MemoryStore::new()));
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 2)], "x"), options(&clock, archive(&store))).unwrap();
    let mut published: Vec<Published> = Vec::new();
    let (mut waiting, mut calls_while_down) = (Vec::new(), 0);
    for minute in 0..240 {
        let now = minute * MINUTE;
        clock.set(now);
        published.extend(publish(&broker, "t", &format!("m{minute}"), 3));
        store.set_down((90..150).contains(&minute));
        let before = store.calls().len();
        let report = broker.maintain(UnixMillis(now)).unwrap();
        if (90..150).contains(&minute) {
            calls_while_down += store.calls().len() - before;
            waiting.push(broker.archive_statistics().unwrap().intents);
            assert_eq!(report.intents_completed, 0);
            assert!(report.unarchived_topics.is_empty(), "what has expired leaves: its intents are durable");
        }
    }
    assert!(waiting.is_sorted() && waiting.last() > Some(&150), "the backlog shows: {waiting:?}");
    assert!(calls_while_down <= 60 * 8, "a store that is away is asked now and then: {calls_while_down}");
    let report = broker.maintain(UnixMillis(240 * MINUTE)).unwrap();
    assert_eq!((report.intents_pending, report.intents_quarantined), (0, 0));
    maintain_to_the_end(&broker, 240 * MINUTE + 2 * HOUR);
    assert_archived(&store.objects(), &published, "after the outage");
    let puts = store.calls().iter().filter(|call| matches!(call, Call::Put(path) if path.starts_with("t/"))).count();
    assert!(puts <= published.len() + calls_while_down, "each object is put once when the store is there: {puts}");
}

#[test]
fn an_outbox_that_is_full_keeps_the_rest_hot_until_there_is_room() {
    let (directory, clock, store) = (scratch(), Arc::new(SetClock::default()), Arc::new(MemoryStore::new()));
    let few = ArchiveOptions { intents_max: 10, ..archive(&store) };
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)], "x"), options(&clock, few)).unwrap();
    let published = publish(&broker, "t", "old", 30);
    store.set_down(true);
    let report = broker.maintain(UnixMillis(HOUR + 1)).unwrap();
    assert_eq!((report.intents_pending, &*report.unarchived_topics), (10, &["t".to_owned()][..]));
    let hot: u64 = broker.statistics()[0].partitions.iter().map(|partition| partition.records).sum();
    assert!(hot >= 20, "at most what has an intent left: {hot}");
    let statistics = broker.archive_statistics().unwrap();
    assert_eq!((statistics.intents, statistics.intents_max), (10, 10));
    store.set_down(false);
    maintain_to_the_end(&broker, 2 * HOUR);
    assert_archived(&store.objects(), &published, "with room again");
}

/// A store whose puts wait until they are let go.
struct Held {
    store: MemoryStore,
    state: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Held {
    fn wait_for_one(&self) {
        let mut state = self.state.lock().unwrap();
        while state.1 == 0 {
            state = self.changed.wait(state).unwrap();
        }
    }

    fn hold(&self, is_held: bool) {
        self.state.lock().unwrap().0 = is_held;
        self.changed.notify_all();
    }
}

impl ColdStore for Held {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        let mut state = self.state.lock().unwrap();
        state.1 += u64::from(state.0);
        self.changed.notify_all();
        while state.0 {
            state = self.changed.wait(state).unwrap();
        }
        drop(state);
        self.store.put_new(path, bytes)
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        self.store.get(path, bytes_max)
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        self.store.list_after(prefix, after, count_max)
    }
}

/// B-079.
#[test]
fn while_an_upload_hangs_the_log_takes_and_gives_events_and_another_pass_waits_for_nothing_but_its_turn() {
    let (directory, clock) = (scratch(), Arc::new(SetClock::default()));
    let store = Arc::new(Held { store: MemoryStore::new(), state: Mutex::default(), changed: Condvar::new() });
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)], "x"), options(&clock, archive(&store))).unwrap();
    let mut published = publish(&broker, "t", "old", 30);
    store.hold(true);
    std::thread::scope(|scope| {
        let passes: Vec<_> = (0..2).map(|_| scope.spawn(|| broker.maintain(UnixMillis(HOUR + 1)).unwrap())).collect();
        store.wait_for_one();
        clock.set(HOUR);
        published.extend(publish(&broker, "t", "young", 30));
        assert_eq!(broker.fetch("t", 0, 0, 100).unwrap().len(), 60, "nothing has left, and everything can be read");
        assert_eq!(broker.find_event_by_uid("t", "key-0", "old-0").unwrap().unwrap().offset, 0);
        store.hold(false);
        let expired: u64 = passes.into_iter().map(|pass| pass.join().unwrap().expired_records).sum();
        assert_eq!(expired, 30);
    });
    maintain_to_the_end(&broker, 3 * HOUR);
    assert_archived(&store.store.objects(), &published, "after the hanging upload");
}
