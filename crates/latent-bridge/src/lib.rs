//! Partitioned, ordered, replayable topics from a manifest, behind one contract: [`EventBus`].
//!
//! Of this workspace's crates it uses `latent-core` alone: embedding it compiles no WebAssembly engine. The embedded engine needs no async
//! runtime; the feature `nats` adds [`NatsBus`], which has one of its own.

pub mod bus;
pub mod cold;
#[cfg(feature = "cold-store")]
#[cfg_attr(not(feature = "nats"), allow(dead_code, unreachable_pub, reason = "the engine on a broker uses all of it and shows it"))]
mod connector;
mod engine;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz_bodies;
pub mod limits;
mod maintenance;
pub mod manifest;
pub mod migrate;
#[cfg(feature = "nats")]
pub mod nats_bus;
mod schema;
mod statistics;
mod stored_event;
mod uid;

pub use bus::{AppendWatcher, EventBus, Fence, HeadContent, InOrder, PublishAck, PublishResult, RecordHead};
pub use engine::embedded;
pub use engine::embedded::EmbeddedBroker;
pub use error::BusError;
pub use maintenance::MaintenanceReport;
pub use manifest::{BridgeManifest, MANIFEST_VERSION, ManifestError, RetentionSpec, TopicSpec};
#[cfg(feature = "nats")]
pub use nats_bus::NatsBus;
pub use schema::TopicSchema;
pub use statistics::{PartitionStatistics, TopicStatistics};
pub use stored_event::StoredEvent;
