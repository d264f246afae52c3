//! Messages of a broker as events of topics, and what becomes of those that never run (again).

use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::EventBus;
use latent_bridge::nats_bus::read_record;
use latent_capabilities::Origin;
use latent_core::{Attributes, DeliveredEvent, MediaType, Offset, Partition, Place, Record, StoredRecord, Ticket, TopicName, Uid, Verdict};
use latent_nats::triggers::{BindingInput, Delivered, Topics};
use latent_node::delivery::{SourceError, origin_of};
use tokio::runtime::Handle;

use crate::DeadLetters;
use crate::dead_letters::Whole;

/// Reads records of topics out of their streams, and parks in topics of a bus. Cheap to clone.
#[derive(Clone)]
pub struct StreamTopics {
    pub(crate) bus: Arc<dyn EventBus>,
    pub(crate) runtime: Handle,
}

impl StreamTopics {
    /// With dead-letter topics on `bus`.
    pub fn new(bus: Arc<dyn EventBus>, runtime: Handle) -> Self {
        Self { bus, runtime }
    }
}

impl Topics for StreamTopics {
    fn event(&self, message: Delivered<'_>) -> Result<(DeliveredEvent, Origin), String> {
        let BindingInput::Event { topic, partition } = message.binding.input() else {
            return Err("the binding reads no topic".to_owned());
        };
        let stored = StoredRecord { partition: *partition, offset: Offset(message.handed.sequence), record: record(&message)? };
        let delivery = u32::try_from(message.handed.delivery).unwrap_or(u32::MAX);
        let event = DeliveredEvent::of_record(topic.clone(), stored, delivery);
        let origin = origin_of(message.binding.trigger(), &event);
        Ok((event, origin))
    }

    fn park(&self, message: Delivered<'_>, verdict: Verdict) -> Ticket<Result<(), String>> {
        let Some(dead_letters) = message.binding.dead_letter() else {
            return Ticket::ready(Err("the binding has no dead-letter topic".to_owned()));
        };
        let letters = DeadLetters::new(Arc::clone(&self.bus), message.binding.trigger().clone(), dead_letters.clone());
        let offset = Offset(message.handed.sequence);
        let parked = match message.binding.input() {
            BindingInput::Event { topic, partition } => match record(&message) {
                Ok(record) => letters.park(topic, StoredRecord { partition: *partition, offset, record }, verdict, &self.runtime),
                Err(_) => {
                    let place = Place { topic: topic.clone(), partition: *partition, offset };
                    letters.park_undecodable((place, String::new(), body(&message)), verdict, &self.runtime)
                }
            },
            BindingInput::Values => match TopicName::parse(message.binding.stream().as_str()) {
                Ok(topic) => letters.park_whole(raw(&message, Place { topic, partition: Partition(0), offset }), verdict, &self.runtime),
                Err(error) => Ticket::ready(Err(SourceError::Unavailable { reason: error.to_string() })),
            },
        };
        let (ticket, completer) = Ticket::pair(Err("the log ended before it answered".to_owned()));
        parked.on_ready(move |answer| completer.complete(answer.map_err(|error| error.to_string())));
        ticket
    }
}

fn body(message: &Delivered<'_>) -> Bytes {
    Bytes::copy_from_slice(message.payload)
}

fn record(message: &Delivered<'_>) -> Result<Record, String> {
    read_record(message.headers, &body(message))
}

/// A message of a raw stream as it is kept: its payload, and of its headers what an event can have.
fn raw(message: &Delivered<'_>, place: Place) -> Whole {
    let (mut key, mut uid, mut media_type) = (String::new(), None, None);
    let mut attributes = Attributes::default();
    for (name, value) in headers(message.headers) {
        match name {
            name if name.eq_ignore_ascii_case("Content-Type") => media_type = media_type.or(MediaType::parse(value).ok()),
            name if name.eq_ignore_ascii_case("Nats-Msg-Id") => uid = uid.or(Uid::parse(value).ok()),
            name if name.eq_ignore_ascii_case("Lsf-Event-Key") && key.is_empty() && key_fits(value) => value.clone_into(&mut key),
            // What breaks a rule of keys or attributes, or their sum, stays with the stream alone.
            name => {
                let more = attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
                let more = more.chain([(name.to_owned(), value.to_owned())]).collect();
                attributes = Attributes::parse(more).unwrap_or(attributes);
            }
        }
    }
    let media_type = media_type.unwrap_or_else(MediaType::octet_stream);
    Whole { place, uid, key, media_type, attributes, payload: body(message), stored_at: message.stored_at }
}

pub(crate) fn key_fits(key: &str) -> bool {
    key.len() <= latent_core::limits::KEY_BYTES.max_usize()
}

/// The headers of a block that are text, one for each line.
pub(crate) fn headers(block: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let lines = block.split(|byte| *byte == b'\n').skip(1).filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| line.trim_end_matches('\r').split_once(':')).map(|(name, value)| (name, value.trim()))
}
