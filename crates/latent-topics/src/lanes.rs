//! Messages of lanes as events: records of topics, and messages of raw streams as they are; and where those go that never run (again).

use std::sync::Arc;

use latent_bridge::nats_bus::read_record;
use latent_core::{Attributes, DeliveredEvent, MediaType, Partition, Place, Record, StoredRecord, Ticket, TopicName, Uid, Verdict};
use latent_nats::lanes::{LaneBinding, LaneInput, LaneMessage, LaneTopics, Unplaced};
use latent_node::delivery::SourceError;

use crate::dead_letters::Whole;
use crate::streams::{headers, key_fits};
use crate::{DeadLetters, StreamTopics};

/// What the broker adds to a message for whoever pulls it, which is nobody's attribute.
const PIN: &str = "Nats-Pin-Id";

impl LaneTopics for StreamTopics {
    fn event(&self, message: LaneMessage<'_>) -> Result<DeliveredEvent, String> {
        match &message.binding.draft().input {
            LaneInput::Event { topic, partition } => {
                let record = read_record(message.headers, message.payload)?;
                let stored = StoredRecord { partition: *partition, offset: message.offset, record };
                Ok(DeliveredEvent::of_record(topic.clone(), stored, message.deliveries))
            }
            LaneInput::Raw => raw_event(message),
        }
    }

    fn park(&self, binding: &LaneBinding, letter: Unplaced, verdict: Verdict) -> Ticket<Result<(), SourceError>> {
        let draft = binding.draft();
        let Some(dead_letter) = &draft.dead_letter else {
            return Ticket::ready(Err(unavailable("the binding has no dead-letter topic")));
        };
        let place = |offset| match &draft.input {
            LaneInput::Event { topic, partition } => Ok(Place { topic: topic.clone(), partition: *partition, offset }),
            LaneInput::Raw => TopicName::parse(draft.stream.as_str()).map(|topic| Place { topic, partition: Partition(0), offset }),
        };
        let letters = DeadLetters::new(Arc::clone(&self.bus), draft.trigger.clone(), dead_letter.clone());
        match letter {
            Unplaced::Remains { offset, bytes } => match place(offset) {
                Ok(place) => letters.park_undecodable((place, String::new(), bytes), verdict, &self.runtime),
                Err(error) => Ticket::ready(Err(unavailable(&error))),
            },
            Unplaced::Event(event) => match place(event.offset) {
                Ok(place) => park_event((&letters, draft.input == LaneInput::Raw), event, place, verdict, self),
                Err(error) => Ticket::ready(Err(unavailable(&error))),
            },
        }
    }
}

fn park_event(
    (letters, is_raw): (&DeadLetters, bool),
    event: DeliveredEvent,
    place: Place,
    verdict: Verdict,
    topics: &StreamTopics,
) -> Ticket<Result<(), SourceError>> {
    let DeliveredEvent { partition, offset, uid, key, media_type, mut attributes, payload, stored_at, .. } = event;
    if is_raw {
        // What breaks a rule of attributes stays with the stream alone.
        attributes = attributes.fitting();
    }
    match uid {
        Some(uid) if !is_raw => {
            let record = Record { uid, key, media_type, attributes, payload, stored_at };
            letters.park(&place.topic, StoredRecord { partition, offset, record }, verdict, &topics.runtime)
        }
        uid => letters.park_whole(Whole { place, uid, key, media_type, attributes, payload, stored_at }, verdict, &topics.runtime),
    }
}

/// A message of a raw stream as an event: its subject as the topic, its headers as attributes but for those that are something else.
fn raw_event(message: LaneMessage<'_>) -> Result<DeliveredEvent, String> {
    let draft = message.binding.draft();
    let topic = TopicName::parse(draft.filter.as_str()).map_err(|error| error.to_string())?;
    let (mut key, mut uid, mut media_type) = (String::new(), None, None);
    let mut attributes = Vec::new();
    for (name, value) in headers(message.headers) {
        match name {
            name if name.eq_ignore_ascii_case(PIN) => {}
            name if name.eq_ignore_ascii_case("Content-Type") && media_type.is_none() => {
                media_type = Some(MediaType::parse(value).map_err(|error| error.to_string())?);
            }
            name if name.eq_ignore_ascii_case("Nats-Msg-Id") && uid.is_none() => {
                uid = Some(Uid::parse(value).map_err(|error| error.to_string())?);
            }
            name if name.eq_ignore_ascii_case("Lsf-Event-Key") && key.is_empty() && key_fits(value) => value.clone_into(&mut key),
            name => attributes.push((name.to_owned(), value.to_owned())),
        }
    }
    Ok(DeliveredEvent {
        topic,
        partition: Partition(0),
        offset: message.offset,
        uid,
        key,
        media_type: media_type.unwrap_or_else(MediaType::octet_stream),
        attributes: Attributes::delivered(attributes).map_err(|error| error.to_string())?,
        payload: message.payload.clone(),
        delivery: message.deliveries,
        stored_at: message.stored_at,
    })
}

fn unavailable(error: &(impl ToString + ?Sized)) -> SourceError {
    SourceError::Unavailable { reason: error.to_string() }
}
