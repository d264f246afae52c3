//! What a function may do through the host: a compiled plan, grants, sessions, installed providers and audit.
//!
//! This crate decides and never dials. It knows no async runtime and no socket; a provider brings its own future.
//!
//! The way of one guest call: [`Session::publish`] checks the event, asks the current plan, reserves the memory for the answer, charges
//! one outbound request, opens an audit entry and hands a [`PublishRequest`] to the provider. The provider gets the event itself only
//! from [`PublishRequest::authorise_now`], which asks the plan again: authority cannot be checked too early by oversight. What comes
//! back is an [`EventCompletion`], whose [`CompletionOwner`] keeps the memory charged until the guest's store is gone. The session notes
//! how each attempt ended, also of one that nobody waited for: [`Session::take_publications`].

mod audit;
mod completion;
mod event;
pub mod limits;
mod origin;
mod plan;
mod pool;
mod provider;
mod publications;
mod runtime;
mod session;

pub use audit::{AuditRecord, AuditRing, AuditSink, AuditSlot, Operation, ProviderOutcome};
pub use completion::{CompletionAccount, CompletionOwner, EventCompletion};
pub use event::{EventDraft, EventPublication, RequestDigest};
pub use origin::{DeriveError, Origin};
pub use plan::{BindingError, CompiledEventBindings, EventBinding, InstallRefused};
pub use pool::{
    ClientUse, Lease, PendingCall, PoolRefusal, PoolSettings, PoolSnapshot, PoolTotals, ProviderPools, Registration, RegistrationRefused,
};
pub use provider::{EVENT_PUBLISHER, EpochConflict, EventPublisher, ProviderMismatch, ProviderRef, Providers, PublishFuture, Retire};
pub use publications::{Publication, PublicationEnd, Publications};
pub use runtime::ActivationCapabilityRuntime;
pub use session::{Authority, PublishRequest, Session, SessionSpec};
