//! Manifests, records, directories, and the check that nothing moved.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use latent_bridge::embedded::{EngineLimits, EngineOptions};
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus, PublishAck, RetentionSpec, TopicSpec};
use latent_core::{Attributes, Clock, MediaType, MonoTime, NewRecord, Offset, Partition, Uid, UnixMillis};

use super::storage::TestStorage;

/// A manifest with these topics and partition counts.
pub(crate) fn manifest(topics: &[(&str, u32)]) -> BridgeManifest {
    let topics = topics.iter().map(|(name, partitions)| TopicSpec {
        name: (*name).to_owned(),
        partitions: *partitions,
        retention: RetentionSpec::default(),
        schema_ref: None,
    });
    BridgeManifest { manifest_version: 1, name: "test".to_owned(), replication_factor: 1, topics: topics.collect() }
}

pub(crate) fn record(uid: &str, key: &str, payload: impl Into<Bytes>) -> NewRecord {
    let attributes = Attributes::parse(vec![("Source".to_owned(), "test".to_owned())]).unwrap();
    NewRecord::new(Some(Uid::parse(uid).unwrap()), key, MediaType::octet_stream(), attributes, payload.into()).unwrap()
}

/// Small segments and little space ahead, so that tests meet their edges.
pub(crate) fn small_limits() -> EngineLimits {
    EngineLimits { segment_bytes: 2_048, preallocation_bytes: 512, group_records: 8, ..EngineLimits::default() }
}

/// Options over `storage`.
pub(crate) fn options(storage: &Arc<TestStorage>, limits: EngineLimits) -> EngineOptions {
    EngineOptions { storage: Arc::clone(storage) as _, limits, ..EngineOptions::default() }
}

/// Options whose syncs cost nothing; for tests in which no power is cut.
pub(crate) fn quick(limits: EngineLimits) -> EngineOptions {
    options(&TestStorage::without_syncs(), limits)
}

/// A wall clock that a test sets.
#[derive(Default)]
pub(crate) struct SetClock(AtomicU64);

impl SetClock {
    pub(crate) fn set(&self, unix_millis: u64) {
        self.0.store(unix_millis, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn mono(&self) -> MonoTime {
        MonoTime::ZERO
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }
}

/// A record as it was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) ack: PublishAck,
    pub(crate) payload: Bytes,
}

/// Publishes `count` records over a few keys, one after the other.
pub(crate) fn publish(broker: &dyn EventBus, topic: &str, prefix: &str, count: usize) -> Vec<Published> {
    let records: Vec<_> =
        (0..count).map(|n| record(&format!("{prefix}-{n}"), &format!("key-{}", n % 5), format!("payload {prefix} {n}"))).collect();
    let acks = broker.publish_batch(topic, &records);
    let published = records.iter().zip(acks).map(|(record, ack)| Published { ack: ack.unwrap(), payload: record.payload().clone() });
    published.collect()
}

/// What became of an acknowledged record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// At its offset, byte for byte.
    Intact,
    /// Its offset says that it is damaged.
    Damaged,
    /// Nothing is known at its offset: it was cut from the end, or lies before the first one known.
    Cut,
    /// The log says that it begins after it, as if it had expired.
    Before,
}

/// Finds out what became of each record. Anything but the three fates is a broken promise and fails the test.
pub(crate) fn fates(broker: &dyn EventBus, records: &[Published]) -> Vec<Fate> {
    records.iter().map(|published| fate(broker, published)).collect()
}

fn fate(broker: &dyn EventBus, published: &Published) -> Fate {
    let ack = &published.ack;
    match broker.submit_fetch(&ack.topic, Partition(ack.partition), Offset(ack.offset), 1).wait() {
        Ok(read) if read.is_empty() => Fate::Cut,
        Ok(_) if broker.bounds(&ack.topic, Partition(ack.partition)).unwrap().0.0 > ack.offset => Fate::Before,
        Ok(read) => {
            let (stored, record) = (&read[0], &read[0].record);
            assert_eq!((stored.offset.0, record.uid.as_str(), &record.payload), (ack.offset, &*ack.uid, &published.payload));
            Fate::Intact
        }
        Err(BusError::Unreadable { topic, partition, offset }) => {
            assert_eq!((topic, partition, offset), (ack.topic.clone(), ack.partition, ack.offset));
            Fate::Damaged
        }
        Err(error) => panic!("{ack:?}: {error}"),
    }
}

/// How many of each fate: intact, damaged, cut.
pub(crate) fn count(fates: &[Fate]) -> (usize, usize, usize) {
    let of = |wanted| fates.iter().filter(|fate| **fate == wanted).count();
    (of(Fate::Intact), of(Fate::Damaged), of(Fate::Cut))
}

/// A directory in memory where the system has such a place. For tests that open a directory many times and cut no power.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// A copy of a closed data directory, in memory where that is possible.
pub(crate) fn copy_directory(from: &Path) -> tempfile::TempDir {
    let to = scratch();
    copy_into(from, to.path());
    to
}

fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_into(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// Segment files of a topic, in order.
pub(crate) fn segments(directory: &Path, topic: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("topics").join(topic)).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = entries.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).collect();
    segments.sort();
    segments
}

/// Forgets what only a clean close wrote, as if the process had been killed.
pub(crate) fn forget_watermark(directory: &Path, topic: &str) {
    std::fs::remove_file(directory.join("topics").join(topic).join("watermark")).unwrap();
}

/// End of the last frame: its footer is 28 bytes long.
pub(crate) fn data_end(content: &[u8]) -> usize {
    content.windows(4).rposition(|bytes| bytes == b"LTE1").map_or(0, |footer| footer + 28)
}

/// A provisioned, quick, closed directory with `count` records in topic `t` of `partitions` partitions.
pub(crate) fn filled(partitions: u32, count: usize, limits: EngineLimits) -> (tempfile::TempDir, Vec<Published>) {
    let directory = scratch();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", partitions)]), quick(limits)).unwrap();
    let published = publish(&broker, "t", "old", count);
    drop(broker);
    (directory, published)
}

/// A small generator for seeded tests.
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        // splitmix64, whose whole state is one number that a failure can print.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }
}
