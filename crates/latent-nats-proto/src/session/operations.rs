//! The operations of a session: who is under way, what each may still bring, and how each ends.
//!
//! Room is reserved here, before anything is asked for: a slot for each operation until its end is taken, messages and bytes for each pull.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::event::{Event, OperationId, PullClose, PullEnd};
use super::outgoing::{Outgoing, Place};
use super::{AckSubject, Delivered, PullConsumer, PullRequest, SessionBounds, SessionRefused};
use crate::decoder::decimal;
use crate::inbox::Inbox;
use crate::info::ServerFacts;
use crate::outcome::{Answer, Evidence, Stage, UncertainCause, decide};
use crate::triggers::{InspectError, PullError, SettleAnswer};

/// What an operation does.
pub(super) enum Kind {
    Inspect(Arc<PullConsumer>),
    Pull(OpenPull),
    Settle(AckSubject),
}

/// A pull and what it may still bring.
pub(super) struct OpenPull {
    pub(super) consumer: Arc<PullConsumer>,
    delivered: u32,
    messages_left: u32,
    /// Of the broker's count.
    bytes_left: u64,
    /// Of this session's memory.
    reserved_bytes: u64,
    /// A heartbeat waits to be taken.
    is_heard: bool,
    /// Its status is here, and messages that were sent before it are not.
    ending: Option<PullClose>,
}

struct Operation {
    place: Place,
    kind: Kind,
}

impl Kind {
    /// The subject that its command is published to, in parts.
    fn subject(&self) -> [&[u8]; 4] {
        fn api<'a>(call: &'static [u8], consumer: &'a PullConsumer) -> [&'a [u8]; 4] {
            let profile = consumer.profile();
            [call, profile.stream.as_bytes(), b".", profile.consumer.as_bytes()]
        }
        match self {
            Self::Inspect(consumer) => api(b"$JS.API.CONSUMER.INFO.", consumer),
            Self::Pull(pull) => api(b"$JS.API.CONSUMER.MSG.NEXT.", &pull.consumer),
            Self::Settle(ack) => [ack.bytes(), b"", b"", b""],
        }
    }
}

/// What may still come on the inbox of an operation that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Late {
    /// The status behind a pull's last message.
    Status,
    /// The answer to what was given up.
    Answer,
}

/// What a message may do.
pub(super) enum Slot<'a> {
    /// An operation whose command is written.
    Open(&'a mut Kind),
    /// One that ended.
    Late(Late),
}

pub(super) struct Operations {
    bounds: SessionBounds,
    under_way: BTreeMap<u64, Operation>,
    /// The newest that ended and may still be answered, oldest first.
    late: VecDeque<(u64, Late)>,
    pub(super) outgoing: Outgoing,
    events: VecDeque<Event>,
    /// Ends among `events`.
    ends_waiting: usize,
    /// What open pulls may still bring and what is among `events`.
    messages: usize,
    message_bytes: u64,
}

impl Operations {
    pub(super) fn new(bounds: SessionBounds) -> Self {
        Self {
            bounds,
            under_way: BTreeMap::new(),
            late: VecDeque::new(),
            outgoing: Outgoing::new(bounds.outgoing_bytes),
            events: VecDeque::new(),
            ends_waiting: 0,
            messages: 0,
            message_bytes: 0,
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Messages and bytes that are reserved.
    #[cfg(test)]
    pub(super) fn reserved(&self) -> (usize, u64) {
        (self.messages, self.message_bytes)
    }

    #[cfg(test)]
    pub(super) fn messages_among_events(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Delivered { .. })).count()
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        match &event {
            Event::Inspected { .. } | Event::PullEnded { .. } | Event::Settled { .. } => self.ends_waiting -= 1,
            Event::Delivered { message, .. } => {
                self.messages -= 1;
                self.message_bytes -= message.bytes() as u64;
            }
            Event::Heartbeat { pull } => {
                if let Some(Operation { kind: Kind::Pull(pull), .. }) = self.under_way.get_mut(&pull.0) {
                    pull.is_heard = false;
                }
            }
            Event::Closed(_) => (),
        }
        Some(event)
    }

