//! Many records in one call, for any engine: handed over ahead of the answers, within bounds, and never past a failure that may pass.
//! Knows no engine.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use latent_core::{NewRecord, Ticket};

use super::{EventBus, PublishResult};
use crate::{BusError, limits};

/// See [`EventBus::publish_batch`].
pub(super) fn publish<B: EventBus + ?Sized>(bus: &B, topic: &str, records: &[NewRecord]) -> Vec<PublishResult> {
    publish_with(records, |result| may_pass(result).cloned(), |_, record| bus.submit_record(topic, record))
}

/// Hands records over by `submit`, which is given the number of each, until one ends as `stops` says.
pub(crate) fn publish_with(
    records: &[NewRecord],
    stops: fn(&PublishResult) -> Option<BusError>,
    submit: impl Fn(u64, NewRecord) -> Ticket<PublishResult>,
) -> Vec<PublishResult> {
    let mut batch = Batch { results: Vec::with_capacity(records.len()), in_flight: VecDeque::new(), bytes: 0, stopped: None, stops };
    for (number, record) in (0..).zip(records) {
        let bytes = record.payload().len();
        while !batch.has_room(bytes) && batch.wait_for_one() {}
        if batch.stopped.is_some() {
            break;
        }
        batch.in_flight.push_back((handed_over(submit(number, record.clone())), bytes));
        batch.bytes += bytes;
        batch.stop_if_refused_at_the_door();
    }
    while batch.wait_for_one() {}
    let Batch { mut results, stopped, .. } = batch;
    let behind = stopped.as_ref().map_or_else(|| BusError::Backend("the bus gave no answer to this event".to_owned()), behind);
    results.resize(records.len(), Err(behind));
    results
}

/// What becomes of the records behind one that failed for now: a later one of its key must not overtake it.
pub(crate) fn behind(failed: &BusError) -> BusError {
    match failed {
        BusError::Busy { limit } => BusError::Busy { limit },
        _ => BusError::NotSent { reason: "an event before it was not stored, and it must not overtake that one".to_owned() },
    }
}

/// A failure of the log and not of the event: what comes behind must wait. A damaged record that has the event's uid is that event's
/// trouble and does not pass by waiting.
pub(crate) fn may_pass(result: &PublishResult) -> Option<&BusError> {
    result.as_ref().err().filter(|error| !error.is_permanent() && !matches!(error, BusError::Unreadable { .. }))
}

struct Batch {
    results: Vec<PublishResult>,
    in_flight: VecDeque<(Answer, usize)>,
    bytes: usize,
    /// The first failure that stops it.
    stopped: Option<BusError>,
    /// Which do, and what is said of the records that are not handed over because of it.
    stops: fn(&PublishResult) -> Option<BusError>,
}

enum Answer {
    There(PublishResult),
    Awaited(Ticket<PublishResult>),
}

/// A refusal at the door is there at once; nobody needs to be woken for it.
fn handed_over(mut ticket: Ticket<PublishResult>) -> Answer {
    match Pin::new(&mut ticket).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Answer::There(result),
        Poll::Pending => Answer::Awaited(ticket),
    }
}

impl Batch {
    fn has_room(&self, bytes: usize) -> bool {
        self.in_flight.len() < limits::BATCH_IN_FLIGHT.default_usize()
            && self.bytes + bytes <= limits::BATCH_IN_FLIGHT_BYTES.default_usize()
    }

    /// Waits for the oldest answer. False when none is awaited.
    fn wait_for_one(&mut self) -> bool {
        let Some((answer, bytes)) = self.in_flight.pop_front() else { return false };
        let result = match answer {
            Answer::There(result) => result,
            Answer::Awaited(ticket) => ticket.wait(),
        };
        self.bytes -= bytes;
        self.note(&result);
        self.results.push(result);
        true
    }

    fn stop_if_refused_at_the_door(&mut self) {
        if let Some((Answer::There(result), _)) = self.in_flight.back() {
            let stopped = (self.stops)(result);
            self.stopped = self.stopped.take().or(stopped);
        }
    }

    fn note(&mut self, result: &PublishResult) {
        if self.stopped.is_none() {
            self.stopped = (self.stops)(result);
        }
    }
}
