//! The backend that runs WebAssembly: keeps prepared components by digest and hands confirmed starts to the engine.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use latent_core::{ActivationOutcome, ComponentDigest};
use latent_wasmtime::{ActivationReport, HANDLER_CONTRACT, HandlerCall, PreparedComponent, WasmEngine, WasmError};

use super::{BackendFuture, ConfirmedStart, ExecutionBackend, StartOrder, ended_without_guest};
use crate::{NodeError, limits};

/// The function of [`HANDLER_CONTRACT`].
const HANDLER_FUNCTION: &str = "handle";

/// Runs components with a [`WasmEngine`].
///
/// What is loaded stays loaded: it can run, and authorises nothing.
pub struct WasmBackend {
    engine: WasmEngine,
    loaded_bytes_max: u64,
    loaded: RwLock<BTreeMap<ComponentDigest, PreparedComponent>>,
}

/// Why a component could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not a component that this host can run.
    #[error(transparent)]
    Component(#[from] WasmError),
    /// Together with what is loaded it would hold more than `loaded_component_bytes`.
    #[error(
        "no room for a component of {component_bytes} bytes of code: {held_bytes} of {bytes_max} bytes (loaded_component_bytes) are held"
    )]
    Full {
        /// Code of this component.
        component_bytes: u64,
        /// Code of all that are loaded.
        held_bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
}

impl WasmBackend {
    /// A backend with nothing loaded, bounded by the default of `loaded_component_bytes`.
    pub fn new(engine: WasmEngine) -> Self {
        Self { engine, loaded_bytes_max: limits::LOADED_COMPONENT_BYTES.default, loaded: RwLock::default() }
    }

    /// The same with another bound.
    ///
    /// # Errors
    /// [`NodeError::Limit`] when it is out of range.
    pub fn with_loaded_bytes_max(self, bytes: u64) -> Result<Self, NodeError> {
        Ok(Self { loaded_bytes_max: limits::LOADED_COMPONENT_BYTES.check(bytes)?, ..self })
    }

    /// Prepares a component, unless it is loaded already, and says how to name it. CPU heavy: call it where blocking is allowed.
    ///
    /// # Errors
    /// [`LoadError`]; what was loaded before stays loaded.
    pub fn load(&self, component: &[u8]) -> Result<ComponentDigest, LoadError> {
        let digest = ComponentDigest::of(component);
        if self.prepared(digest).is_none() {
            let prepared = self.engine.prepare(component)?;
            self.keep(digest, prepared)?;
        }
        Ok(digest)
    }

    /// True when the component is loaded and can be woken by events.
    pub fn handles_events(&self, digest: ComponentDigest) -> bool {
        self.prepared(digest).is_some_and(|component| component.exports_handler())
    }

    fn prepared(&self, digest: ComponentDigest) -> Option<PreparedComponent> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned()
    }

    fn keep(&self, digest: ComponentDigest, prepared: PreparedComponent) -> Result<(), LoadError> {
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        if !loaded.contains_key(&digest) {
            let held_bytes: u64 = loaded.values().map(|component| component.code_bytes() as u64).sum();
            let (component_bytes, bytes_max) = (prepared.code_bytes() as u64, self.loaded_bytes_max);
            if held_bytes.saturating_add(component_bytes) > bytes_max {
                return Err(LoadError::Full { component_bytes, held_bytes, bytes_max });
            }
            loaded.insert(digest, prepared);
        }
        Ok(())
    }
}

impl ExecutionBackend for WasmBackend {
    fn run(&self, order: StartOrder) -> BackendFuture {
        let component = self.prepared(order.digest());
        let engine = self.engine.clone();
        Box::pin(async move {
            let Some(component) = component else {
                let reason = format!("component {} is not loaded on this node", order.digest());
                return ended_without_guest(ActivationOutcome::HostFailure { reason });
            };
            match order.confirm() {
                Ok(start) => run_confirmed(&engine, &component, start).await,
                Err(not_started) => not_started.into_report(),
            }
        })
    }

    fn cells_max(&self) -> Option<usize> {
        Some(self.engine.cells())
    }
}

async fn run_confirmed(engine: &WasmEngine, component: &PreparedComponent, start: ConfirmedStart) -> ActivationReport {
    let ConfirmedStart { event, session, budget, trace, contract, function } = start;
    if contract.as_str() != HANDLER_CONTRACT || function.as_str() != HANDLER_FUNCTION {
        let reason = format!("{contract}#{function} cannot be called with an event; only {HANDLER_CONTRACT}#{HANDLER_FUNCTION} can");
        return ended_without_guest(ActivationOutcome::IncompatibleContract { reason });
    }
    engine.run_handler(component, HandlerCall { event, session, budget, trace }).await
}
