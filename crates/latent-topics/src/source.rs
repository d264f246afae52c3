//! A partition of a topic on the embedded engine, as the delivery cycle sees it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::{BusError, EventBus, HeadContent as BusHead, RecordHead};
use latent_core::{DeliveredEvent, Offset, Place, StoredRecord, Ticket, UnixMillis, Verdict};
use latent_node::delivery::{Head, HeadContent, KeyId, Listing, Postponement, Settlement, Source, SourceError};
use tokio::runtime::Handle;

use crate::dead_letters::{Found, key_of};
use crate::{DeadLetters, DeliveryStore, UnitKey};

/// See the module. Reads may touch the disk, so they run on the runtime's blocking threads.
#[derive(Clone)]
pub struct TopicSource {
    bus: Arc<dyn EventBus>,
    store: Arc<DeliveryStore>,
    key: UnitKey,
    unit: u32,
    runtime: Handle,
    dead_letters: Option<DeadLetters>,
    /// Seeded by chance in each process, so that nobody can choose keys that share an id.
    hasher: RandomState,
}

impl TopicSource {
    /// The source of `unit`, which [`DeliveryStore::declare`] gave for `key`.
    pub fn new(bus: Arc<dyn EventBus>, store: Arc<DeliveryStore>, key: UnitKey, unit: u32, runtime: Handle) -> Self {
        Self { bus, store, key, unit, runtime, dead_letters: None, hasher: RandomState::new() }
    }

    /// Parks what never runs (again) there.
    #[must_use]
    pub fn with_dead_letters(mut self, dead_letters: DeadLetters) -> Self {
        self.dead_letters = Some(dead_letters);
        self
    }

    fn read(&self, offset: Offset, attempt: u32) -> Result<DeliveredEvent, SourceError> {
        match self.find(offset)? {
            Found::Record(stored) => Ok(self.delivered(stored, attempt)),
            Found::Damaged => Err(SourceError::Undecodable),
            Found::Expired { first } => Err(SourceError::Expired { first }),
        }
    }

    fn find(&self, offset: Offset) -> Result<Found, SourceError> {
        let records = self.bus.submit_fetch(self.key.topic.as_str(), self.key.partition, offset, 1).wait();
        match records {
            Ok(mut records) => match records.pop().filter(|stored| stored.offset == offset) {
                Some(stored) => Ok(Found::Record(stored)),
                None => self.why_missing(offset),
            },
            Err(BusError::Unreadable { .. }) => self.why_missing(offset),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// A read below the first event that is kept begins with that one, whatever it is.
    fn why_missing(&self, offset: Offset) -> Result<Found, SourceError> {
        match self.first() {
            Ok(first) if offset < first => Ok(Found::Expired { first }),
            Ok(_) => Ok(Found::Damaged),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Reads the event again, which a dead letter holds whole, and hands it to the dead-letter topic.
    fn park_now(&self, offset: Offset, verdict: Verdict) -> Ticket<Result<(), SourceError>> {
        let Some(dead_letters) = &self.dead_letters else {
            let reason = "there is no dead-letter topic".to_owned();
            return Ticket::ready(Err(SourceError::Unavailable { reason }));
        };
        match self.find(offset) {
            Ok(Found::Record(stored)) => dead_letters.park(&self.key.topic, stored, verdict),
            Ok(Found::Damaged) => match self.remains(offset) {
                Ok((place, key, bytes)) => dead_letters.park_undecodable(place, &key, bytes, verdict),
                Err(error) => Ticket::ready(Err(unavailable(&error))),
            },
            Ok(Found::Expired { first }) => Ticket::ready(Err(SourceError::Expired { first })),
            Err(error) => Ticket::ready(Err(error)),
        }
    }

    fn remains(&self, offset: Offset) -> Result<(Place, String, Bytes), BusError> {
        let UnitKey { topic, partition, .. } = &self.key;
        let place = Place { topic: topic.clone(), partition: *partition, offset };
        let key = key_of(self.bus.as_ref(), &place)?;
        let bytes = self.bus.submit_remains(topic.as_str(), *partition, offset).wait()?;
        Ok((place, key, bytes))
    }

    fn list(&self, from: Offset, heads_max: u32) -> Result<Listing, BusError> {
        let heads = self.bus.submit_heads(self.key.topic.as_str(), self.key.partition, from, heads_max as usize).wait()?;
        let heads = heads.iter().map(|record| head(record, &self.hasher)).collect();
        // Asked last, so that nothing that the heads leave out because it expired is above it.
        Ok(Listing { heads, first: self.first()? })
    }

    /// The first event that is kept. What lies below is written down as done with.
    fn first(&self) -> Result<Offset, BusError> {
        let (first, _) = self.bus.bounds(self.key.topic.as_str(), self.key.partition)?;
        self.store.forget_expired(self.unit, first);
        Ok(first)
    }

    fn delivered(&self, stored: StoredRecord, attempt: u32) -> DeliveredEvent {
        let StoredRecord { partition, offset, record } = stored;
        DeliveredEvent {
            topic: self.key.topic.clone(),
            partition,
            offset,
            uid: Some(record.uid),
            key: record.key,
            media_type: record.media_type,
            attributes: record.attributes,
            payload: record.payload,
            delivery: attempt,
            stored_at: record.stored_at,
        }
    }
}

impl Source for TopicSource {
    fn pull(&mut self, from: Offset, heads_max: u32) -> Ticket<Result<Listing, SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(stopping()));
        let source = self.clone();
        self.runtime.spawn_blocking(move || {
            completer.complete(source.list(from, heads_max).map_err(|error| unavailable(&error)));
        });
        ticket
    }

    fn begin(&mut self, offset: Offset, attempt: u32) -> Ticket<Result<DeliveredEvent, SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(stopping()));
        let source = self.clone();
        // The event first: then nothing is left to do when the note is written, on the log's own thread.
        self.runtime.spawn_blocking(move || match source.read(offset, attempt) {
            Err(error) => completer.complete(Err(error)),
            Ok(event) => {
                let noted = source.store.note_attempts(source.unit, offset, attempt, UnixMillis(0));
                noted.on_ready(move |answer| completer.complete(answer.map(|()| event)));
            }
        });
        ticket
    }

    fn postpone(&mut self, offset: Offset, postponement: Postponement) -> Ticket<Result<(), SourceError>> {
        self.store.note_attempts(self.unit, offset, postponement.attempts, postponement.not_before)
    }

    fn condemn(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>> {
        self.store.note_verdict(self.unit, offset, verdict.clone())
    }

    fn park(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(stopping()));
        let (source, verdict) = (self.clone(), verdict.clone());
        self.runtime.spawn_blocking(move || {
            source.park_now(offset, verdict).on_ready(move |answer| completer.complete(answer));
        });
        ticket
    }

    fn settle(&mut self, offset: Offset, settlement: Settlement) -> Ticket<Result<(), SourceError>> {
        match settlement {
            // Both mean that the event never runs again; what is to be parked has been.
            Settlement::Acknowledged | Settlement::Terminated(_) => self.store.settle(self.unit, offset),
        }
    }
}

fn head(record: &RecordHead, hasher: &RandomState) -> Head {
    let content = match &record.content {
        BusHead::Readable { key, .. } => HeadContent::Event(KeyId(hasher.hash_one(key))),
        BusHead::Damaged => HeadContent::Undecodable,
    };
    Head { offset: record.offset, content }
}

fn stopping() -> SourceError {
    SourceError::Unavailable { reason: "the node is stopping".to_owned() }
}

fn unavailable(error: &BusError) -> SourceError {
    SourceError::Unavailable { reason: error.to_string() }
}
