//! What a topic holds, with the checks that every read of it owes.

use std::collections::BTreeSet;

use latent_bridge::EventBus;
use latent_core::{Offset, Partition, StoredRecord};

use super::{Engine, Numbering};

/// Every record of a topic, partition after partition. No uid is there twice.
pub(crate) fn stored<E: Engine>(engine: &E, topic: &str) -> Vec<StoredRecord> {
    let partitions = engine.bus().partitions(topic).unwrap();
    let records: Vec<_> = (0..partitions).flat_map(|partition| stored_in(engine, topic, Partition(partition))).collect();
    let uids: BTreeSet<_> = records.iter().map(|stored| stored.record.uid.as_str()).collect();
    assert_eq!(uids.len(), records.len(), "a uid is stored twice in {topic}");
    records
}

/// Every record of a partition.
pub(crate) fn stored_in<E: Engine>(engine: &E, topic: &str, partition: Partition) -> Vec<StoredRecord> {
    let (first, end) = engine.bus().bounds(topic, partition).unwrap();
    let mut records: Vec<StoredRecord> = Vec::new();
    loop {
        let next = records.last().map_or(first, |last| Offset(last.offset.0 + 1));
        let page = page(engine.bus(), topic, partition, next, 1_000);
        if page.is_empty() {
            break;
        }
        records.extend(page);
    }
    assert!(records.iter().all(|stored| stored.partition == partition && (first..end).contains(&stored.offset)));
    assert_in_order::<E>(first, records.iter().map(|stored| stored.offset));
    records
}

/// One page from the engine.
pub(crate) fn page(bus: &dyn EventBus, topic: &str, partition: Partition, offset: Offset, max: usize) -> Vec<StoredRecord> {
    bus.submit_fetch(topic, partition, offset, max).wait().unwrap()
}

/// Offsets ascend from `from` on, without gaps where the engine's numbering has none.
pub(crate) fn assert_in_order<E: Engine>(from: Offset, offsets: impl IntoIterator<Item = Offset>) {
    let mut next = from;
    for offset in offsets {
        match E::NUMBERING {
            Numbering::Dense => assert_eq!(offset, next),
            Numbering::OfSharedStream => assert!(offset >= next.max(Offset(1)), "{offset} where {next} or later was due"),
        }
        next = Offset(offset.0 + 1);
    }
}
