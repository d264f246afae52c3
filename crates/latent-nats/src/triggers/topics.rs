//! What triggers need of those who know topics: how a record of a topic is read, and where goes what never runs (again). Who knows them is
//! above this crate.

use latent_capabilities::Origin;
use latent_core::{DeliveredEvent, Ticket, UnixMillis, Verdict};
use latent_node::delivery::Handed;

use super::TriggerBinding;

/// A message as it was delivered.
#[derive(Clone, Copy)]
pub struct Delivered<'m> {
    /// For whom.
    pub binding: &'m TriggerBinding,
    /// Its sequence in the stream, and which delivery this is.
    pub handed: Handed,
    /// When the stream stored it.
    pub stored_at: UnixMillis,
    /// Its header block, empty when there is none.
    pub headers: &'m [u8],
    /// Its body.
    pub payload: &'m [u8],
}

impl std::fmt::Debug for Delivered<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivered").field("binding", self.binding.id()).field("handed", &self.handed).finish_non_exhaustive()
    }
}

/// Knows topics.
pub trait Topics: Send + Sync {
    /// The event that a message of a topic's stream is, and what keys are derived from; `delivery` is the message's.
    ///
    /// # Errors
    /// Why it is no event, in words without its content.
    fn event(&self, message: Delivered<'_>) -> Result<(DeliveredEvent, Origin), String>;

    /// Keeps a message in its binding's dead-letter topic. A success survives what the topic survives; done twice it is one dead letter.
    fn park(&self, message: Delivered<'_>, verdict: Verdict) -> Ticket<Result<(), String>>;
}
