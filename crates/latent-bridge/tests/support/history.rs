//! A log with a past: several topics, full segments, merged runs, state entries; and the check that all of it is there, once, in order.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use latent_bridge::embedded::{Durability, EngineLimits, TopicStatistics};
use latent_bridge::{BusError, EmbeddedBroker, EventBus, PublishAck};
use latent_core::{NewRecord, Offset, Partition, StoredRecord};

use super::fixtures::{manifest, quick, record, scratch};

/// Nothing waited for here takes longer, whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(60);

/// Segments of few records, so that they are sealed, prepared and merged all the time.
pub(crate) fn tiny() -> EngineLimits {
    EngineLimits { segment_bytes: 2_048, segment_records: 6, preallocation_bytes: 256, group_records: 4, ..EngineLimits::default() }
}

/// A record and what its publisher was told.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) record: NewRecord,
    pub(crate) ack: PublishAck,
}

/// `count` records of differing sizes over a few keys.
pub(crate) fn records(prefix: &str, count: usize) -> Vec<NewRecord> {
    let one = |n: usize| record(&format!("{prefix}-{n}"), &format!("key-{}", n % 7), format!("{prefix} {n} {}", "x".repeat(n * 37 % 120)));
    (0..count).map(one).collect()
}

/// Publishes records together and keeps what was acknowledged, which is all of them.
pub(crate) fn keep(broker: &dyn EventBus, topic: &str, records: Vec<NewRecord>) -> Vec<Kept> {
    let acks = broker.publish_batch(topic, &records);
    records.into_iter().zip(acks).map(|(record, ack)| Kept { record, ack: ack.unwrap() }).collect()
}

/// Topics of [`past`].
pub(crate) const TOPICS: [(&str, u32); 2] = [("a", 3), ("b", 1)];

/// A closed directory with merged runs in topic `a`, a few records in `b`, and a state log `notes`.
pub(crate) fn past(count: usize) -> (tempfile::TempDir, Vec<Kept>) {
    let directory = scratch();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), quick(tiny())).unwrap();
    let mut kept = keep(&broker, "a", records("old", count));
    kept.extend(keep(&broker, "b", records("old", 5)));
    let notes = broker.state_log("notes").unwrap();
    NOTES.iter().for_each(|note| notes.append(Bytes::from_static(note.as_bytes()), Durability::Synced).wait().unwrap());
    wait_for_merges(&broker);
    (directory, kept)
}

/// Entries of the state log of [`past`].
pub(crate) const NOTES: [&str; 3] = ["one", "two", "three"];

/// Waits until every full segment has its run and no four runs of one level are left: then there are as many as the number of full
/// segments has ones when it is written with the digits 0 to 3 and each digit counts for itself.
pub(crate) fn wait_for_merges(broker: &EmbeddedBroker) {
    let digits = |mut full: u64| {
        let mut sum = 0;
        while full > 0 {
            (sum, full) = (sum + full % 4, full / 4);
        }
        sum
    };
    let merged = |topic: &TopicStatistics| topic.uid_runs == digits(topic.segments.saturating_sub(1));
    eventually("runs are merged", || broker.statistics().iter().all(merged).then_some(()));
}

/// Asks until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// The answer of a call that may find a damaged index file, which is a typed error until it was made again.
pub(crate) fn healed<T>(context: &str, mut call: impl FnMut() -> Result<T, BusError>) -> Result<T, BusError> {
    eventually(context, || match call() {
        Err(BusError::Io { kind: std::io::ErrorKind::InvalidData, ref file, .. }) if file.ends_with(".uids") => None,
        other => Some(other),
    })
}

/// Every record of a partition that can be read, in order. Offsets ascend and each uid is there once.
pub(crate) fn readable(broker: &dyn EventBus, topic: &str, partition: u32, context: &str) -> Vec<StoredRecord> {
    let (first, next) = broker.bounds(topic, Partition(partition)).unwrap();
    let mut offset = first.0;
    let mut all: Vec<StoredRecord> = Vec::new();
    while offset < next.0 {
        match broker.submit_fetch(topic, Partition(partition), Offset(offset), 1_000).wait() {
            Ok(page) => {
                assert!(!page.is_empty(), "{context}: {topic}/{partition} at {offset}");
                offset = page.last().unwrap().offset.0 + 1;
                all.extend(page);
            }
            Err(BusError::Unreadable { offset: damaged, .. }) => offset = damaged + 1,
            Err(error) => panic!("{context}: {topic}/{partition} at {offset}: {error}"),
        }
    }
    assert!(all.is_sorted_by(|a, b| a.offset < b.offset), "{context}: {topic}/{partition}");
    all
}

/// Everything kept is where it was acknowledged, is found by its uid and is known as a duplicate; nothing is there twice.
pub(crate) fn check_complete(broker: &dyn EventBus, kept: &[Kept], context: &str) {
    let mut places = BTreeSet::new();
    let mut uids = BTreeSet::new();
    for topic in broker.topics() {
        for partition in 0..broker.partitions(&topic).unwrap() {
            for stored in readable(broker, &topic, partition, context) {
                let uid = stored.record.uid.as_str().to_owned();
                assert!(uids.insert((topic.clone(), uid.clone())), "{context}: {uid} is there twice");
                places.insert((topic.clone(), partition, stored.offset.0, uid, stored.record.payload));
            }
        }
    }
    for Kept { record, ack } in kept {
        let place = (ack.topic.clone(), ack.partition, ack.offset, ack.uid.clone(), record.payload().clone());
        assert!(places.contains(&place), "{context}: {ack:?} is not at its place");
        let found = healed(context, || broker.find_event_by_uid(&ack.topic, record.key(), &ack.uid));
        assert_eq!(found, Ok(Some(PublishAck { duplicate: false, ..ack.clone() })), "{context}");
        let again = healed(context, || broker.publish_record(&ack.topic, record));
        assert_eq!(again, Ok(PublishAck { duplicate: true, ..ack.clone() }), "{context}");
    }
}

/// As [`check_complete`] on a closed directory; then new records go in, and all is there after another opening.
pub(crate) fn check_directory(directory: &Path, kept: &[Kept], context: &str) {
    let open = || EmbeddedBroker::open_with(directory, quick(tiny())).unwrap_or_else(|error| panic!("{context}: {error}"));
    let broker = open();
    check_complete(&broker, kept, context);
    let new = keep(&broker, "a", records("new", 9));
    assert!(new.iter().all(|new| !new.ack.duplicate), "{context}");
    drop(broker);
    check_complete(&open(), &[kept, &new].concat(), &format!("{context}, opened again"));
}

/// Files of a topic's folder with one of these endings, in order.
pub(crate) fn files(directory: &Path, topic: &str, endings: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("topics").join(topic)).unwrap().map(|entry| entry.unwrap().path());
    let wanted = |path: &PathBuf| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending));
    let mut files: Vec<_> = entries.filter(wanted).collect();
    files.sort();
    files
}
