//! What the session tells, for the lanes it concerns.

use std::hash::BuildHasher as _;

use bytes::Bytes;
use latent_core::{Offset, UnixMillis};
use latent_nats_proto::session::ConsumerInfo;
use latent_nats_proto::session::{Content, Delivered, Event, OperationId, PinId, Session};
use latent_nats_proto::triggers::{InspectError, SettleAnswer};
use latent_nats_proto::{Ended, Evidence, FailureCause, UncertainCause};
use latent_node::delivery::{Confirmation, Delivery, HeadContent, Inspected, KeyId, PinId as PinNumber, ReplyId};

use super::{Carrier, Purpose};
use crate::lanes::office::{Of, Office, Stranded};
use crate::lanes::topics::LaneMessage;
use crate::triggers::StepFault;
use crate::triggers::trouble::{Trouble, of_inspection};

/// Stands for the pin of a consumer without a group, of which everybody is a holder.
const NO_GROUP: PinNumber = PinNumber(0);

impl Carrier {
    /// Everything that the session has to tell.
    pub(super) fn take_events(&mut self) {
        while let Some(event) = self.session.as_mut().and_then(Session::poll_event) {
            match event {
                Event::Inspected { operation, result } => self.take_inspected(operation, result),
                Event::Delivered { pull, message } => self.take_delivered(pull, message),
                Event::Heartbeat { pull } => self.take_sign(pull),
                Event::PullEnded { operation, end } => match self.ended(operation) {
                    Some(Purpose::Pull { lane }) => self.take_pull_ended(lane, end),
                    Some(Purpose::Keep { lane }) => self.take_kept(lane, end),
                    _ => {}
                },
                Event::Settled { operation, answer } => self.take_settled(operation, answer),
                Event::Closed(evidence) => {
                    self.session = None;
                    self.lost(evidence);
                }
            }
        }
    }

    fn ended(&mut self, operation: OperationId) -> Option<Purpose> {
        let (purpose, until) = self.operations.remove(&operation)?;
        self.deadlines.remove(&(until, operation));
        self.touched.insert(purpose.lane());
        Some(purpose)
    }

    fn take_inspected(&mut self, operation: OperationId, result: Result<ConsumerInfo, InspectError>) {
        let Some(Purpose::Inspect { lane: place, question, of_sweep }) = self.ended(operation) else { return };
        if of_sweep {
            self.sweep.answered();
        }
        let (now, at) = (self.clock.mono(), self.now());
        let Some(lane) = self.lanes.get_mut(place) else { return };
        lane.inspections = lane.inspections.saturating_sub(1);
        let info = match result {
            Ok(info) => info,
            Err(error) => {
                lane.profile_at = None;
                let draft = lane.cell.binding.draft();
                let trouble = of_inspection(&error, &draft.stream, &draft.consumer);
                self.journal.trouble(&lane.cell, at, Of::Inspection, trouble.fault, &trouble.why);
                if let Some(question) = question {
                    lane.cell.office().desk.lane.handle_inspected(now, question, None);
                }
                self.refuse_wanted_pull(place);
                return;
            }
        };
        lane.profile_at = Some(now);
        lane.max_deliver = info.max_deliver;
        lane.pin_millis = info.priority_timeout_nanos.map(|nanos| nanos / 1_000_000);
        self.journal.over(&lane.cell, now, Of::Inspection);
        {
            let mut office = lane.cell.office();
            let has_group = lane.cell.binding.consumer().profile().group.is_some();
            let seen = inspected(&mut office, &info, has_group);
            let was_stranded = note(&mut office, &info, now);
            if let Some(question) = question {
                office.desk.lane.handle_inspected(now, question, Some(seen));
            }
            let lane_of = &office.desk.lane;
            // What is held here and was told already is among the unsettled.
            let is_told = of_sweep && lane_of.held() > 0;
            let end = if is_told { lane_of.available_behind(0, seen.pending) } else { lane_of.available_end(&seen) };
            if let Some(end) = end {
                office.desk.tell_available(end);
            }
            drop(office);
            if !was_stranded {
                self.journal.stranded(&lane.cell, now);
            }
        }
        self.inspection_passed(place);
    }

