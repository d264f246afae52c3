//! Reading the source: the log itself, or the node that has it.

use std::sync::Arc;

use latent_bridge::migrate::Page;
use latent_bridge::{BusError, EventBus};
use latent_core::{Attributes, MediaType, Offset, Partition, Record, StoredRecord, Uid, UnixMillis};

use crate::control::{Answer, Bounds, ControlClient, ControlError, Event, Fault, Request};

/// What is asked of a source.
pub(super) trait Source {
    /// First readable offset and the one after the last.
    fn bounds(&mut self, topic: &str, partition: Partition) -> Result<(Offset, Offset), BusError>;

    /// Records from an offset on.
    fn page(&mut self, topic: &str, partition: Partition, from: Offset) -> Result<Page, BusError>;
}

/// A log that this process has opened.
pub(super) struct BusSource(Arc<dyn EventBus>);

impl BusSource {
    pub(super) fn new(bus: Arc<dyn EventBus>) -> Self {
        Self(bus)
    }
}

impl Source for BusSource {
    fn bounds(&mut self, topic: &str, partition: Partition) -> Result<(Offset, Offset), BusError> {
        self.0.bounds(topic, partition)
    }

    fn page(&mut self, topic: &str, partition: Partition, from: Offset) -> Result<Page, BusError> {
        Page::of(self.0.submit_fetch(topic, partition, from, usize::MAX).wait())
    }
}

/// The log of a running node.
pub(super) struct NodeSource(ControlClient);

impl NodeSource {
    pub(super) fn new(node: ControlClient) -> Self {
        Self(node)
    }

    fn ask(&mut self, request: Request) -> Result<Answer, BusError> {
        self.0.call(request).map_err(|error| match error {
            ControlError::Refused(fault) => of_fault(fault),
            // A connection that ended stays so.
            error => BusError::Config { problem: format!("the node that has the source does not answer: {error}; run it again") },
        })
    }
}

fn unexpected() -> BusError {
    BusError::Config { problem: "the node answered something else than was asked".to_owned() }
}

fn of_fault(fault: Fault) -> BusError {
    if fault.permanent { BusError::Config { problem: fault.message } } else { BusError::Backend(fault.message) }
}

impl Source for NodeSource {
    fn bounds(&mut self, topic: &str, partition: Partition) -> Result<(Offset, Offset), BusError> {
        match self.ask(Request::Bounds { topic: topic.to_owned(), partition: partition.0 })? {
            Answer::Bounds(Bounds { first, next }) => Ok((Offset(first), Offset(next))),
            _ => Err(unexpected()),
        }
    }

    fn page(&mut self, topic: &str, partition: Partition, from: Offset) -> Result<Page, BusError> {
        let request = Request::Fetch { topic: topic.to_owned(), partition: partition.0, offset: from.0, max: u64::MAX };
        match self.0.call(request) {
            Ok(Answer::Events(events)) => Page::of(events.into_iter().map(|event| stored(event).map_err(unfit)).collect()),
            Ok(_) => Err(unexpected()),
            Err(ControlError::Refused(Fault { continue_at: Some(continue_at), .. })) => {
                Ok(Page::Unreadable(Offset(continue_at.saturating_sub(1))))
            }
            Err(ControlError::Refused(fault)) => Err(of_fault(fault)),
            Err(error) => Err(BusError::Config { problem: format!("the node that has the source does not answer: {error}; run it again") }),
        }
    }
}

fn unfit(problem: latent_core::CoreError) -> BusError {
    BusError::Config { problem: format!("the node answered an event that cannot be one: {problem}") }
}

fn stored(event: Event) -> Result<StoredRecord, latent_core::CoreError> {
    let record = Record {
        uid: Uid::parse(&event.uid)?,
        key: event.key,
        media_type: MediaType::parse(&event.media_type)?,
        attributes: Attributes::stored(event.attributes)?,
        payload: event.payload.0,
        stored_at: UnixMillis(event.stored_at),
    };
    Ok(StoredRecord { partition: Partition(event.partition), offset: Offset(event.offset), record })
}
