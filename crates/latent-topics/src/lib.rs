//! Where topics of the bridge meet guests and triggers.
//!
//! [`TopicPublisher`] is the provider behind `latent-topic-publish-v1`: a guest's publication becomes one record of a topic.
//! [`TopicSource`] is the delivery cycle's source on the embedded engine: a partition becomes activations, and what is settled is
//! remembered in [`DeliveryStore`], in the log's own directory and commits. With the feature `nats`, `StreamTopics` reads messages of a broker as
//! events of topics, and parks those that never run. Nothing here knows a socket or a WebAssembly engine.

mod dead_letters;
mod delivery_state;
mod delivery_store;
mod error;
#[cfg(feature = "nats")]
mod lanes;
pub mod limits;
mod publisher;
mod read_ahead;
mod source;
#[cfg(feature = "nats")]
mod streams;

pub use dead_letters::DeadLetters;
pub use delivery_state::{StateDamage, UnitKey};
pub use delivery_store::{DeliveryStore, StartAt};
pub use error::TopicsError;
pub use publisher::{PROFILE, PublisherTotals, TopicPublisher, message_id};
pub use source::TopicSource;
#[cfg(feature = "nats")]
pub use streams::StreamTopics;
