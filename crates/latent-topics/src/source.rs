//! A partition of a topic on the embedded engine, as the delivery cycle sees it.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use latent_bridge::{BusError, EventBus, HeadContent as BusHead, RecordHead};
use latent_core::{Completer, DeliveredEvent, Offset, Place, StoredRecord, Ticket, UnixMillis, Verdict};
use latent_node::delivery::{Head, HeadContent, KeyId, Listing, Postponement, Settlement, Source, SourceError};
use tokio::runtime::Handle;

use crate::dead_letters::{Found, key_of};
use crate::read_ahead::ReadAhead;
use crate::{DeadLetters, DeliveryStore, UnitKey, limits};

/// See the module. Reads may touch the disk, so they run on the runtime's blocking threads, but for the last few events of what was
/// appended since the source was made: those are in memory still. What a read finds beside the event that was wanted is held, so that
/// most events begin without one.
#[derive(Clone)]
pub struct TopicSource {
    bus: Arc<dyn EventBus>,
    store: Arc<DeliveryStore>,
    key: UnitKey,
    unit: u32,
    runtime: Handle,
    dead_letters: Option<DeadLetters>,
    ahead: Arc<Mutex<ReadAhead>>,
    /// Nothing below was appended since this was made.
    fresh_from: Offset,
    /// Seeded by chance in each process, so that nobody can choose keys that share an id.
    hasher: RandomState,
}

impl TopicSource {
    /// The source of `unit`, which [`DeliveryStore::declare`] gave for `key`.
    pub fn new(bus: Arc<dyn EventBus>, store: Arc<DeliveryStore>, key: UnitKey, unit: u32, runtime: Handle) -> Self {
        // A partition that cannot be asked for its end has nothing that is known to be fresh.
        let fresh_from = bus.bounds(key.topic.as_str(), key.partition).map_or(Offset(u64::MAX), |(_, end)| end);
        let ahead = Arc::new(Mutex::new(ReadAhead::new(Arc::clone(&store.room))));
        Self { bus, store, key, unit, runtime, dead_letters: None, ahead, fresh_from, hasher: RandomState::new() }
    }

    /// Parks what never runs (again) there.
    #[must_use]
    pub fn with_dead_letters(mut self, dead_letters: DeadLetters) -> Self {
        self.dead_letters = Some(dead_letters);
        self
    }

    // No guarded section panics half-way, so a poisoned lock still guards whole records.
    fn ahead(&self) -> MutexGuard<'_, ReadAhead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, offset: Offset, attempt: u32) -> Result<DeliveredEvent, SourceError> {
        let count = self.ahead().count_for(offset);
        match self.find(offset, count)? {
            Found::Record(stored) => Ok(self.delivered(stored, attempt)),
            Found::Damaged => Err(SourceError::Undecodable),
            Found::Expired { first } => Err(SourceError::Expired { first }),
        }
    }

    /// Reads the event at `offset`, and others behind it to hold: `count` together.
    fn find(&self, offset: Offset, count: usize) -> Result<Found, SourceError> {
        let records = self.bus.submit_fetch(self.key.topic.as_str(), self.key.partition, offset, count).wait();
        let mut records = match records {
            Ok(records) => records.into_iter(),
            Err(BusError::Unreadable { .. }) => return self.why_missing(offset),
            Err(error) => return Err(unavailable(&error)),
        };
        let wanted = records.next().filter(|stored| stored.offset == offset);
        if count > 1 {
            self.ahead().keep(records);
        }
        wanted.map_or_else(|| self.why_missing(offset), |stored| Ok(Found::Record(stored)))
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
        match self.find(offset, 1) {
            Ok(Found::Record(stored)) => dead_letters.park(&self.key.topic, stored, verdict, &self.runtime),
            Ok(Found::Damaged) => match self.remains(offset) {
                Ok(remains) => dead_letters.park_undecodable(remains, verdict, &self.runtime),
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
        self.read_first_of(&heads);
        let heads = heads.iter().map(|record| head(record, &self.hasher)).collect();
        // Asked last, so that nothing that the heads leave out because it expired is above it.
        Ok(Listing { heads, first: self.first()? })
    }

    /// Whether what follows is little and was appended a moment ago.
    fn is_fresh(&self, from: Offset) -> bool {
        let end = self.bus.bounds(self.key.topic.as_str(), self.key.partition).map_or(Offset(u64::MAX), |(_, end)| end);
        from >= self.fresh_from && end.0.saturating_sub(from.0) <= limits::READ_AHEAD_EVENTS.default
    }

    /// Reads the first events of a listing while this thread is at it, unless earlier ones are still held.
    fn read_first_of(&self, heads: &[RecordHead]) {
        let Some(RecordHead { offset, content: BusHead::Readable { payload_bytes, .. } }) = heads.first() else { return };
        let count = {
            let mut ahead = self.ahead();
            if !ahead.is_empty() {
                return;
            }
            ahead.expect(*payload_bytes);
            ahead.count_for(*offset).min(heads.len())
        };
        // Whatever is wrong is found again by the reading of the event itself, and told there.
        if let Ok(records) = self.bus.submit_fetch(self.key.topic.as_str(), self.key.partition, *offset, count).wait() {
            self.ahead().keep(records);
        }
    }

    /// The first event that is kept. What lies below is written down as done with.
    fn first(&self) -> Result<Offset, BusError> {
        let (first, _) = self.bus.bounds(self.key.topic.as_str(), self.key.partition)?;
        self.store.forget_expired(self.unit, first);
        Ok(first)
    }

    /// Notes the attempt on an event that was read: then nothing is left to do when the note is written, on the log's own thread.
    fn note(&self, event: DeliveredEvent, begun: Completer<Result<DeliveredEvent, SourceError>>) {
        let noted = self.store.note_attempts(self.unit, event.offset, event.delivery, UnixMillis(0));
        noted.on_ready(move |answer| begun.complete(answer.map(|()| event)));
    }

    fn delivered(&self, stored: StoredRecord, attempt: u32) -> DeliveredEvent {
        DeliveredEvent::of_record(self.key.topic.clone(), stored, attempt)
    }
}

impl Source for TopicSource {
    fn pull(&mut self, from: Offset, heads_max: u32) -> Ticket<Result<Listing, SourceError>> {
        if self.is_fresh(from) {
            return Ticket::ready(self.list(from, heads_max).map_err(|error| unavailable(&error)));
        }
        let (ticket, completer) = Ticket::pair(Err(stopping()));
        let source = self.clone();
        self.runtime.spawn_blocking(move || {
            completer.complete(source.list(from, heads_max).map_err(|error| unavailable(&error)));
        });
        ticket
    }

    fn begin(&mut self, offset: Offset, attempt: u32) -> Ticket<Result<DeliveredEvent, SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(stopping()));
        let held = self.ahead().take(offset);
        if let Some(stored) = held {
            self.note(self.delivered(stored, attempt), completer);
            return ticket;
        }
        let source = self.clone();
        self.runtime.spawn_blocking(move || match source.read(offset, attempt) {
            Err(error) => completer.complete(Err(error)),
            Ok(event) => source.note(event, completer),
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
