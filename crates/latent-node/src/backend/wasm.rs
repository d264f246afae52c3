//! The backend that runs WebAssembly: finds the component of a start, loading it if need be, and hands confirmed starts to the engine.
//!
//! ```text
//! run ─▶ loaded? ─ no ─▶ one load for all who wait ─▶ kept (others make room)
//!           └─ yes ──────────────┴─▶ confirm ─▶ engine
//! ```
//! Loading happens where blocking is allowed, never on the thread that polls. Whoever waits for a load waits inside its own deadline,
//! and is confirmed afterwards. A component that is loaded, or compiled on disk, can run and authorises nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use latent_core::{ActivationOutcome, ComponentDigest};
use latent_wasmtime::{
    ActivationReport, CompiledCache, FunctionCall, HANDLER_CONTRACT, HandlerCall, PreparedComponent, WasmEngine, WasmError,
};
use tokio::sync::watch;

use super::loaded::Loaded;
use super::{BackendFuture, ConfirmedStart, ExecutionBackend, StartOrder};
use crate::{Input, NodeError, limits};

/// The function of [`HANDLER_CONTRACT`].
const HANDLER_FUNCTION: &str = "handle";

/// Where the bytes of published components are.
pub trait ComponentSource: Send + Sync {
    /// The component of that digest. May block.
    ///
    /// # Errors
    /// In words, what is missing and what to do; the activation that asked ends as a host failure with it.
    fn read(&self, digest: ComponentDigest) -> Result<Vec<u8>, String>;
}

/// Runs components with a [`WasmEngine`], loading them when they are first used.
pub struct WasmBackend(Arc<Shared>);

struct Shared {
    engine: WasmEngine,
    cache: Option<Arc<CompiledCache>>,
    source: Option<Arc<dyn ComponentSource>>,
    state: Mutex<State>,
}

struct State {
    loaded: Loaded<PreparedComponent>,
    loading: BTreeMap<ComponentDigest, watch::Receiver<Option<LoadResult>>>,
}

type LoadResult = Result<PreparedComponent, LoadError>;

/// Why a component could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not a component that this host can run.
    #[error(transparent)]
    Component(#[from] WasmError),
    /// Its code alone is more than `loaded_component_bytes`.
    #[error("the component has {component_bytes} bytes of code, and loaded_component_bytes allows {bytes_max}; raise it, or build smaller")]
    TooLarge {
        /// Code of this component.
        component_bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// Nothing gives its bytes.
    #[error("component {digest} is not loaded on this node and cannot be read: {reason}")]
    NotAvailable {
        /// The component.
        digest: ComponentDigest,
        /// What the source of components said.
        reason: String,
    },
    /// What the source gave is another component.
    #[error("component {digest} was asked for, and its source holds {found}; reload the configuration")]
    OtherContent {
        /// What was asked for.
        digest: ComponentDigest,
        /// What is there.
        found: ComponentDigest,
    },
    /// The load ended without a result, because the node is going down.
    #[error("loading component {digest} was interrupted; the node is stopping")]
    Interrupted {
        /// The component.
        digest: ComponentDigest,
    },
}

/// What a [`WasmBackend`] is made of.
#[derive(Clone)]
pub struct WasmBackendOptions {
    /// Runs the guests.
    pub engine: WasmEngine,
    /// Code that may be loaded at one time (`loaded_component_bytes`).
    pub loaded_bytes_max: u64,
    /// Compiled code on disk.
    pub cache: Option<Arc<CompiledCache>>,
    /// The components themselves. Without one, only what [`WasmBackend::load`] was given can run, until it makes room.
    pub source: Option<Arc<dyn ComponentSource>>,
}

/// What is loaded now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadedSnapshot {
    /// Components.
    pub components: usize,
    /// Their code.
    pub bytes: u64,
    /// The most there may be (`loaded_component_bytes`).
    pub bytes_max: u64,
    /// Components that made room for others so far.
    pub evicted: u64,
}

impl WasmBackend {
    /// A backend with nothing loaded, no cache and no source, bounded by the default of `loaded_component_bytes`.
    pub fn new(engine: WasmEngine) -> Self {
        let loaded_bytes_max = limits::LOADED_COMPONENT_BYTES.default;
        Self::of(WasmBackendOptions { engine, loaded_bytes_max, cache: None, source: None })
    }

    /// A backend with nothing loaded.
    ///
    /// # Errors
    /// [`NodeError::Limit`] when `loaded_bytes_max` is out of range.
    pub fn with_options(options: WasmBackendOptions) -> Result<Self, NodeError> {
        limits::LOADED_COMPONENT_BYTES.check(options.loaded_bytes_max)?;
        Ok(Self::of(options))
    }

    fn of(options: WasmBackendOptions) -> Self {
        let WasmBackendOptions { engine, loaded_bytes_max, cache, source } = options;
        let state = State { loaded: Loaded::new(loaded_bytes_max), loading: BTreeMap::new() };
        Self(Arc::new(Shared { engine, cache, source, state: Mutex::new(state) }))
    }

