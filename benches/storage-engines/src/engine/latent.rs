//! Our own engine, through its public interface alone.

use std::path::Path;

use latent_bridge::{BridgeManifest, EmbeddedBroker, EventBus, MANIFEST_VERSION, RetentionSpec, TopicSpec};
use latent_core::{NewRecord, Offset, Partition};

use super::Engine;
use crate::event::{Batch, Event, PARTITIONS};
use crate::failure::Failure;

const TOPIC: &str = "events";
/// Records of one fetch, the engine's own default.
const FETCH_RECORDS: usize = 4_096;

/// See the module.
pub(crate) struct Latent(EmbeddedBroker);

impl Latent {
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        let topic = TopicSpec { name: TOPIC.to_owned(), partitions: PARTITIONS, retention: RetentionSpec::default(), schema_ref: None };
        let manifest =
            BridgeManifest { manifest_version: MANIFEST_VERSION, name: "measured".to_owned(), replication_factor: 1, topics: vec![topic] };
        let folder = folder.join("bus");
        let is_new = !folder.exists();
        Ok(Self(if is_new { EmbeddedBroker::provision(&folder, &manifest)? } else { EmbeddedBroker::open(&folder)? }))
    }

    fn publish_records(&self, records: &[NewRecord]) -> Result<(), Failure> {
        for ack in self.0.publish_batch(TOPIC, records) {
            ack?;
        }
        Ok(())
    }
}

impl Engine for Latent {
    fn commit(&self, events: &[&Event]) -> Result<(), Failure> {
        self.publish_records(&events.iter().map(|event| event.record.clone()).collect::<Vec<_>>())
    }

    fn publish(&self, event: &Event) -> Result<(), Failure> {
        self.0.publish_record(TOPIC, &event.record)?;
        Ok(())
    }

    fn publish_batch(&self, batch: &Batch) -> Result<(), Failure> {
        self.publish_records(&batch.records)
    }

    fn read(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        for partition in 0..PARTITIONS {
            let mut offset = 0;
            loop {
                let records = self.0.submit_fetch(TOPIC, Partition(partition), Offset(offset), FETCH_RECORDS).wait()?;
                let Some(last) = records.last() else { break };
                offset = last.offset.0 + 1;
                records.iter().try_for_each(|stored| visit(&stored.record.payload))?;
            }
        }
        Ok(())
    }

    fn read_decoded(&self) -> Result<u64, Failure> {
        let mut count = 0;
        for partition in 0..PARTITIONS {
            let mut offset = 0;
            loop {
                let events = self.0.fetch(TOPIC, partition, offset, FETCH_RECORDS)?;
                let Some(last) = events.last() else { break };
                offset = last.offset + 1;
                count += events.len() as u64;
                std::hint::black_box(&events);
            }
        }
        Ok(count)
    }

    fn find(&self, event: &Event) -> Result<bool, Failure> {
        Ok(self.0.find_event_by_uid(TOPIC, event.record.key(), &event.uid)?.is_some())
    }
}
