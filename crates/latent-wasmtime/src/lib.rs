//! Runs WebAssembly components: prepares them once, and gives each activation a fresh store with a fixed budget.
//!
//! What lives here: the engine and its pool of cells, the border of a component (which imports it may have), compiled code on disk, the store's limits, and
//! the host side of the `latent:*` interfaces and of confined WASI. What does not: routes, admission, retries, topics. This crate
//! never decides *whether* something runs and never what happens to the event afterwards.
//!
//! Invariants:
//! - A store serves one activation and is dropped with it: nothing a guest leaves behind is seen by the next.
//! - At most `cells` stores exist; whoever comes later waits for a cell inside its own deadline.
//! - Every way to end is an [`latent_core::ActivationOutcome`]; nothing a guest does is an error of the host or a panic.
//! - Without activations there is no timer: the epoch thread parks at the first tick that finds none.

mod activation;
mod activation_log;
mod bindings;
mod compiled;
mod component;
mod contracts;
mod engine;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz_bodies;
mod host;
pub mod limits;
mod outcome;
mod outline;
mod store;
mod ticker;
pub mod values;

pub use activation::{ActivationReport, FunctionCall, HandlerCall};
pub use activation_log::{LogLevel, LogLine, LogSource};
pub use compiled::{CompiledCache, CompiledCacheCounts, CompiledCacheError, CompiledCacheOptions};
pub use component::PreparedComponent;
pub use engine::{EngineOptions, WasmEngine};
pub use error::{ImportRefusal, WasmError};

/// The interface that functions export to be woken by events.
pub const HANDLER_CONTRACT: &str = "latent:events/handler@0.2.0";
