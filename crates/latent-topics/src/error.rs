//! What can go wrong when topics are joined to bindings. Publications and deliveries have outcomes instead.

use latent_bridge::BusError;
use latent_core::BindingId;

use crate::StateDamage;

/// Why deliveries could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicsError {
    /// The log says no.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// What is remembered of deliveries cannot be understood.
    #[error(
        "state/deliveries.log: {0}; nothing was changed. Restore the file from a copy, or move it away: then every event that is kept runs again"
    )]
    Damaged(#[from] StateDamage),
    /// A binding was given another topic.
    #[error("trigger {binding} was bound to topic {known} and is now bound to {asked}; give the trigger another id, or go back to {known}")]
    TopicChanged {
        /// The binding.
        binding: BindingId,
        /// The topic its state belongs to.
        known: String,
        /// The topic asked for.
        asked: String,
    },
}
