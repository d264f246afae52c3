//! The power is cut in directories with a past: after a failed sync, after a kill and another opening, during retention, during
//! provisioning and while a changed manifest is applied.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::embedded::{Durability, EngineOptions};
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus};

use crate::support::crash::JournalledStorage;
use crate::support::fixtures::{Seeded, SetClock, manifest, quick, scratch};
use crate::support::history::{Kept, TOPICS, check_complete, keep, records, tiny};

const HOUR: u64 = 3_600_000;

fn options(storage: &JournalledStorage, clock: &Arc<SetClock>) -> EngineOptions {
    EngineOptions { storage: Arc::new(storage.clone()), clock: Arc::clone(clock) as _, limits: tiny(), ..EngineOptions::default() }
}

/// What the disk has after a power cut now, with nothing of what was not synced.
fn cut(storage: &JournalledStorage, root: &Path, changes: usize, seed: u64) -> tempfile::TempDir {
    let after = scratch();
    storage.crash(changes, root, after.path(), &mut Seeded(seed));
    after
}

fn notes(broker: &EmbeddedBroker) -> Vec<String> {
    let mut notes = Vec::new();
    broker.state_log("notes").unwrap().replay(|note| notes.push(String::from_utf8_lossy(note).into_owned())).unwrap();
    notes
}

fn note(broker: &EmbeddedBroker, note: &'static str) -> Result<(), BusError> {
    broker.state_log("notes").unwrap().append(Bytes::from_static(note.as_bytes()), Durability::Synced).wait()
}

#[test]
fn what_is_shown_after_a_failed_sync_and_another_opening_survives_a_power_cut() {
    let (directory, storage, clock) = (scratch(), JournalledStorage::default(), Arc::default());
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, &clock)).unwrap();
    let mut kept = keep(&broker, "a", records("before", 3));
    note(&broker, "before").unwrap();
    storage.fail_sync(".seg");
    let perhaps = records("perhaps", 1).remove(0);
    assert!(broker.publish_record("a", &perhaps).unwrap_err().is_uncertain() && storage.has_failed());
    storage.fail_sync(".log");
    assert!(matches!(note(&broker, "perhaps"), Err(BusError::Io { .. })) && storage.has_failed());
    drop(broker);
    let broker = EmbeddedBroker::open_with(directory.path(), options(&storage, &clock)).unwrap();
    let again = broker.publish_record("a", &perhaps).unwrap();
    assert!(again.duplicate, "the system still shows it");
    kept.push(Kept { record: perhaps, ack: latent_bridge::PublishAck { duplicate: false, ..again } });
    assert_eq!(notes(&broker), ["before", "perhaps"]);
    note(&broker, "after").unwrap();
    for seed in 0..8 {
        let after = cut(&storage, directory.path(), storage.changes(), seed);
        let broker = EmbeddedBroker::open_with(after.path(), quick(tiny())).unwrap();
        check_complete(&broker, &kept, "after a failed sync");
        assert_eq!(notes(&broker), ["before", "perhaps", "after"]);
    }
}

#[test]
fn a_replacement_whose_sync_failed_leaves_the_old_log_and_what_is_appended_to_it() {
    let (directory, storage, clock) = (scratch(), JournalledStorage::default(), Arc::default());
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, &clock)).unwrap();
    note(&broker, "before").unwrap();
    storage.fail_sync(".log.tmp");
    let replaced = broker.state_log("notes").unwrap().replace(&[Bytes::from_static(b"new")]).wait();
    assert!(matches!(replaced, Err(BusError::NotSent { .. })) && storage.has_failed(), "{replaced:?}");
    note(&broker, "after").unwrap();
    let after = cut(&storage, directory.path(), storage.changes(), 1);
    assert_eq!(notes(&EmbeddedBroker::open_with(after.path(), quick(tiny())).unwrap()), ["before", "after"]);
}

/// Publishes, notes, replaces and expires; what was acknowledged, as long as the process lives.
fn work(broker: &EmbeddedBroker, clock: &SetClock) -> (Vec<Kept>, Vec<&'static str>) {
    let mut kept = Vec::new();
    let mut noted = Vec::new();
    for (round, prefix) in ["one", "two", "three", "four"].into_iter().enumerate() {
        clock.set((round as u64 + 1) * 400 * HOUR);
        for topic in ["a", "b"] {
            let batch = records(prefix, 7);
            let acks = broker.publish_batch(topic, &batch);
            let acknowledged = batch.into_iter().zip(acks).filter_map(|(record, ack)| Some(Kept { record, ack: ack.ok()? }));
            kept.extend(acknowledged.filter(|_| round > 1));
        }
        let log = broker.state_log("notes");
        let append = |log: &latent_bridge::embedded::StateLog| log.append(Bytes::from_static(prefix.as_bytes()), Durability::Synced).wait();
        noted.extend(log.as_ref().ok().and_then(|log| append(log).ok()).map(|()| prefix));
        if round == 2 {
            drop(broker.enforce_retention(1_800 * HOUR));
            let all: Vec<_> = noted.iter().map(|note| Bytes::from_static(note.as_bytes())).collect();
            drop(log.map(|log| log.replace(&all).wait()));
        }
    }
    (kept, noted)
}

