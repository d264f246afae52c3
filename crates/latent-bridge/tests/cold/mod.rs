//! The cold archive: export, verification and restoring, over a log of the embedded engine.

mod export;
mod holes;
mod kill;
mod restore;
mod verify;

#[path = "../../src/cold/segment/doubles.rs"]
#[allow(unreachable_pub, reason = "it is public where it lies")]
mod ring;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::cold::export::{BusItems, ExportError, ExportTo, Exported, Goal, SegmentExporter};
use latent_bridge::cold::segment::{Attest, Attestation, Item, Segment, SegmentSizes};
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::{Offset, Partition, UnixMillis};

use crate::support::doubles::{self, MemoryStore};
use crate::support::fixtures::{manifest, quick, record, scratch};
use crate::support::history::tiny;
use crate::support::storage::TestStorage;
use ring::Keys;

/// A log of one topic with some records in each of its two partitions.
fn log(count: usize) -> (tempfile::TempDir, EmbeddedBroker) {
    let directory = scratch();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 2)]), quick(tiny())).unwrap();
    publish(&broker, "a", count);
    (directory, broker)
}

fn publish(broker: &dyn EventBus, prefix: &str, count: usize) {
    let one = |n: usize| record(&format!("{prefix}-{n}"), &format!("key-{}", n % 7), format!("{prefix} {n} {}", "x".repeat(n * 37 % 120)));
    let records: Vec<_> = (0..count).map(one).collect();
    broker.publish_batch("t", &records).into_iter().for_each(|ack| drop(ack.unwrap()));
}

/// Segments of ten records.
fn ten() -> SegmentSizes {
    SegmentSizes { items: 10, raw_bytes: 1 << 20, block_bytes: 400 }
}

fn exporter(storage: &Arc<TestStorage>, outbox: &Path, sizes: SegmentSizes) -> SegmentExporter {
    SegmentExporter::new(Arc::clone(storage) as _, outbox.join("segments"), "test", sizes)
}

fn export(
    exporter: &SegmentExporter,
    store: &MemoryStore,
    broker: &dyn EventBus,
    partition: u32,
    goal: Goal,
) -> Result<Exported, ExportError> {
    let (partition, keys) = (Partition(partition), Keys::one());
    let to = ExportTo { store, keys: &keys };
    exporter.export("t", partition, to, &BusItems { bus: broker, topic: "t".to_owned(), partition }, goal)
}

/// Everything goes.
fn all() -> Goal {
    Goal { must: Some(Offset(u64::MAX)), ..Goal::from(UnixMillis(0)) }
}

/// What the archive of a partition holds, in order. Each segment must follow the one before it.
fn archived(store: &MemoryStore, partition: u32) -> Vec<Item> {
    let (mut items, mut last) = (Vec::new(), None);
    for (path, bytes) in store.objects() {
        if !path.starts_with(&format!("t/p{partition}/")) {
            continue;
        }
        let segment = Segment::open(bytes).unwrap();
        let header = segment.header();
        assert_eq!(header.previous.map(|previous| (previous.digest, previous.last)), last, "{path}");
        last = Some((segment.digest(), header.last));
        items.extend(segment.items().map(Result::unwrap));
    }
    items
}

fn in_log(broker: &dyn EventBus, partition: u32) -> Vec<Item> {
    let fetched = broker.submit_fetch("t", Partition(partition), Offset(0), 10_000).wait().unwrap();
    fetched.into_iter().map(Item::from).collect()
}

/// The store with one object changed.
fn changed(store: &MemoryStore, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = store.lose(path).unwrap().to_vec();
    change(&mut bytes);
    store.plant(path, Bytes::from(bytes));
}
