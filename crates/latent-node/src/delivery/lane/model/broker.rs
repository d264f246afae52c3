//! The broker of the model: one stream of a few messages and its consumer with a pinned client, as the real one behaves.

use std::collections::BTreeMap;

use latent_core::MonoTime;

use crate::delivery::lane::{Delivery, Inspected, PinId, ReplyId};
use crate::delivery::source::{HeadContent, KeyId, Settlement};

/// A message at the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    New,
    /// Delivered, and delivered again from this time on.
    Out {
        until: MonoTime,
    },
    Settled(Settlement),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) key: u64,
    pub(super) place: Place,
    pub(super) deliveries: u32,
}

/// A pull that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    pub(super) pin: Option<PinId>,
    pub(super) left: u32,
    pub(super) until: MonoTime,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Broker {
    pub(super) messages: BTreeMap<u64, Message>,
    pub(super) ack_wait_millis: u64,
    pub(super) unacknowledged_max: usize,
    pub(super) deliveries: u64,
    pub(super) pin: Option<(PinId, usize)>,
    pins: u64,
    /// By node.
    pub(super) pulls: BTreeMap<usize, Waiting>,
}

impl Broker {
    pub(super) fn new(keys: &[u64], ack_wait_millis: u64, unacknowledged_max: usize) -> Self {
        let message = |key: &u64| Message { key: *key, place: Place::New, deliveries: 0 };
        let messages = (1..).zip(keys.iter().map(message)).collect();
        Self { messages, ack_wait_millis, unacknowledged_max, deliveries: 0, pin: None, pins: 0, pulls: BTreeMap::new() }
    }

    fn unacknowledged(&self) -> usize {
        self.messages.values().filter(|message| matches!(message.place, Place::Out { .. })).count()
    }

    pub(super) fn is_settled(&self, sequence: u64) -> bool {
        self.messages.get(&sequence).is_some_and(|message| matches!(message.place, Place::Settled(_)))
    }

    pub(super) fn all_settled(&self) -> bool {
        self.messages.keys().all(|sequence| self.is_settled(*sequence))
    }

    pub(super) fn inspect(&self) -> Inspected {
        let lowest_out = self.messages.iter().find(|(_, message)| matches!(message.place, Place::Out { .. }));
        let delivered = self.messages.iter().filter(|(_, message)| message.deliveries > 0).map(|(sequence, _)| *sequence).max();
        let settled_up_to = lowest_out.map_or(delivered.unwrap_or_default(), |(sequence, _)| sequence - 1);
        Inspected {
            pending: self.messages.values().filter(|message| message.place == Place::New).count() as u64,
            unacknowledged: self.unacknowledged() as u64,
            deliveries: self.deliveries,
            settled_up_to,
            pin: self.pin.map(|(pin, _)| pin),
        }
    }

    /// The node whose pull would be served next, if any.
    pub(super) fn can_serve(&self, node: usize) -> bool {
        let Some(pull) = self.pulls.get(&node).filter(|pull| pull.left > 0) else { return false };
        match self.pin {
            Some((pin, holder)) => holder == node && pull.pin.is_none_or(|shown| shown == pin),
            None => pull.pin.is_none(),
        }
    }

    /// What comes next: what is due to come again before what is new.
    pub(super) fn next(&self, now: MonoTime) -> Option<u64> {
        let due = |message: &Message| matches!(message.place, Place::Out { until } if until <= now);
        let again = self.messages.iter().find(|(_, message)| due(message)).map(|(sequence, _)| *sequence);
        let new = self.messages.iter().find(|(_, message)| message.place == Place::New).map(|(sequence, _)| *sequence);
        again.or(new.filter(|_| self.unacknowledged() < self.unacknowledged_max))
    }

    /// Delivers the next message to a node that [`Broker::can_serve`]. The flag says that its pull has had its batch.
    pub(super) fn deliver(&mut self, now: MonoTime, node: usize) -> Option<(Delivery, bool)> {
        let sequence = self.next(now)?;
        if self.pin.is_none() {
            self.pins += 1;
            self.pin = Some((PinId(self.pins), node));
        }
        let (pin, _) = self.pin?;
        let pull = self.pulls.get_mut(&node)?;
        pull.left -= 1;
        let is_over = pull.left == 0;
        if is_over {
            self.pulls.remove(&node);
        }
        self.deliveries += 1;
        let message = self.messages.get_mut(&sequence)?;
        message.deliveries += 1;
        message.place = Place::Out { until: now.plus_millis(self.ack_wait_millis) };
        let (order, content) = (self.deliveries, HeadContent::Event(KeyId(message.key)));
        Some((Delivery { sequence, deliveries: message.deliveries, order, reply: ReplyId(order), content, pin }, is_over))
    }

    /// In-progress, from anybody.
    pub(super) fn renew(&mut self, now: MonoTime, sequence: u64) {
        let until = now.plus_millis(self.ack_wait_millis);
        if let Some(message) = self.messages.get_mut(&sequence).filter(|message| matches!(message.place, Place::Out { .. })) {
            message.place = Place::Out { until };
        }
    }

    /// A settlement, from anybody.
    pub(super) fn settle(&mut self, sequence: u64, settlement: Settlement) {
        if let Some(message) = self.messages.get_mut(&sequence).filter(|message| matches!(message.place, Place::Out { .. })) {
            message.place = Place::Settled(settlement);
        }
    }
}
