//! The bus under measurement.

use std::time::Instant;

use latent_bridge::nats_bus::NatsOptions;
use latent_bridge::{BridgeManifest, EventBus as _, MANIFEST_VERSION, NatsBus, RetentionSpec, TopicSpec};
use latent_core::{NewRecord, Offset, Partition};

use super::super::event::{self, PayloadSize};
use super::super::figure::Slice;
use super::super::log_failed;
use crate::error::CliError;

/// The key of every event: one partition is measured.
const KEY: &str = "acme/service";
/// Events that are stored together while a stream is filled.
const FILL_EVENTS: u64 = 4_096;

/// What the loops by hand send: the same bytes as ours.
pub(super) struct Message {
    pub(super) uid: String,
    pub(super) key: String,
    pub(super) body: Vec<u8>,
}

/// A topic of one partition.
pub(super) struct Topic {
    options: NatsOptions,
    manifest: BridgeManifest,
    pub(super) name: &'static str,
    pub(super) bus: NatsBus,
    next: u64,
}

impl Topic {
    /// Makes its stream.
    pub(super) fn create(options: &NatsOptions, name: &'static str) -> Result<Self, CliError> {
        let retention = RetentionSpec { hot_hours: 24, dedup_hours: Some(1), ..RetentionSpec::default() };
        let topics = vec![TopicSpec { name: name.to_owned(), partitions: 1, retention, schema_ref: None }];
        let manifest = BridgeManifest { manifest_version: MANIFEST_VERSION, name: "bench".to_owned(), replication_factor: 1, topics };
        let bus = NatsBus::provision_with(options.clone(), &manifest).map_err(log_failed("making a stream"))?;
        Ok(Self { options: options.clone(), manifest, name, bus, next: 0 })
    }

    /// Stores so many events.
    pub(super) fn fill(&mut self, count: u64) -> Result<(), CliError> {
        let mut left = count;
        while left > 0 {
            let together = left.min(FILL_EVENTS);
            let records = self.records(together)?;
            for result in self.bus.publish_batch(self.name, &records) {
                result.map_err(log_failed("filling a stream"))?;
            }
            left -= together;
        }
        Ok(())
    }

    /// The next events.
    pub(super) fn records(&mut self, count: u64) -> Result<Vec<NewRecord>, CliError> {
        let first = self.next;
        self.next += count;
        (first..self.next).map(|number| event::record_under(KEY, PayloadSize::Small, number)).collect()
    }

    /// Batches, each handed over and waited for.
    pub(super) fn batches(&self, batches: &[Vec<NewRecord>]) -> Result<Slice, CliError> {
        let (started, mut units) = (Instant::now(), 0);
        for batch in batches {
            for result in self.bus.publish_batch(self.name, batch) {
                let ack = result.map_err(log_failed("publishing a batch"))?;
                units += u64::from(!ack.duplicate);
            }
        }
        Ok(Slice { units, elapsed: started.elapsed(), latencies: Vec::new() })
    }

    /// Reads everything, page after page.
    pub(super) fn replay(&self) -> Result<Slice, CliError> {
        let (started, mut next, mut units) = (Instant::now(), Offset(0), 0);
        loop {
            let page = self.bus.submit_fetch(self.name, Partition(0), next, usize::MAX).wait().map_err(log_failed("reading a stream"))?;
            let Some(last) = page.last() else { break };
            units += page.len() as u64;
            next = Offset(last.offset.0 + 1);
        }
        Ok(Slice { units, elapsed: started.elapsed(), latencies: Vec::new() })
    }

    /// Pages of `count` events from each of these offsets on.
    pub(super) fn pages(&self, offsets: &[u64], count: usize) -> Result<Slice, CliError> {
        let (started, mut units) = (Instant::now(), 0);
        for offset in offsets {
            let page = self.bus.submit_fetch(self.name, Partition(0), Offset(*offset), count).wait();
            units += page.map_err(log_failed("reading a page"))?.len() as u64;
        }
        Ok(Slice { units, elapsed: started.elapsed(), latencies: Vec::new() })
    }

    /// Looks events up by the uids of their numbers.
    pub(super) fn finds(&self, numbers: &[u64]) -> Result<Slice, CliError> {
        let started = Instant::now();
        let (mut now, mut latencies) = (started, Vec::with_capacity(numbers.len()));
        for number in numbers {
            let found = self.bus.find_event_by_uid(self.name, KEY, &event::uid(*number)).map_err(log_failed("looking a uid up"))?;
            if found.is_none() {
                return Err(CliError::Bench { doing: "looking a uid up".to_owned(), reason: format!("event {number} is not found") });
            }
            let done = Instant::now();
            latencies.push(done.duration_since(now));
            now = done;
        }
        Ok(Slice { units: latencies.len() as u64, elapsed: started.elapsed(), latencies })
    }

    /// The last event, looked up by a bus that has seen nothing yet. Opening it is not timed.
    pub(super) fn find_cold(&self, count: u64) -> Result<Slice, CliError> {
        let fresh = NatsBus::open_with(self.options.clone(), &self.manifest).map_err(log_failed("opening a bus"))?;
        let started = Instant::now();
        let found = fresh.find_event_by_uid(self.name, KEY, &event::uid(count - 1)).map_err(log_failed("looking a uid up"))?;
        let elapsed = started.elapsed();
        let units = if found.is_some() { count } else { 0 };
        Ok(Slice { units, elapsed, latencies: Vec::new() })
    }
}

/// What a publisher by hand makes of records: the same bytes on the wire.
pub(super) fn by_hand(records: &[NewRecord], first: u64) -> Vec<Message> {
    let message = |(number, record): (u64, &NewRecord)| {
        let value = String::from_utf8_lossy(record.payload());
        let body = format!("{{\"partition\":0,\"offset\":0,\"key\":\"{}\",\"stored_at\":1790000000000,\"value\":{value}}}", record.key());
        Message { uid: format!("hand-{:031x}", first + number), key: record.key().to_owned(), body: body.into_bytes() }
    };
    (0..).zip(records).map(message).collect()
}
