//! What a function may do through the host: a compiled plan, grants, sessions, installed providers and audit.
//!
//! This crate decides and never dials. It knows no async runtime and no socket; a provider brings its own future.
//!
//! The way of one guest call: [`Session::publish`] checks the event, asks the current plan, charges one outbound request, opens an
//! audit entry and hands a [`PublishRequest`] to the provider. The provider gets the event itself only from
//! [`PublishRequest::authorise_now`], which asks the plan again: authority cannot be checked too early by oversight.

mod audit;
mod event;
pub mod limits;
mod origin;
mod plan;
mod provider;
mod session;

pub use audit::{AuditRecord, AuditRing, AuditSink, ProviderOutcome};
pub use event::{EventDraft, EventPublication};
pub use origin::{DeriveError, Origin};
pub use plan::{EventBinding, Plan, PlanBook, PlanConflict, ServicePlan};
pub use provider::{EpochConflict, EventPublisher, ProviderRef, Providers, PublishFuture};
pub use session::{Authority, PublishRequest, Session, SessionSpec};
