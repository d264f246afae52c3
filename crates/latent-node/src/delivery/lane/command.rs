//! What goes into a lane and what comes out of it.

use latent_core::{LimitError, Offset};

use crate::delivery::limits;
use crate::delivery::source::{Arrival, HeadContent, Settlement};
use crate::delivery::visit::Confirmation;

/// How a lane behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaneOptions {
    /// `ack_wait` of the consumer.
    pub ack_wait_millis: u64,
    /// Share of it after which a lease is renewed.
    pub renew_percent: u64,
    /// Share of it before its end at which a lease is taken as lost.
    pub lapse_percent: u64,
    /// Share of it after which a shut gate asks again.
    pub gate_inspect_percent: u64,
    /// Messages held.
    pub held_max: u64,
}

impl LaneOptions {
    /// The defaults for a consumer with this `ack_wait`.
    pub fn of_ack_wait(ack_wait_millis: u64) -> Self {
        Self {
            ack_wait_millis,
            renew_percent: limits::RENEW_PERCENT.default,
            lapse_percent: limits::LAPSE_PERCENT.default,
            gate_inspect_percent: limits::GATE_INSPECT_PERCENT.default,
            held_max: limits::LANE_HELD.default,
        }
    }

    /// Checks every field against its limit.
    ///
    /// # Errors
    /// [`LimitError`] naming the first field out of range.
    pub fn checked(self) -> Result<Self, LimitError> {
        limits::ACK_WAIT_MILLIS.check(self.ack_wait_millis)?;
        limits::RENEW_PERCENT.check(self.renew_percent)?;
        limits::LAPSE_PERCENT.check(self.lapse_percent)?;
        limits::GATE_INSPECT_PERCENT.check(self.gate_inspect_percent)?;
        limits::LANE_HELD.check(self.held_max)?;
        Ok(self)
    }

    pub(super) const fn share_millis(&self, percent: u64) -> u64 {
        let millis = self.ack_wait_millis.saturating_mul(percent) / 100;
        if millis == 0 { 1 } else { millis }
    }

    /// How long a lease is trusted.
    pub(super) const fn lease_millis(&self) -> u64 {
        self.ack_wait_millis.saturating_sub(self.share_millis(self.lapse_percent))
    }

    /// Between renewals, and the expiry of a pull: what comes in answer to one is younger than the pull, and never much.
    pub const fn renew_millis(&self) -> u64 {
        self.share_millis(self.renew_percent)
    }

    pub(super) const fn inspect_millis(&self) -> u64 {
        self.share_millis(self.gate_inspect_percent)
    }
}

/// Stands for the subject that settles one delivery of a message; the shell knows which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyId(pub u64);

/// Stands for a pin. Equal pins have equal ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinId(pub u64);

/// A message as the broker delivered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// Its place in the stream.
    pub sequence: u64,
    /// How often it was delivered, this time included, to whomever.
    pub deliveries: u32,
    /// Which delivery of the consumer this is: the broker counts them all, without gaps.
    pub order: u64,
    /// Its settling subject.
    pub reply: ReplyId,
    /// Its key, or that it cannot be read.
    pub content: HeadContent,
    /// The pin it was delivered under.
    pub pin: PinId,
}

impl Delivery {
    pub(super) const fn arrival(&self) -> Arrival {
        let head = crate::delivery::Head { offset: Offset(self.sequence), content: self.content };
        Arrival { head, deliveries: self.deliveries }
    }
}

/// What the broker says of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inspected {
    /// Messages never delivered: `num_pending`.
    pub pending: u64,
    /// Messages delivered and not settled, whoever has them: `num_ack_pending`.
    pub unacknowledged: u64,
    /// Deliveries made in all: `delivered.consumer_seq`.
    pub deliveries: u64,
    /// Everything up to this is settled: `ack_floor.stream_seq`.
    pub settled_up_to: u64,
    /// Who is pinned; `None` for nobody.
    pub pin: Option<PinId>,
}

/// How a pull ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PullEnd {
    /// Its time is over, or it has had its batch.
    Over,
    /// The pin is another's (423).
    PinLost,
    /// The broker refused it or could not serve it, and may do so later.
    Refused,
}

/// Why an event cannot begin: its lease is over, or it is not held any more. It comes again, here or elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the broker may have handed the event to another node")]
pub struct NotOurs;

/// What the shell is to do. The first four go to the broker and are answered by the call named with them; the others go to the cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneCommand {
    /// Ask for the consumer's state; answered by [`super::Lane::handle_inspected`].
    Inspect {
        /// Which question this is.
        question: u64,
    },
    /// Ask for messages; what comes goes to [`super::Lane::handle_message`] and its end to [`super::Lane::handle_pull_ended`].
    Pull {
        /// The pin to show; `None` to wait for one.
        pin: Option<PinId>,
        /// Most messages wanted.
        batch_max: u32,
        /// When it ends by itself.
        expires_millis: u64,
    },
    /// Tell the broker that the message is being worked on, and have it confirmed; answered by [`super::Lane::handle_renewed`].
    Renew {
        /// The message.
        sequence: u64,
        /// Its subject.
        reply: ReplyId,
    },
    /// Settle and have it confirmed; answered by [`super::Lane::handle_settled`].
    Settle {
        /// The message.
        sequence: u64,
        /// Its subject.
        reply: ReplyId,
        /// How.
        settlement: Settlement,
    },
    /// Report [`crate::delivery::SourceNews::Handed`]; the first listing of this message since it is held.
    List(Arrival),
    /// Report [`crate::delivery::SourceNews::Again`].
    Again(Arrival),
    /// Report [`crate::delivery::SourceNews::Lapsed`].
    Lapsed {
        /// The message.
        sequence: u64,
    },
    /// Report [`crate::delivery::SourceNews::Over`], and forget its record once nothing of it is open.
    Over {
        /// The message.
        sequence: u64,
    },
    /// Complete the ticket of the open [`crate::delivery::Source::pull`], with an empty listing or, after a refusal, an error.
    PullOver {
        /// Whether the broker refused it.
        refused: bool,
    },
    /// Complete the ticket of the open [`crate::delivery::Source::settle`]: with a success after [`Confirmation::Confirmed`], with an error
    /// otherwise. Nothing of the message is kept after a success.
    Settled {
        /// The message.
        sequence: u64,
        /// What is known.
        confirmation: Confirmation,
    },
}