    /// Prepares a component, unless it is loaded already. CPU heavy: call it where blocking is allowed.
    ///
    /// # Errors
    /// [`LoadError`]; what was loaded before stays loaded.
    pub fn load(&self, component: &[u8]) -> Result<PreparedComponent, LoadError> {
        let digest = ComponentDigest::of(component);
        match self.0.loaded(digest) {
            Some(prepared) => Ok(prepared),
            None => self.0.keep(self.0.prepare(component)?),
        }
    }

    /// True while the component's code is in memory.
    pub fn is_loaded(&self, digest: ComponentDigest) -> bool {
        self.0.lock().loaded.contains(digest)
    }

    /// What is loaded now.
    pub fn snapshot(&self) -> LoadedSnapshot {
        let state = self.0.lock();
        let loaded = &state.loaded;
        LoadedSnapshot { components: loaded.len(), bytes: loaded.bytes(), bytes_max: loaded.bytes_max(), evicted: loaded.evicted() }
    }
}

impl Shared {
    // No guarded section calls out, so a poisoned lock still guards a whole state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loaded(&self, digest: ComponentDigest) -> Option<PreparedComponent> {
        self.lock().loaded.get(digest)
    }

    fn prepare(&self, component: &[u8]) -> LoadResult {
        Ok(match &self.cache {
            Some(cache) => self.engine.prepare_cached(cache, component)?,
            None => self.engine.prepare(component)?,
        })
    }

    fn keep(&self, prepared: PreparedComponent) -> LoadResult {
        let component_bytes = prepared.code_bytes() as u64;
        let mut state = self.lock();
        let bytes_max = state.loaded.bytes_max();
        match state.loaded.keep(prepared.digest(), prepared.clone(), component_bytes) {
            Ok(()) => Ok(prepared),
            Err(_) => Err(LoadError::TooLarge { component_bytes, bytes_max }),
        }
    }

    /// From disk, compiled or as it was published. Blocks.
    fn fetch(&self, digest: ComponentDigest) -> LoadResult {
        if let Some(cache) = &self.cache
            && let Some(prepared) = self.engine.load_cached(cache, digest)?
        {
            return self.keep(prepared);
        }
        let not_available = |reason| LoadError::NotAvailable { digest, reason };
        let source = self.source.as_ref().ok_or_else(|| not_available("this node has no source of components".to_owned()))?;
        let component = source.read(digest).map_err(not_available)?;
        let found = ComponentDigest::of(&component);
        if found != digest {
            return Err(LoadError::OtherContent { digest, found });
        }
        self.keep(self.prepare(&component)?)
    }

    /// The component, loaded by at most one task at a time for all who want it.
    async fn component(self: &Arc<Self>, digest: ComponentDigest) -> LoadResult {
        let mut loading = {
            let mut state = self.lock();
            if let Some(prepared) = state.loaded.get(digest) {
                return Ok(prepared);
            }
            state.loading.entry(digest).or_insert_with(|| self.begin_loading(digest)).clone()
        };
        let ended = loading.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        ended.unwrap_or(Err(LoadError::Interrupted { digest }))
    }

    /// Starts a load that does not end with those who wait for it: the next one may want it as well.
    fn begin_loading(self: &Arc<Self>, digest: ComponentDigest) -> watch::Receiver<Option<LoadResult>> {
        let (ended, loading) = watch::channel(None);
        let load = Load { shared: Arc::clone(self), digest };
        tokio::task::spawn_blocking(move || {
            let result = load.shared.fetch(digest);
            // Whoever comes from here on finds it loaded, or tries again.
            drop(load);
            ended.send_replace(Some(result));
        });
        loading
    }
}

/// A load under way. When it goes, be it by a panic or with its runtime, the next one may try.
struct Load {
    shared: Arc<Shared>,
    digest: ComponentDigest,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.lock().loading.remove(&self.digest);
    }
}

impl ExecutionBackend for WasmBackend {
    fn run(&self, order: Box<StartOrder>) -> BackendFuture {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let component = match shared.component(order.digest()).await {
                Ok(component) => component,
                Err(error) => return ActivationReport::without_guest(ActivationOutcome::HostFailure { reason: error.to_string() }),
            };
            match order.confirm() {
                Ok(start) => run_confirmed(&shared.engine, &component, start).await,
                Err(not_started) => not_started.into_report(),
            }
        })
    }

    fn cells_max(&self) -> Option<usize> {
        Some(self.0.engine.cells())
    }
}

async fn run_confirmed(engine: &WasmEngine, component: &PreparedComponent, start: ConfirmedStart) -> ActivationReport {
    let ConfirmedStart { input, session, budget, trace, contract, function } = start;
    match input {
        Input::Event(event) if contract.as_str() == HANDLER_CONTRACT && function.as_str() == HANDLER_FUNCTION => {
            engine.run_handler(component, HandlerCall { event, session, budget, trace }).await
        }
        Input::Event(_) => {
            let reason = format!("{contract}#{function} cannot be called with an event; only {HANDLER_CONTRACT}#{HANDLER_FUNCTION} can");
            ActivationReport::without_guest(ActivationOutcome::IncompatibleContract { reason })
        }
        Input::Values(arguments) => {
            engine.run_function(component, FunctionCall { contract, function, arguments, session, budget, trace }).await
        }
    }
}
