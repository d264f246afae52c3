//! Parks events of a binding in its dead-letter topic on a bus. One call is one publication; when to ask again is the cycle's business.

use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::{BusError, EventBus, HeadContent};
use latent_core::{
    Attributes, BindingId, CoreError, DeadLetter, MediaType, NewRecord, Offset, Place, Record, Replay, StoredRecord, Ticket, TopicName,
    Uid, Verdict, limits,
};
use latent_node::delivery::SourceError;
use tokio::runtime::Handle;

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
    pub(crate) fn park(
        &self,
        topic: &TopicName,
        stored: StoredRecord,
        verdict: Verdict,
        runtime: &Handle,
    ) -> Ticket<Result<(), SourceError>> {
        let StoredRecord { partition, offset, record } = stored;
        let Record { uid, key, media_type, attributes, payload, stored_at } = record;
        let place = Place { topic: topic.clone(), partition, offset };
        let origin = Replay::read(&attributes).map(|replay| replay.first());
        let letter = DeadLetter { binding: self.binding.clone(), place, verdict, uid: Some(uid), stored_at: Some(stored_at), origin };
        self.publish(letter, key, Content { media_type, attributes, payload }, runtime)
    }

    /// Publishes the dead letter of what is no record of a topic, and is known as a whole.
    #[cfg(feature = "nats")]
    pub(crate) fn park_whole(&self, whole: Whole, verdict: Verdict, runtime: &Handle) -> Ticket<Result<(), SourceError>> {
        let Whole { place, uid, key, media_type, attributes, payload, stored_at } = whole;
        let letter = DeadLetter { binding: self.binding.clone(), place, verdict, uid, stored_at: Some(stored_at), origin: None };
        self.publish(letter, key, Content { media_type, attributes, payload }, runtime)
    }

    /// Publishes the dead letter of a record that cannot be read, with what bytes there are of it.
    pub(crate) fn park_undecodable(
        &self,
        (place, key, mut bytes): (Place, String, Bytes),
        verdict: Verdict,
        runtime: &Handle,
    ) -> Ticket<Result<(), SourceError>> {
        bytes.truncate(limits::EVENT_BYTES.max_usize());
        let letter = DeadLetter { binding: self.binding.clone(), place, verdict, uid: None, stored_at: None, origin: None };
        let content = Content { media_type: MediaType::octet_stream(), attributes: Attributes::default(), payload: bytes };
        self.publish(letter, key, content, runtime)
    }

    /// Under the letter's uid; where that belongs to the letter of another event, under one that depends on the event. The second
    /// attempt is made on a thread that may wait, since the answer comes on the log's own.
    fn publish(&self, letter: DeadLetter, key: String, content: Content, runtime: &Handle) -> Ticket<Result<(), SourceError>> {
        let record = match record(&letter, letter.letter_uid(), &key, &content) {
            Ok(record) => record,
            Err(error) => return Ticket::ready(Err(unavailable(&error))),
        };
        let (parked, completer) = Ticket::pair(Err(unavailable(&ENDED)));
        // What runs on the log's own thread must not be the last to hold the log.
        let (bus, topic, runtime) = (Arc::downgrade(&self.bus), self.topic.clone(), runtime.clone());
        self.bus.submit_record(self.topic.as_str(), record).on_ready(move |answer| match answer {
            Err(BusError::Conflict { .. }) => {
                runtime.spawn_blocking(move || {
                    let beside = bus.upgrade().map(|bus| publish_beside(bus.as_ref(), &topic, &letter, &key, &content));
                    completer.complete(beside.unwrap_or_else(|| Err(unavailable(&ENDED))));
                });
            }
            answer => completer.complete(answer.map(|_| ()).map_err(|error| unavailable(&error))),
        });
        parked
    }
}

/// A message of a raw stream, as far as it can be kept.
#[cfg(feature = "nats")]
pub(crate) struct Whole {
    pub(crate) place: Place,
    pub(crate) uid: Option<Uid>,
    pub(crate) key: String,
    pub(crate) media_type: MediaType,
    pub(crate) attributes: Attributes,
    pub(crate) payload: Bytes,
    pub(crate) stored_at: latent_core::UnixMillis,
}

const ENDED: &str = "the log ended before it answered";

fn publish_beside(bus: &dyn EventBus, topic: &TopicName, letter: &DeadLetter, key: &str, content: &Content) -> Result<(), SourceError> {
    let record = record(letter, letter.other_uid(&content.payload), key, content).map_err(|error| unavailable(&error))?;
    let answer = bus.submit_record(topic.as_str(), record).wait();
    answer.map(|_| ()).map_err(|error| unavailable(&error))
}

/// What is kept of the event itself.
struct Content {
    media_type: MediaType,
    attributes: Attributes,
    payload: Bytes,
}

fn record(letter: &DeadLetter, uid: Result<Uid, CoreError>, key: &str, content: &Content) -> Result<NewRecord, CoreError> {
    let Content { media_type, attributes, payload } = content;
    NewRecord::new(Some(uid?), key, media_type.clone(), letter.write(attributes.clone())?, payload.clone())
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
fn unavailable(error: &impl ToString) -> SourceError {
    SourceError::Unavailable { reason: error.to_string() }
}

/// What a place holds for whoever parks it.
pub(crate) enum Found {
    Record(StoredRecord),
    Damaged,
    Expired { first: Offset },
}
