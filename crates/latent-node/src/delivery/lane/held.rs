//! What a lane knows of one message, and the lease on it. Pure.

use latent_core::MonoTime;

use super::command::{Delivery, LaneOptions, ReplyId};
use crate::delivery::source::{Arrival, Settlement};

/// Where a message stands here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// It was handed out here and given back without a word, because there was no room for what others had: its key is known, and it comes
    /// again.
    Away,
    /// The cycle does not know it.
    Unlisted,
    /// The cycle knows it and it does not run.
    Listed,
    Running,
    /// It is to be settled.
    Due(Settlement),
    /// The settlement is on its way.
    Sent(Settlement),
    /// The settlement may have arrived.
    Uncertain(Settlement),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Held {
    /// The latest one.
    pub(super) delivery: Delivery,
    /// The order of the first delivery under this pin.
    pub(super) first_order: u64,
    /// It was delivered before this pin, so that somebody else may settle it still.
    pub(super) foreign: bool,
    /// Deliveries under this pin for which nothing began: no attempts.
    fruitless: u32,
    begun: bool,
    /// When the question was sent that the broker last answered for it: its own time began no earlier.
    lease_from: MonoTime,
    renew_at: MonoTime,
    /// A renewal that is not answered: when it was sent, and for which delivery.
    renewal: Option<(MonoTime, ReplyId)>,
    pub(super) lapsed: bool,
    /// The cycle was told that it is to come again.
    pub(super) told: bool,
    /// It came again while its settlement was on its way.
    pub(super) again: bool,
    pub(super) stage: Stage,
}

impl Held {
    pub(super) fn new(delivery: Delivery, asked_at: MonoTime, options: &LaneOptions) -> Self {
        Self {
            delivery,
            first_order: delivery.order,
            foreign: delivery.deliveries > 1,
            fruitless: 0,
            begun: false,
            lease_from: asked_at,
            renew_at: asked_at.plus_millis(options.renew_millis()),
            renewal: None,
            lapsed: false,
            told: false,
            again: false,
            stage: Stage::Unlisted,
        }
    }

    /// It came again.
    pub(super) fn renew_by_delivery(&mut self, delivery: Delivery, asked_at: MonoTime, options: &LaneOptions) {
        self.fruitless += u32::from(!self.begun);
        self.begun = false;
        self.delivery = delivery;
        self.lease_from = asked_at;
        self.renew_at = asked_at.plus_millis(options.renew_millis());
        self.lapsed = false;
    }

    pub(super) const fn begin(&mut self) {
        self.stage = Stage::Running;
        self.begun = true;
    }

    /// What the cycle is told: of the deliveries, those that may have been attempts.
    pub(super) fn arrival(&self) -> Arrival {
        let arrival = self.delivery.arrival();
        Arrival { deliveries: arrival.deliveries.saturating_sub(self.fruitless).max(1), ..arrival }
    }

    /// When the lease is taken as lost.
    pub(super) const fn lapses_at(&self, options: &LaneOptions) -> MonoTime {
        self.lease_from.plus_millis(options.lease_millis())
    }

    /// Whether the broker is to be kept from handing it out again.
    const fn is_kept(&self, losing: bool) -> bool {
        match self.stage {
            Stage::Unlisted | Stage::Listed | Stage::Due(_) => !losing,
            Stage::Running => true,
            Stage::Away | Stage::Sent(_) | Stage::Uncertain(_) => false,
        }
    }

    /// When the next renewal is due, if any is.
    pub(super) fn renews_at(&self, losing: bool) -> Option<MonoTime> {
        let due = self.is_kept(losing) && !self.lapsed && self.renewal.is_none();
        due.then_some(self.renew_at)
    }

    pub(super) fn renewal_sent(&mut self, now: MonoTime) {
        self.renewal = Some((now, self.delivery.reply));
    }

    pub(super) fn renewal_answered(&mut self, now: MonoTime, reply: ReplyId, confirmed: bool, options: &LaneOptions) {
        let Some((sent_at, _)) = self.renewal.take_if(|(_, of)| *of == reply) else { return };
        // A confirmation counts only while nobody else can have had the message when it arrived there.
        if confirmed && !self.lapsed && now < self.lapses_at(options) {
            self.lease_from = self.lease_from.max(sent_at);
            self.renew_at = self.lease_from.plus_millis(options.renew_millis());
        } else {
            self.renew_at = now.plus_millis(options.renew_millis() / 2 + 1);
        }
    }

    pub(super) fn renewal_lost(&mut self) {
        self.renewal = None;
    }

    /// Whether it waits for anything that its lease allows.
    pub(super) const fn has_lease(&self) -> bool {
        !self.lapsed && matches!(self.stage, Stage::Away | Stage::Unlisted | Stage::Listed | Stage::Running | Stage::Due(_))
    }
}
