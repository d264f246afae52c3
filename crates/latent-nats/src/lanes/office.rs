//! What the connection's task and a lane's source share: the desk of the lane, what settles its messages, and what is known of it.
//! It decides nothing; it keeps.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use latent_core::{MonoTime, UnixMillis};
use latent_nats_proto::session::{AckSubject, PinId};
use latent_node::delivery::{Desk, Lane, LaneCommand, PinId as PinNumber, ReplyId};

use super::config::LaneBinding;
use crate::triggers::StepFault;

/// A lane, shared.
pub(super) struct LaneCell {
    pub(super) binding: LaneBinding,
    office: Mutex<Office>,
}

pub(super) struct Office {
    pub(super) desk: Desk,
    /// What settles each delivery that may still be settled, with the message's sequence.
    replies: BTreeMap<ReplyId, (u64, AckSubject)>,
    /// The last pins that were seen. A number stands for a pin in the lane.
    pins: Vec<(PinNumber, PinId)>,
    pins_seen: u64,
    /// What there is of messages that cannot be read, for their dead letters.
    remains: BTreeMap<u64, Bytes>,
    pub(super) health: Health,
    /// Nobody carries any more: what is asked is answered at once.
    pub(super) closed: bool,
}

/// What people may know of a lane.
#[derive(Debug, Clone, Default)]
pub(super) struct Health {
    /// What stands in its way now, and since when.
    pub(super) trouble: Option<Trouble>,
    /// Of the last inspection.
    pub(super) pending: u64,
    pub(super) unacknowledged: u64,
    /// Up to here everything was settled.
    pub(super) settled_up_to: u64,
    /// The broker has given up on messages behind this sequence and nothing is delivered and unsettled.
    pub(super) stranded: Option<Stranded>,
    /// When it was inspected last.
    pub(super) inspected_at: Option<MonoTime>,
    pub(super) settlements_uncertain: u64,
}

/// What stands in a lane's way.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) of: Of,
    pub(super) fault: StepFault,
    pub(super) why: String,
    pub(super) since: UnixMillis,
}

/// What a trouble was met at, and so what shows that it is over: the same, done well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Connecting, or seeing the consumer.
    Inspection,
    Pull,
    Settlement,
}

/// Messages that the broker has given up on (25-joins).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stranded {
    /// Up to here everything is settled.
    pub settled_up_to: u64,
    /// Up to here everything was delivered.
    pub delivered_up_to: u64,
}

/// Pins that are told apart. One is in force; the one before may still be named by what is under way.
const PINS_KEPT: usize = 4;

impl LaneCell {
    pub(super) fn new(binding: LaneBinding) -> Self {
        let desk = Desk::new(Lane::new(binding.options()));
        let office = Office {
            desk,
            replies: BTreeMap::new(),
            pins: Vec::new(),
            pins_seen: 0,
            remains: BTreeMap::new(),
            health: Health::default(),
            closed: false,
        };
        Self { binding, office: Mutex::new(office) }
    }

    // No guarded section panics half-way, so a poisoned lock still guards a whole state.
    pub(super) fn office(&self) -> MutexGuard<'_, Office> {
        self.office.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Office {
    /// The number of a pin.
    pub(super) fn pin_number(&mut self, pin: &PinId) -> PinNumber {
        if let Some((number, _)) = self.pins.iter().find(|(_, known)| known == pin) {
            return *number;
        }
        self.pins_seen += 1;
        let number = PinNumber(self.pins_seen);
        if self.pins.len() >= PINS_KEPT {
            self.pins.remove(0);
        }
        self.pins.push((number, pin.clone()));
        number
    }

    /// The pin behind a number.
    pub(super) fn pin(&self, number: PinNumber) -> Option<PinId> {
        self.pins.iter().find(|(known, _)| *known == number).map(|(_, pin)| pin.clone())
    }

    pub(super) fn keep_reply(&mut self, reply: ReplyId, sequence: u64, ack: AckSubject) {
        self.replies.insert(reply, (sequence, ack));
    }

    pub(super) fn keep_remains(&mut self, sequence: u64, bytes: Bytes) {
        self.remains.insert(sequence, bytes);
    }

    pub(super) fn remains(&self, sequence: u64) -> Option<Bytes> {
        self.remains.get(&sequence).cloned()
    }

    pub(super) fn reply(&self, reply: ReplyId) -> Option<AckSubject> {
        self.replies.get(&reply).map(|(_, ack)| ack.clone())
    }

    /// The next command for the broker. With none, what belongs to messages that are over is let go of.
    pub(super) fn poll(&mut self, now: MonoTime) -> Option<LaneCommand> {
        let command = self.desk.poll(now);
        if command.is_none() {
            let lane = &self.desk.lane;
            self.replies.retain(|_, (sequence, _)| lane.holds(*sequence));
            self.remains.retain(|sequence, _| lane.holds(*sequence));
        }
        command
    }
}