/// In one process that is killed after a change, then in another one; then the power is cut.
#[test]
fn what_is_acknowledged_after_a_kill_and_another_opening_survives_a_power_cut() {
    let whole = {
        let (directory, storage, clock) = (scratch(), JournalledStorage::default(), Arc::default());
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, &clock)).unwrap();
        work(&broker, &clock);
        drop(broker);
        0..storage.changes()
    };
    for killed in whole {
        let context = format!("killed after change {killed}");
        let (directory, storage, clock) = (scratch(), JournalledStorage::default(), Arc::default());
        storage.halt_after(Some(killed));
        // Killed while provisioning, it did no work.
        let provisioned = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, &clock));
        let (mut kept, mut noted) = provisioned.map(|broker| work(&broker, &clock)).unwrap_or_default();
        storage.halt_after(None);
        let broker = EmbeddedBroker::open_or_apply_with(directory.path(), &manifest(&TOPICS), options(&storage, &clock));
        let broker = broker.unwrap_or_else(|error| panic!("{context}: {error}"));
        check_complete(&broker, &kept, &context);
        kept.extend(keep(&broker, "a", records("second", 2)));
        kept.extend(keep(&broker, "b", records("second", 2)));
        note(&broker, "second").unwrap();
        noted.push("second");
        let after = cut(&storage, directory.path(), storage.changes(), killed as u64);
        let broker = EmbeddedBroker::open_with(after.path(), quick(tiny())).unwrap_or_else(|error| panic!("{context}: {error}"));
        check_complete(&broker, &kept, &context);
        let found = notes(&broker);
        assert!(noted.iter().all(|note| found.iter().any(|found| found == note)), "{context}: {noted:?} of {found:?}");
    }
}

#[test]
fn a_power_cut_during_retention_expires_all_of_a_segment_or_nothing_and_gives_no_offset_again() {
    for seed in 0..3 {
        let (directory, storage, clock) = (scratch(), JournalledStorage::default(), Arc::<SetClock>::default());
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, &clock)).unwrap();
        let old = keep(&broker, "a", records("old", 30));
        // There is a watermark, and it is old by the time something expires.
        drop(broker);
        let broker = EmbeddedBroker::open_with(directory.path(), options(&storage, &clock)).unwrap();
        clock.set(900 * HOUR);
        let young = keep(&broker, "a", records("young", 8));
        let before = storage.changes();
        assert!(broker.enforce_retention(1_000 * HOUR).unwrap() > 20);
        let old_expired = storage.changes();
        // To the end of the log as well.
        assert!(broker.enforce_retention(10_000 * HOUR).unwrap() > 7);
        let expired = storage.changes();
        let last = keep(&broker, "a", records("last", 3));
        for changes in before..=storage.changes() {
            let context = format!("seed {seed}, cut after {changes} of {before} to {expired}");
            let after = cut(&storage, directory.path(), changes, seed * 1_000 + changes as u64);
            let broker = EmbeddedBroker::open_with(after.path(), quick(tiny())).unwrap_or_else(|error| panic!("{context}: {error}"));
            if changes <= old_expired {
                check_complete(&broker, &young, &context);
            }
            if changes == storage.changes() {
                check_complete(&broker, &last, &context);
            }
            let statistics = broker.statistics();
            // A group that was cut off while it was written may have lost its first sectors and not its last: then its records, which
            // nobody was promised, are counted as damaged.
            let sound = changes <= expired || changes == storage.changes();
            assert!(!sound || statistics[0].partitions.iter().all(|partition| partition.damaged == 0), "{context}: {statistics:?}");
            let given: Vec<_> = old.iter().chain(&young).collect();
            for new in keep(&broker, "a", records("new", 9)) {
                let clash = given.iter().find(|old| (old.ack.partition, old.ack.offset) == (new.ack.partition, new.ack.offset));
                assert!(clash.is_none(), "{context}: {:?} was given before", new.ack);
            }
        }
    }
}

fn wanted() -> BridgeManifest {
    let mut wanted = manifest(&[("a", 3), ("b", 1), ("c", 2)]);
    wanted.topics[0].retention.hot_hours = 5;
    wanted
}

#[test]
fn a_power_cut_while_provisioning_or_applying_leaves_what_was_or_what_is_wanted() {
    let (directory, storage, clock) = (scratch(), JournalledStorage::default(), Arc::default());
    let root = directory.path();
    drop(EmbeddedBroker::provision_with(root, &manifest(&TOPICS), options(&storage, &clock)).unwrap());
    let provisioned = storage.changes();
    let broker = EmbeddedBroker::open_with(root, options(&storage, &clock)).unwrap();
    let kept = keep(&broker, "a", records("kept", 5));
    drop(broker);
    let filled = storage.changes();
    drop(EmbeddedBroker::open_or_apply_with(root, &wanted(), options(&storage, &clock)).unwrap());
    let applied = storage.changes();
    for changes in 0..=applied {
        for seed in 0..3 {
            let context = format!("cut after {changes} of {provisioned}, {filled}, {applied}, seed {seed}");
            let after = cut(&storage, root, changes, seed);
            match EmbeddedBroker::open_with(after.path(), quick(tiny())) {
                Ok(broker) => {
                    let manifest_now = broker.manifest();
                    assert!(*manifest_now == manifest(&TOPICS) || *manifest_now == wanted(), "{context}");
                    assert!(changes < applied || *manifest_now == wanted(), "{context}");
                    if changes >= filled {
                        check_complete(&broker, &kept, &context);
                    }
                }
                Err(BusError::Config { problem }) => {
                    assert!(changes < provisioned && problem.contains("not provisioned"), "{context}: {problem}")
                }
                Err(error) => panic!("{context}: {error}"),
            }
            let wanted = if changes < filled { manifest(&TOPICS) } else { wanted() };
            let again = EmbeddedBroker::open_or_apply_with(after.path(), &wanted, quick(tiny())).map(drop);
            assert_eq!(again, Ok(()), "{context}");
        }
    }
}
