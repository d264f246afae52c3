//! The bounded NATS adapter: a confined TLS transport and the publisher `nats-jetstream-publish-v1` upon it.
//!
//! One guest call becomes at most one publication over one connection to one configured socket. What the protocol says is decided in
//! `latent-nats-proto`; who may connect when, in the pools of `latent-capabilities`. This crate is the shell around both: sockets,
//! TLS, deadlines and credentials. It provisions nothing, follows no advice of a server to go elsewhere, and repeats nothing (P-011,
//! X-003, P-054).
//!
//! [`NatsPublisher::install`] is where to start.

mod client;
mod config;
mod connection;
mod counters;
mod credential;
mod deadline;
mod dial;
mod endpoint;
mod error;
pub mod lanes;
pub mod limits;
mod mapping;
mod outcome;
mod publish;
mod publisher;
mod tls;
pub mod triggers;
mod voice;

pub use config::{EndpointDraft, Mapped, MappingDraft, NatsConfig, NatsDraft, Peer, RootsDraft};
pub use connection::Connection;
pub use counters::NatsSnapshot;
pub use credential::NatsCredential;
pub use error::{ConfigError, InstallError};
pub use publisher::{NatsPools, NatsPublisher, PROFILE};
