//! Many messages at a time, several nodes: `nats-jetstream-pull-v2` (T-101 to T-111).
//!
//! ```text
//! DeliveryDriver ─▶ LaneSource ─▶ desk and lane ◀─ Carrier ─▶ Session ─▶ bytes ◀─ run: one task and one connection for each tenant
//!  (cycles)             │                            │
//!                       └──────── bell ──────────────┘
//! ```
//!
//! What runs when, per key, is the delivery cycle's, as it is for topics of the embedded engine; what may be held, renewed and settled is the
//! lane's (`latent_node::delivery::Lane`); what the broker's bytes mean is the session's (`latent_nats_proto::session`). This module carries
//! between them: the carrier without I/O, `run` with it. No lane has a task, a timer, a socket or a subscription of its own.
//!
//! Why it is as it is: `docs/design/triggers-v2.md`.

mod bell;
mod carrier;
mod config;
mod install;
mod journal;
pub mod limits;
mod office;
mod report;
mod run;
mod source;
mod topics;

pub use config::{LaneBinding, LaneDraft, LaneInput, LaneProblem, LanesConfig, LanesDraft};
pub use install::{LaneMonitor, NatsLanes, PROFILE};
pub use journal::LaneFailure;
pub use office::Stranded;
pub use report::LaneReport;
pub use topics::{LaneMessage, LaneTopics, Unplaced};
