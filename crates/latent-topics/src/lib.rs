//! Where topics of the bridge meet guests and triggers.
//!
//! [`TopicPublisher`] is the provider behind `latent-topic-publish-v1`: a guest's publication becomes one record of a topic.
//! [`TopicSource`] is the delivery cycle's source on the embedded engine: a partition becomes activations, and what is settled is
//! remembered in [`DeliveryStore`], in the log's own directory and commits. Nothing here knows a socket or a WebAssembly engine.

mod dead_letters;
mod delivery_state;
mod delivery_store;
mod error;
pub mod limits;
mod publisher;
mod read_ahead;
mod source;

pub use dead_letters::DeadLetters;
pub use delivery_state::{StateDamage, UnitKey};
pub use delivery_store::{DeliveryStore, StartAt};
pub use error::TopicsError;
pub use publisher::{PROFILE, PublisherTotals, TopicPublisher, message_id};
pub use source::TopicSource;
