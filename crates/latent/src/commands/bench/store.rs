//! A log of ours with events in it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use latent_bridge::{BridgeManifest, EmbeddedBroker, EventBus as _, MANIFEST_VERSION, PublishResult, RetentionSpec, TopicSpec};
use latent_core::NewRecord;

use super::event::{self, PayloadSize};
use super::log_failed;
use super::measure::interrupted;
use crate::error::CliError;
use crate::stop::StopSignal;

/// The one topic.
pub(super) const TOPIC: &str = "events";
/// Events that are stored together while a log is filled.
const FILL_EVENTS: u64 = 1_024;
/// Places that are remembered while a log is filled.
const PLACES_MAX: u64 = 4_096;

/// Where an event lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) partition: u32,
    pub(super) offset: u64,
}

/// See the module.
pub(super) struct Store {
    pub(super) broker: Arc<EmbeddedBroker>,
    pub(super) partitions: u32,
    pub(super) size: PayloadSize,
    /// Places of some events, spread evenly over those it was filled with.
    pub(super) places: Vec<Place>,
    folder: PathBuf,
    numbers: Numbers,
}

/// A log of ours whose directory is free.
pub(super) struct ClosedStore {
    partitions: u32,
    size: PayloadSize,
    places: Vec<Place>,
    folder: PathBuf,
    numbers: Numbers,
}

/// Gives each event a number of its own.
#[derive(Debug, Default)]
struct Numbers {
    next: u64,
}

impl Numbers {
    fn take(&mut self, count: u64) -> Range<u64> {
        let first = self.next;
        self.next += count;
        first..self.next
    }
}

impl Store {
    /// An empty one in `folder`.
    pub(super) fn create(folder: &Path, partitions: u32, size: PayloadSize) -> Result<Self, CliError> {
        let topic = TopicSpec { name: TOPIC.to_owned(), partitions, retention: RetentionSpec::default(), schema_ref: None };
        let manifest =
            BridgeManifest { manifest_version: MANIFEST_VERSION, name: "measured".to_owned(), replication_factor: 1, topics: vec![topic] };
        let broker = EmbeddedBroker::provision(folder, &manifest).map_err(log_failed("making a log to measure"))?;
        let (folder, numbers) = (folder.to_owned(), Numbers::default());
        Ok(Self { broker: Arc::new(broker), partitions, size, places: Vec::new(), folder, numbers })
    }

    /// The log, for a thread of its own. Nobody may have it when the store is closed.
    pub(super) fn shared(&self) -> Arc<EmbeddedBroker> {
        Arc::clone(&self.broker)
    }

    /// Stores `count` events in batches.
    pub(super) fn fill(mut self, count: u64, stop: &StopSignal) -> Result<Self, CliError> {
        let stride = count.div_ceil(PLACES_MAX).max(1);
        let mut left = count;
        while left > 0 {
            interrupted(stop)?;
            let numbers = self.take(left.min(FILL_EVENTS));
            left -= numbers.end - numbers.start;
            let records = numbers.clone().map(|number| event::record(self.size, number)).collect::<Result<Vec<_>, _>>()?;
            for (number, ack) in numbers.zip(self.broker.publish_batch(TOPIC, &records)) {
                let ack = ack.map_err(log_failed("filling a log"))?;
                if number.is_multiple_of(stride) {
                    self.places.push(Place { number, partition: ack.partition, offset: ack.offset });
                }
            }
        }
        Ok(self)
    }

    /// Numbers of events that were not used yet.
    pub(super) fn take(&mut self, count: u64) -> Range<u64> {
        self.numbers.take(count)
    }

    /// Gives the directory free.
    pub(super) fn close(self) -> ClosedStore {
        let Self { broker, partitions, size, places, folder, numbers } = self;
        drop(broker);
        ClosedStore { partitions, size, places, folder, numbers }
    }
}

impl ClosedStore {
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// As [`Store::take`].
    pub(super) fn take(&mut self, count: u64) -> Range<u64> {
        self.numbers.take(count)
    }

    /// Opens it again.
    pub(super) fn open(self) -> Result<Store, CliError> {
        let Self { partitions, size, places, folder, numbers } = self;
        let broker = EmbeddedBroker::open(&folder).map_err(log_failed("opening a measured log again"))?;
        Ok(Store { broker: Arc::new(broker), partitions, size, places, folder, numbers })
    }
}

/// Publishes a batch of which every event must be stored.
pub(super) fn publish_all(broker: &EmbeddedBroker, records: &[NewRecord]) -> Result<(), CliError> {
    let results = broker.publish_batch(TOPIC, records);
    results.into_iter().collect::<Result<Vec<_>, _>>().map(drop).map_err(log_failed("publishing a batch"))
}

/// An event that must be stored, and not have been before.
pub(super) fn stored_anew(result: PublishResult) -> Result<(), CliError> {
    let ack = result.map_err(log_failed("publishing"))?;
    if !ack.duplicate {
        return Ok(());
    }
    Err(CliError::Bench { doing: "publishing".to_owned(), reason: format!("the uid {} was used before", ack.uid) })
}
