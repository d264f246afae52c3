//! Partitioned, ordered, replayable topics from a manifest, behind one contract: [`EventBus`].
//!
//! This crate depends on `latent-core` alone: embedding it compiles no WebAssembly engine and no async runtime.

pub mod bus;
mod engine;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz_bodies;
pub mod limits;
mod maintenance;
pub mod manifest;
mod schema;
mod stored_event;

pub use bus::{AppendWatcher, EventBus, HeadContent, PublishAck, PublishResult, RecordHead};
pub use engine::embedded;
pub use engine::embedded::EmbeddedBroker;
pub use error::BusError;
pub use maintenance::MaintenanceReport;
pub use manifest::{BridgeManifest, MANIFEST_VERSION, ManifestError, RetentionSpec, TopicSpec};
pub use schema::TopicSchema;
pub use stored_event::StoredEvent;
