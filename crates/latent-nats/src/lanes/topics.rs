//! What lanes need of those who know topics: how a message becomes an event, and where goes what never runs (again).

use bytes::Bytes;
use latent_core::{DeliveredEvent, Offset, Ticket, UnixMillis, Verdict};
use latent_node::delivery::SourceError;

use super::config::LaneBinding;

/// A message as it was delivered.
#[derive(Clone, Copy)]
pub struct LaneMessage<'m> {
    /// For whom.
    pub binding: &'m LaneBinding,
    /// Its sequence in the stream.
    pub offset: Offset,
    /// How often it was delivered, this time included.
    pub deliveries: u32,
    /// When the stream stored it.
    pub stored_at: UnixMillis,
    /// Its header block, empty when there is none.
    pub headers: &'m [u8],
    /// Its body.
    pub payload: &'m Bytes,
}

impl std::fmt::Debug for LaneMessage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneMessage").field("binding", &self.binding.draft().id).field("offset", &self.offset).finish_non_exhaustive()
    }
}

/// What is to be parked.
#[derive(Debug, Clone)]
pub enum Unplaced {
    /// An event.
    Event(DeliveredEvent),
    /// What is no event.
    Remains {
        /// Its sequence.
        offset: Offset,
        /// What there is of it.
        bytes: Bytes,
    },
}

/// Knows topics.
pub trait LaneTopics: Send + Sync {
    /// The event that a message is; `delivery` is the message's.
    ///
    /// # Errors
    /// Why it is no event, in words without its content.
    fn event(&self, message: LaneMessage<'_>) -> Result<DeliveredEvent, String>;

    /// Keeps what never runs (again) in the binding's dead-letter topic. A success survives what the topic survives; done twice it is one
    /// dead letter.
    fn park(&self, binding: &LaneBinding, letter: Unplaced, verdict: Verdict) -> Ticket<Result<(), SourceError>>;
}
