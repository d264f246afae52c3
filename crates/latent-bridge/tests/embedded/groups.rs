//! Group commit seen from outside: shared syncs, bounds, answers.

use std::sync::Arc;

use latent_bridge::embedded::{Durability, EngineLimits, EngineOptions};
use latent_bridge::{AppendWatcher, BusError, EmbeddedBroker, EventBus};
use latent_core::{Offset, Partition, Ticket};
use serde_json::json;

use crate::support::fixtures::{SetClock, fates, manifest, options, publish, quick, record, scratch};
use crate::support::storage::{Failing, TestStorage};

/// A broker whose writer is held in the sync of a first record.
fn held(limits: EngineLimits) -> (tempfile::TempDir, Arc<TestStorage>, EmbeddedBroker, Ticket<latent_bridge::PublishResult>) {
    let directory = tempfile::tempdir().unwrap();
    let storage = TestStorage::without_syncs();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 8), ("s", 1)]), options(&storage, limits)).unwrap();
    // A log that is new is synced when it is opened, which must not wait at the gate.
    drop(broker.state_log("d").unwrap());
    storage.close_gate();
    let first = broker.submit_record("t", record("first", "k", "x"));
    storage.wait_for_a_waiting_sync();
    (directory, storage, broker, first)
}

#[test]
fn a_group_over_many_partitions_shares_one_sync() {
    let (_directory, storage, broker, first) = held(EngineLimits::default());
    let tickets: Vec<_> = (0..100).map(|n| broker.submit_record("t", record(&format!("u{n}"), &format!("k{n}"), "x"))).collect();
    let log = broker.state_log("d").unwrap();
    let state = log.append(b"settled".as_slice().into(), Durability::Synced);
    let before = storage.syncs();
    storage.open_gate();
    assert!(first.wait().is_ok() && tickets.into_iter().all(|ticket| ticket.wait().is_ok()) && state.wait().is_ok());
    assert_eq!(storage.syncs() - before, 3, "the first record, the group's topic, the group's state log");
}

#[test]
fn an_entry_that_is_only_written_is_answered_while_its_group_is_synced() {
    struct CloseAgain(Arc<TestStorage>);
    impl AppendWatcher for CloseAgain {
        fn appended(&self, _: &str, _: Partition, _: Offset) {
            self.0.close_gate();
        }
    }
    let (_directory, storage, broker, first) = held(EngineLimits::default());
    let log = broker.state_log("d").unwrap();
    let synced = log.append(b"settled".as_slice().into(), Durability::Synced);
    let written = log.append(b"noted".as_slice().into(), Durability::Written);
    let (answer, answered) = std::sync::mpsc::channel();
    written.on_ready(move |result| answer.send(result).unwrap());
    // The first record's sync passes, the next group's waits again.
    broker.watch_appends(Arc::new(CloseAgain(Arc::clone(&storage))));
    storage.open_gate();
    assert!(answered.recv_timeout(std::time::Duration::from_secs(60)).expect("the answer waits for the sync").is_ok());
    storage.open_gate();
    assert!(first.wait().is_ok() && synced.wait().is_ok());
}

#[test]
fn a_full_queue_refuses_at_its_edge_and_takes_again_afterwards() {
    let (_directory, storage, broker, first) = held(EngineLimits { queue_records: 3, ..EngineLimits::default() });
    let taken: Vec<_> = (0..3).map(|n| broker.submit_record("t", record(&format!("u{n}"), "k", "x"))).collect();
    let refused = broker.submit_record("t", record("u3", "k", "x")).wait().unwrap_err();
    assert_eq!(refused, BusError::Busy { limit: "log_queue_records" });
    assert!(!refused.is_permanent());
    storage.open_gate();
    assert!(first.wait().is_ok() && taken.into_iter().all(|ticket| ticket.wait().is_ok()));
    assert_eq!(broker.find_event_by_uid("t", "k", "u3"), Ok(None), "nothing was taken");
    assert!(broker.publish_record("t", &record("u3", "k", "x")).is_ok());
}

#[test]
fn the_same_uid_twice_in_a_group_is_one_record_or_a_conflict() {
    let (_directory, storage, broker, first) = held(EngineLimits::default());
    let submit = |key: &str, payload: &'static str| broker.submit_record("t", record("u", key, payload));
    let (one, same, other, moved) = (submit("k", "x"), submit("k", "x"), submit("k", "y"), submit("another", "x"));
    storage.open_gate();
    let one = one.wait().unwrap();
    assert!(first.wait().is_ok() && !one.duplicate);
    assert_eq!(same.wait().unwrap(), latent_bridge::PublishAck { duplicate: true, ..one });
    assert!([other, moved].into_iter().all(|ticket| matches!(ticket.wait(), Err(BusError::Conflict { .. }))));
}

#[test]
fn a_failed_group_answers_each_of_its_records_and_only_those() {
    let (_directory, storage, broker, first) = held(EngineLimits { preallocation_bytes: 0, ..EngineLimits::default() });
    let of_t: Vec<_> = (0..3).map(|n| broker.submit_record("t", record(&format!("u{n}"), &format!("k{n}"), "x"))).collect();
    let twin = broker.submit_record("t", record("u0", "k0", "x"));
    let of_s = broker.submit_record("s", record("u0", "k", "x"));
    // Calls from here: the held sync; a new file, its name and frames for `s`; frames for `t`; the sync of `s`; the sync of `t`.
    storage.fail(Failing::Only(6));
    storage.open_gate();
    assert!(first.wait().is_ok());
    let uncertain = of_t.into_iter().chain([twin]).map(|ticket| ticket.wait().unwrap_err().is_uncertain());
    assert!(uncertain.into_iter().all(|uncertain| uncertain), "the sync of `t` failed");
    assert!(of_s.wait().is_ok(), "`s` was synced");
}