    fn take_delivered(&mut self, pull: OperationId, message: Delivered) {
        let Some((Purpose::Pull { lane: place }, _)) = self.operations.get(&pull).copied() else { return };
        self.touched.insert(place);
        self.take_sign(pull);
        self.heat(place);
        let (now, at) = (self.clock.mono(), self.now());
        let Some(lane) = self.lanes.get_mut(place) else { return };
        self.journal.over(&lane.cell, now, Of::Pull);
        let numbers = message.numbers;
        let too_often = lane.max_deliver.is_some_and(|most| numbers.deliveries > most);
        let pin = match message.pin() {
            Some(pin) => Some(pin),
            None if lane.cell.binding.consumer().profile().group.is_none() => None,
            // Where pullers are pinned, a message without a pin is nobody's; and one above the limit should not be (D-12).
            None => {
                return self.violated(place, StepFault::Protocol(Evidence::ForeignReply), "a message came without a pin");
            }
        };
        if too_often {
            return self.violated(place, StepFault::DeliveredTooOften, "a message was delivered more often than the consumer may");
        }
        let (sequence, reply) = (numbers.stream_sequence, ReplyId(numbers.consumer_sequence));
        let deliveries = u32::try_from(numbers.deliveries).unwrap_or(u32::MAX);
        let stored_at = UnixMillis(numbers.stored_unix_nanos / 1_000_000);
        let (record, remains) = match &message.content {
            Ok(Content { headers, payload }) => {
                let binding = &lane.cell.binding;
                let whole = LaneMessage { binding, offset: Offset(sequence), deliveries, stored_at, headers, payload };
                (self.topics.event(whole).ok(), payload.clone())
            }
            Err(error) => {
                // The stream keeps it; what there is of it here is nothing.
                self.journal.trouble(&lane.cell, at, Of::Pull, StepFault::Protocol(Evidence::OversizedReply), &error.to_string());
                (None, Bytes::new())
            }
        };
        let content = match &record {
            Some(event) => HeadContent::Event(KeyId(self.hasher.hash_one(&event.key))),
            None => HeadContent::Undecodable,
        };
        let mut office = lane.cell.office();
        let pin = pin.map_or(NO_GROUP, |pin: PinId| office.pin_number(&pin));
        office.keep_reply(reply, sequence, message.ack);
        if record.is_none() {
            office.keep_remains(sequence, remains);
        }
        let delivery = Delivery { sequence, deliveries, order: numbers.consumer_sequence, reply, content, pin };
        office.desk.handle_message(now, delivery, record);
        // Newer than any inspection: what waits behind this message was not delivered to anybody.
        office.health.pending = numbers.pending;
        if let Some(end) = office.desk.lane.available_behind(sequence, numbers.pending) {
            office.desk.tell_available(end);
        }
    }

    /// The consumer does what it must not: the connection is given up, and what is held with it.
    fn violated(&mut self, place: usize, fault: StepFault, why: &str) {
        if let Some(lane) = self.lanes.get(place) {
            self.journal.trouble(&lane.cell, self.now(), Of::Pull, fault, why);
        }
        if let Some(session) = &mut self.session {
            session.ended(Ended::Cancelled);
        }
    }

    fn take_settled(&mut self, operation: OperationId, answer: SettleAnswer) {
        let Some(purpose) = self.ended(operation) else { return };
        let now = self.clock.mono();
        let Some(lane) = self.lanes.get(purpose.lane()) else { return };
        match answer {
            SettleAnswer::Confirmed => self.journal.over(&lane.cell, now, Of::Settlement),
            SettleAnswer::NotSent(FailureCause::PublishRefused) | SettleAnswer::Uncertain(UncertainCause::PermissionOfAnother) => {
                let why = "the broker's user may not settle its messages; `latent broker permissions` prints what it needs";
                self.journal.trouble(&lane.cell, self.now(), Of::Settlement, StepFault::SettlementRefused, why);
            }
            SettleAnswer::NotSent(_) | SettleAnswer::Uncertain(_) => {}
        }
        let confirmation = match answer {
            SettleAnswer::Confirmed => Confirmation::Confirmed,
            SettleAnswer::NotSent(_) => Confirmation::NotSent,
            SettleAnswer::Uncertain(_) => Confirmation::Uncertain,
        };
        let mut office = lane.cell.office();
        match purpose {
            Purpose::Renew { sequence, reply, .. } => office.desk.lane.handle_renewed(now, sequence, reply, confirmation),
            Purpose::Settle { sequence, .. } => {
                office.health.settlements_uncertain += u64::from(confirmation == Confirmation::Uncertain);
                office.desk.lane.handle_settled(now, sequence, confirmation);
            }
            Purpose::Inspect { .. } | Purpose::Pull { .. } | Purpose::Keep { .. } => {}
        }
        let is_stranded = office.health.stranded.is_some();
        drop(office);
        if let Some(lane) = self.lanes.get_mut(purpose.lane()) {
            // With nothing else unsettled it moves the consumer on, beyond what the broker gave up.
            lane.looks_again |= is_stranded;
        }
    }

    /// What keeps a pull from its messages, for whoever asks.
    pub(super) fn pull_trouble(&self, place: usize, trouble: &Trouble) {
        if let Some(lane) = self.lanes.get(place) {
            self.journal.pull_trouble(&lane.cell, self.now(), trouble.fault, &trouble.why);
        }
    }
}

fn inspected(office: &mut Office, info: &ConsumerInfo, has_group: bool) -> Inspected {
    let pin = if has_group { info.pin.as_ref().map(|pin| office.pin_number(pin)) } else { Some(NO_GROUP) };
    let state = &info.state;
    Inspected {
        pending: state.pending,
        unacknowledged: state.ack_pending,
        deliveries: state.delivered_consumer_sequence,
        settled_up_to: state.ack_floor_stream_sequence,
        pin,
    }
}

/// Keeps what an inspection says for those who ask. Gives whether it was known before that the broker has given up on messages, or is not so.
fn note(office: &mut Office, info: &ConsumerInfo, now: latent_core::MonoTime) -> bool {
    let state = &info.state;
    let (settled_up_to, delivered_up_to) = (state.ack_floor_stream_sequence, state.delivered_stream_sequence);
    let is_stranded = state.ack_pending == 0 && settled_up_to < delivered_up_to && office.desk.lane.held() == 0;
    let stranded = is_stranded.then_some(Stranded { settled_up_to, delivered_up_to });
    let was = office.health.stranded == stranded || stranded.is_none();
    (office.health.pending, office.health.unacknowledged) = (state.pending, state.ack_pending);
    (office.health.stranded, office.health.inspected_at) = (stranded, Some(now));
    office.health.settled_up_to = office.health.settled_up_to.max(settled_up_to);
    was
}
