//! The backend that runs WebAssembly: keeps prepared components by digest and hands confirmed starts to the engine.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use latent_core::{ActivationOutcome, ComponentDigest, LimitError};
use latent_wasmtime::{ActivationReport, HANDLER_CONTRACT, HandlerCall, PreparedComponent, WasmEngine, WasmError};

use super::{BackendFuture, ConfirmedStart, ExecutionBackend, StartOrder, ended_without_guest};
use crate::limits;

/// The function of [`HANDLER_CONTRACT`].
const HANDLER_FUNCTION: &str = "handle";

/// Runs components with a [`WasmEngine`].
///
/// What is loaded stays loaded: it can run, and authorises nothing.
pub struct WasmBackend {
    engine: WasmEngine,
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
    #[error("no room for another component: {0}")]
    Full(#[source] LimitError),
}

impl WasmBackend {
    /// A backend with nothing loaded.
    pub fn new(engine: WasmEngine) -> Self {
        Self { engine, loaded: RwLock::default() }
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
            let held: u64 = loaded.values().map(|component| component.code_bytes() as u64).sum();
            let wanted = held.saturating_add(prepared.code_bytes() as u64);
            limits::LOADED_COMPONENT_BYTES.check(wanted).map_err(LoadError::Full)?;
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