#[test]
fn dropping_finishes_what_was_handed_over() {
    let (directory, storage, broker, first) = held(EngineLimits::default());
    let tickets: Vec<_> = (0..50).map(|n| broker.submit_record("t", record(&format!("u{n}"), "k", "x"))).collect();
    let closing = std::thread::spawn(move || drop(broker));
    storage.open_gate();
    closing.join().unwrap();
    assert!(first.wait().is_ok() && tickets.into_iter().all(|ticket| ticket.wait().is_ok()));
    let broker = EmbeddedBroker::open_with(directory.path(), quick(EngineLimits::default())).unwrap();
    assert!((0..50).all(|n| broker.find_event_by_uid("t", "k", &format!("u{n}")).unwrap().is_some()));
}

#[test]
fn a_panicking_watcher_does_not_stop_the_log() {
    struct Panics;
    impl AppendWatcher for Panics {
        fn appended(&self, _: &str, _: Partition, _: Offset) {
            panic!("on purpose");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)]), quick(EngineLimits::default())).unwrap();
    broker.watch_appends(Arc::new(Panics));
    assert_eq!(publish(&broker, "t", "a", 10).len(), 10);
    assert_eq!(publish(&broker, "t", "b", 10).len(), 10);
}

#[test]
fn whatever_the_wall_clock_says_offsets_stay_dense_and_stored_at_is_what_it_said() {
    let clock = Arc::new(SetClock::default());
    let directory = tempfile::tempdir().unwrap();
    let with_clock = || EngineOptions { clock: Arc::clone(&clock) as _, ..quick(EngineLimits::default()) };
    let times = [1_000_000, 0, u64::MAX, 999_999, 5];
    {
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)]), with_clock()).unwrap();
        for time in times {
            clock.set(time);
            broker.publish("t", "k", &json!(time)).unwrap();
        }
    }
    clock.set(3);
    let broker = EmbeddedBroker::open_with(directory.path(), with_clock()).unwrap();
    broker.publish("t", "k", &json!(3)).unwrap();
    let events = broker.fetch("t", 0, 0, 10).unwrap();
    assert_eq!(events.iter().map(|event| event.offset).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(events.iter().all(|event| event.value == json!(event.stored_at)));
}

#[test]
fn a_read_is_bounded_in_records_and_bytes_but_gives_at_least_one() {
    let directory = tempfile::tempdir().unwrap();
    let limits = EngineLimits { fetch_records: 4, fetch_bytes: 1_000, ..EngineLimits::default() };
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)]), quick(limits)).unwrap();
    let sizes = [10, 10, 10, 10, 10, 600, 600, 5_000, 10];
    let records: Vec<_> = sizes.iter().enumerate().map(|(n, bytes)| record(&format!("u{n}"), "k", vec![1; *bytes])).collect();
    assert!(broker.publish_batch("t", &records).iter().all(Result::is_ok));
    let page = |offset| broker.submit_fetch("t", Partition(0), Offset(offset), 100).wait().unwrap();
    let lengths: Vec<_> = (0..9).map(|offset| page(offset).len()).collect();
    assert_eq!(lengths, [4, 4, 3, 2, 2, 1, 1, 1, 1]);
    assert!((0..9).all(|offset| broker.fetch("t", 0, offset, 100).unwrap().len() as u64 == 9 - offset), "a fetch joins them");
    assert_eq!(broker.submit_heads("t", Partition(0), Offset(0), 100).wait().unwrap().len(), 4);
}

#[test]
fn segments_roll_and_every_record_stays_readable() {
    let directory = tempfile::tempdir().unwrap();
    let limits = crate::support::fixtures::small_limits();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 3)]), quick(limits)).unwrap();
    let published = publish(&broker, "t", "a", 200);
    assert!(broker.statistics()[0].segments > 5);
    assert!(fates(&broker, &published).iter().all(|fate| *fate == crate::support::fixtures::Fate::Intact));
    drop(broker);
    let broker = EmbeddedBroker::open_with(directory.path(), quick(limits)).unwrap();
    assert!(fates(&broker, &published).iter().all(|fate| *fate == crate::support::fixtures::Fate::Intact));
    let again = publish(&broker, "t", "a", 200);
    assert!(again.iter().zip(&published).all(|(again, first)| again.ack.duplicate && again.ack.offset == first.ack.offset));
}

#[test]
fn a_segment_ends_with_the_last_record_it_may_have() {
    for (count, segments) in [(5, 1), (6, 1), (7, 2), (12, 2), (13, 3)] {
        let directory = scratch();
        let limits = EngineLimits { segment_records: 6, group_records: 3, ..EngineLimits::default() };
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 2)]), quick(limits)).unwrap();
        (0..count).for_each(|n| drop(publish(&broker, "t", &n.to_string(), 1)));
        assert_eq!(broker.statistics()[0].segments, segments, "{count} records");
    }
}

#[test]
fn no_more_full_segments_are_kept_open_than_allowed() {
    for open_segments in [1, 2, 5] {
        let directory = scratch();
        let limits = EngineLimits { segment_records: 3, open_segments, ..EngineLimits::default() };
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)]), quick(limits)).unwrap();
        (0..20).for_each(|n| drop(publish(&broker, "t", &n.to_string(), 1)));
        for _ in 0..2 {
            assert_eq!(broker.fetch("t", 0, 0, 100).unwrap().len(), 20);
        }
        let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let open = open.filter(|path| path.starts_with(directory.path()) && path.extension().is_some_and(|ending| ending == "seg"));
        assert_eq!(open.count() as u64, open_segments + 1, "and the one being written");
    }
}