    /// Whether a pull has room. What it takes is taken by [`Operations::begin`].
    pub(super) fn open_pull(&self, consumer: &Arc<PullConsumer>, pull: &PullRequest) -> Result<Kind, SessionRefused> {
        let profile = consumer.profile();
        let mut open = self.under_way.values().filter_map(|operation| match &operation.kind {
            Kind::Pull(pull) => Some(&pull.consumer),
            _ => None,
        });
        if open.any(|other| other.is_of(&profile.stream, &profile.consumer)) {
            return Err(SessionRefused::PullOpen);
        }
        let (asked, free) = (pull.batch as usize, self.bounds.messages.saturating_sub(self.messages));
        if asked > free {
            return Err(SessionRefused::Messages { asked, free });
        }
        let asked = consumer.reserved_bytes(pull.batch, pull.max_bytes);
        let free = (self.bounds.message_bytes as u64).saturating_sub(self.message_bytes);
        if asked > free {
            return Err(SessionRefused::MessageBytes { asked, free });
        }
        Ok(Kind::Pull(OpenPull {
            consumer: Arc::clone(consumer),
            delivered: 0,
            messages_left: pull.batch,
            bytes_left: pull.max_bytes,
            reserved_bytes: asked,
            is_heard: false,
            ending: None,
        }))
    }

    /// Queues a command.
    pub(super) fn begin(
        &mut self,
        inbox: &mut Inbox,
        server: Option<ServerFacts>,
        kind: Kind,
        body: &[u8],
    ) -> Result<OperationId, SessionRefused> {
        let operations_max = self.bounds.operations;
        if self.under_way.len() + self.ends_waiting >= operations_max {
            return Err(SessionRefused::Operations { operations_max });
        }
        if server.is_some_and(|facts| body.len() as u64 > facts.max_payload_bytes) {
            return Err(SessionRefused::ServerMaximum);
        }
        let operation = inbox.take_next().ok_or(SessionRefused::InboxExhausted)?;
        let (digits, start) = decimal(body.len() as u64);
        let [a, b, c, d] = kind.subject();
        let size = digits.get(start..).unwrap_or_default();
        let parts: [&[u8]; 12] = [b"PUB ", a, b, c, d, b" ", inbox.current(), b" ", size, b"\r\n", body, b"\r\n"];
        let bytes = parts.iter().map(|part| part.len()).sum();
        let bytes_max = self.bounds.outgoing_bytes;
        let place = self.outgoing.push(&parts).ok_or(SessionRefused::Outgoing { bytes, bytes_max })?;
        if let Kind::Pull(pull) = &kind {
            self.messages += pull.messages_left as usize;
            self.message_bytes += pull.reserved_bytes;
        }
        self.under_way.insert(operation, Operation { place, kind });
        Ok(OperationId(operation))
    }

    pub(super) fn give_up(&mut self, OperationId(id): OperationId, evidence: Evidence) -> bool {
        let Some(operation) = self.under_way.get(&id) else { return false };
        let place = operation.place;
        if self.outgoing.take_back(place) {
            self.under_way
                .values_mut()
                .for_each(|other| other.place = if other.place == place { place } else { other.place.without(place) });
            self.end_with(id, Stage::BeforeWrite, evidence);
            return true;
        }
        if matches!(operation.kind, Kind::Pull(_)) {
            return false;
        }
        let stage = self.outgoing.stage(place);
        self.end_with(id, stage, evidence);
        self.may_come_late(id, Late::Answer);
        true
    }

    /// Ends everything.
    pub(super) fn close(&mut self, evidence: Evidence) {
        while let Some((id, operation)) = self.under_way.first_key_value() {
            let (id, stage) = (*id, self.outgoing.stage(operation.place));
            self.end_with(id, stage, evidence);
        }
        self.events.push_back(Event::Closed(evidence));
    }

    /// Ends an operation without an answer of its own.
    pub(super) fn end_with(&mut self, id: u64, stage: Stage, evidence: Evidence) {
        let possible_write = stage.possible_write();
        let Some(kind) = self.under_way.get(&id).map(|operation| &operation.kind) else { return };
        match kind {
            Kind::Inspect(_) => self.inspected(id, Err(InspectError::Failed { evidence, possible_write })),
            Kind::Pull(_) => self.pull_ended(id, PullClose::Failed(PullError { evidence, possible_write })),
            Kind::Settle(_) => self.settled(
                id,
                match decide(stage, evidence) {
                    Answer::Uncertain(cause) => SettleAnswer::Uncertain(cause),
                    Answer::KnownFailure { cause, .. } => SettleAnswer::NotSent(cause),
                    Answer::Receipt { .. } => SettleAnswer::Uncertain(UncertainCause::ForeignReply),
                },
            ),
        }
    }

    pub(super) fn inspected(&mut self, id: u64, result: Result<super::ConsumerInfo, InspectError>) {
        self.end(id, |operation, _| Event::Inspected { operation, result });
    }

    pub(super) fn settled(&mut self, id: u64, answer: SettleAnswer) {
        self.end(id, |operation, _| Event::Settled { operation, answer });
    }

    pub(super) fn pull_ended(&mut self, id: u64, how: PullClose) {
        self.end(id, |operation, delivered| Event::PullEnded { operation, end: PullEnd { delivered, how } });
    }

