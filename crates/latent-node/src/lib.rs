//! One node: what may be called, how much of it at one time, in which order, and what became of it.
//!
//! Machines that decide have no I/O: [`admission`], [`scheduler`], the [`Catalog`], the [`Journal`] and the delivery cycle. The
//! shells around them are thin: [`LocalActivationManager`] and the delivery driver. This crate knows no NATS and no log format;
//! events come from a source behind a trait, guests run in a backend behind one.
//!
//! The way of one event: [`LocalActivationManager::reserve_inbound`] pins the route and takes the place; then the source is asked;
//! [`LocalActivationManager::activate`] queues the event; a cell becomes free; [`StartOrder::confirm`] asks the catalog again; the
//! guest runs; the journal remembers.

mod activation;
pub mod admission;
pub mod audit_file;
mod backend;
mod catalog;
mod clock_guard;
pub mod delivery;
mod error;
mod inbound;
mod journal;
pub mod limits;
mod revocation;
mod route;
pub mod scheduler;

pub use activation::{CapacityListener, EndListener, LocalActivationManager, ManagerOptions, Reservation};
pub use admission::{Account, AdmissionLimit, AdmissionSnapshot, Refusal};
pub use audit_file::{AuditClose, AuditFault, AuditFile, AuditFileError, AuditFileLimits, AuditStatus};
pub use backend::{
    BackendFuture, ComponentSource, ConfirmedStart, ExecutionBackend, LoadError, LoadedSnapshot, NotStarted, StartOrder, WasmBackend,
    WasmBackendOptions,
};
pub use catalog::{
    Call, Catalog, CatalogError, Contracts, NewPublication, Publication, PublicationState, PublicationSummary, ResolveError,
    RevocationScope, RevokeError, StartRefused,
};
pub use clock_guard::{BootId, ClockGuard, ClockRecord, Hold, HoldCause, Observation, Remembered};
pub use error::NodeError;
pub use inbound::{
    ActivationEnd, CallOrder, IdSource, InboundOrder, InboundTarget, Input, Principal, PrincipalKind, ReserveRefusal, event_input_bytes,
};
pub use journal::{Delivery, Ended, Journal, JournalEntry};
/// The media type of arguments in the form of `latent_wasmtime::values`.
pub use latent_wasmtime::values::MEDIA_TYPE as VALUES_MEDIA_TYPE;
pub use limits::NodeLimits;
pub use revocation::{NotKept, Noted, Revocation, RevocationList, RevocationRecord, Unrecorded};
pub use route::{Pin, RouteKey};
