//! Publications of which none can overtake the one before it: for who brings the records of one log into another. No engine and no I/O
//! lives here.
//!
//! A batch keeps what comes behind a failure from being handed over; what was handed over already may be stored all the same. Here each
//! publication is conditional on the one before it, and the engine itself sees to it. So a publication that is late, of a process that has
//! ended or on a connection that was lost, is stored in its place or not at all, and whatever the engine remembers of uids.

use latent_core::NewRecord;

use super::{EventBus, PublishResult};
use crate::BusError;

/// How many records a topic has ever taken, in the engine's own counting. Of one topic of one bus, as long as its history is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence after `records` more were stored.
    #[must_use]
    pub const fn after(self, records: u64) -> Self {
        Self(self.0.saturating_add(records))
    }
}

/// A bus that can be published to strictly one behind the other.
pub trait InOrder: EventBus {
    /// Where the topic ends now.
    ///
    /// # Errors
    /// [`BusError::UnknownTopic`], and what keeps the engine from saying it.
    fn fence(&self, topic: &str) -> Result<Fence, BusError>;

    /// Publishes records one behind the other, the first of them only if the topic took nothing since `fence`, and each further one only if
    /// the one before it is the last that the topic took. One result for each, in order.
    ///
    /// Up to the first that is no acknowledgement of a new record, each is stored, in this order and with nothing of anybody else between
    /// them. From that one on a record lies where this order has it, or was not stored. Which of the two, who reads the topic's end learns:
    /// one that is uncertain, or that a late publication of the same record came before, may lie in its place with others behind it.
    ///
    /// On a broker whose stream has replicas this holds as long as nobody else publishes to the topic meanwhile; a record of somebody else
    /// that comes in the midst of the call may leave one of the call's out that others are stored behind.
    fn publish_behind(&self, topic: &str, fence: Fence, records: &[NewRecord]) -> Vec<PublishResult>;
}

/// What the engine says of a record that was not published because the topic did not end where it should.
pub(crate) fn passed(topic: &str) -> BusError {
    BusError::NotSent { reason: format!("topic {topic:?} does not end where it should for this event: another one was stored meanwhile") }
}

/// What becomes of the records behind one that was not stored as a new one.
pub(crate) fn behind_another() -> BusError {
    BusError::NotSent { reason: "the event before it was not stored, and it must not overtake that one".to_owned() }
}

/// Whether a record was stored by this publication.
pub(crate) const fn is_new(result: &PublishResult) -> bool {
    matches!(result, Ok(ack) if !ack.duplicate)
}