    /// A status ends a pull, once every message is here that the broker has given it. A consumer with replicas sends a message when a majority
    /// knows of its delivery, and a status at once: so the status may be first, and says how many of the messages asked for do not come.
    /// False for a second status.
    pub(super) fn pull_closed(&mut self, id: u64, how: PullClose) -> bool {
        let Some(Operation { kind: Kind::Pull(pull), .. }) = self.under_way.get_mut(&id) else { return false };
        if pull.ending.is_some() {
            return false;
        }
        let unused = match how {
            PullClose::Status { pending: Some(pending), .. } => u32::try_from(pending.messages).ok(),
            _ => None,
        };
        match unused.filter(|unused| *unused < pull.messages_left) {
            Some(unused) => {
                pull.messages_left -= unused;
                self.messages -= unused as usize;
                pull.ending = Some(how);
            }
            None => self.pull_ended(id, how),
        }
        true
    }

    /// The one end of an operation. What it reserved and did not use is free again.
    fn end(&mut self, id: u64, event: impl FnOnce(OperationId, u32) -> Event) {
        let Some(operation) = self.under_way.remove(&id) else { return };
        let mut delivered = 0;
        if let Kind::Pull(pull) = operation.kind {
            delivered = pull.delivered;
            self.messages -= pull.messages_left as usize;
            self.message_bytes -= pull.reserved_bytes;
        }
        self.ends_waiting += 1;
        self.events.push_back(event(OperationId(id), delivered));
    }

    pub(super) fn may_come_late(&mut self, id: u64, late: Late) {
        if self.late.len() >= self.bounds.operations {
            self.late.pop_front();
        }
        self.late.push_back((id, late));
    }

    pub(super) fn came_late(&mut self, id: u64) {
        self.late.retain(|(other, _)| *other != id);
    }

    /// Whose inbox this is. Nothing when it is nobody's that may be answered yet.
    pub(super) fn slot(&mut self, id: u64) -> Option<Slot<'_>> {
        match self.under_way.get_mut(&id) {
            Some(Operation { place, kind }) => (self.outgoing.stage(*place) == Stage::Written).then_some(Slot::Open(kind)),
            None => self.late.iter().find(|(other, _)| *other == id).map(|(_, late)| Slot::Late(*late)),
        }
    }

    pub(super) fn heartbeat(&mut self, id: u64) {
        if let Some(Operation { kind: Kind::Pull(pull), .. }) = self.under_way.get_mut(&id)
            && !std::mem::replace(&mut pull.is_heard, true)
        {
            self.events.push_back(Event::Heartbeat { pull: OperationId(id) });
        }
    }

    /// The open and written pull of this consumer.
    pub(super) fn pull_of(&self, stream: &str, consumer: &str) -> Option<(u64, Arc<PullConsumer>)> {
        self.under_way.iter().find_map(|(id, operation)| match &operation.kind {
            Kind::Pull(pull) if pull.consumer.is_of(stream, consumer) => {
                (self.outgoing.stage(operation.place) == Stage::Written).then(|| (*id, Arc::clone(&pull.consumer)))
            }
            _ => None,
        })
    }

    /// Counts a message against its pull: `counted` as the broker did, at least. False when the pull did not ask for so much.
    pub(super) fn deliver(&mut self, id: u64, counted: u64, message: Delivered) -> bool {
        let Some(Operation { kind: Kind::Pull(pull), .. }) = self.under_way.get_mut(&id) else { return false };
        let bytes = message.bytes() as u64;
        if pull.messages_left == 0 || counted > pull.bytes_left || bytes > pull.reserved_bytes {
            return false;
        }
        pull.messages_left -= 1;
        pull.delivered += 1;
        pull.bytes_left -= counted;
        // The message itself stays counted until it is taken.
        pull.reserved_bytes -= bytes;
        let (is_complete, ending) = (pull.messages_left == 0, pull.ending);
        self.events.push_back(Event::Delivered { pull: OperationId(id), message });
        if is_complete {
            self.pull_ended(id, ending.unwrap_or(PullClose::Complete));
            if ending.is_none() {
                self.may_come_late(id, Late::Status);
            }
        }
        true
    }

    /// Ends the oldest written operation whose command went to this subject, because that is not permitted. False when there is none.
    pub(super) fn refuse(&mut self, subject: &[u8]) -> bool {
        let refused = self
            .under_way
            .iter()
            .find(|(_, operation)| self.outgoing.stage(operation.place) == Stage::Written && operation.kind.subject().concat() == subject);
        let Some((id, _)) = refused else { return false };
        self.end_with(*id, Stage::Written, Evidence::PublishRefused);
        true
    }
}
