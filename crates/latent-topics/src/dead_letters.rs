//! Parks events of a binding in its dead-letter topic on a bus. One call is one publication; when to ask again is the cycle's business.

use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::{BusError, EventBus, HeadContent};
use latent_core::{
    Attributes, BindingId, CoreError, DeadLetter, MediaType, NewRecord, Offset, Place, Record, Replay, StoredRecord, Ticket, TopicName,
    Verdict, limits,
};
use latent_node::delivery::SourceError;

/// See the module.
#[derive(Clone)]
pub struct DeadLetters {
    bus: Arc<dyn EventBus>,
    binding: BindingId,
    topic: TopicName,
}

impl DeadLetters {
    /// The dead letters of `binding`, kept in `topic` of `bus`.
    pub fn new(bus: Arc<dyn EventBus>, binding: BindingId, topic: TopicName) -> Self {
        Self { bus, binding, topic }
    }

    /// Publishes the dead letter of a record. A duplicate is a success: it was parked before.
    pub(crate) fn park(&self, topic: &TopicName, stored: StoredRecord, verdict: Verdict) -> Ticket<Result<(), SourceError>> {
        let StoredRecord { partition, offset, record } = stored;
        let Record { uid, key, media_type, attributes, payload, stored_at } = record;
        let place = Place { topic: topic.clone(), partition, offset };
        let origin = Replay::read(&attributes).map(|replay| replay.first());
        let letter = DeadLetter { binding: self.binding.clone(), place, verdict, uid: Some(uid), stored_at: Some(stored_at), origin };
        self.publish(&letter, &key, Content { media_type, attributes, payload })
    }

    /// Publishes the dead letter of a record that cannot be read, with what bytes there are of it.
    pub(crate) fn park_undecodable(&self, place: Place, key: &str, mut bytes: Bytes, verdict: Verdict) -> Ticket<Result<(), SourceError>> {
        bytes.truncate(limits::EVENT_BYTES.max_usize());
        let letter = DeadLetter { binding: self.binding.clone(), place, verdict, uid: None, stored_at: None, origin: None };
        let content = Content { media_type: MediaType::octet_stream(), attributes: Attributes::default(), payload: bytes };
        self.publish(&letter, key, content)
    }

    fn publish(&self, letter: &DeadLetter, key: &str, content: Content) -> Ticket<Result<(), SourceError>> {
        match record(letter, key, content) {
            Ok(record) => {
                let published = self.bus.submit_record(self.topic.as_str(), record);
                let ended = || SourceError::Unavailable { reason: "the log ended before it answered".to_owned() };
                published.map_or(Err(ended()), |result| result.map(|_| ()).map_err(|error| unavailable(&error)))
            }
            Err(error) => Ticket::ready(Err(SourceError::Unavailable { reason: error.to_string() })),
        }
    }
}

/// What is kept of the event itself.
struct Content {
    media_type: MediaType,
    attributes: Attributes,
    payload: Bytes,
}

fn record(letter: &DeadLetter, key: &str, content: Content) -> Result<NewRecord, CoreError> {
    let Content { media_type, attributes, payload } = content;
    NewRecord::new(Some(letter.letter_uid()?), key, media_type, letter.write(attributes)?, payload)
}

/// The key of a record whose payload cannot be read; empty when that cannot be read either.
pub(crate) fn key_of(bus: &dyn EventBus, place: &Place) -> Result<String, BusError> {
    let heads = bus.submit_heads(place.topic.as_str(), place.partition, place.offset, 1).wait()?;
    let head = heads.into_iter().find(|head| head.offset == place.offset);
    Ok(match head.map(|head| head.content) {
        Some(HeadContent::Readable { key, .. }) => key,
        Some(HeadContent::Damaged) | None => String::new(),
    })
}

/// Every refusal is kept and tried again: what has not been parked is not settled.
fn unavailable(error: &BusError) -> SourceError {
    SourceError::Unavailable { reason: error.to_string() }
}

/// What a place holds for whoever parks it.
pub(crate) enum Found {
    Record(StoredRecord),
    Damaged,
    Expired { first: Offset },
}
