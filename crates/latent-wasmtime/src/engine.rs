//! The engine: one configuration, one pool of cells, one linker, one epoch thread.

use std::fmt;
use std::sync::{Arc, OnceLock};

use latent_core::{ActivationOutcome, Limit, LimitError};
use tokio::sync::{Semaphore, SemaphorePermit};
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, WasmBacktraceDetails};

use crate::activation::{Conditions, Entry};
use crate::compiled::EngineIdentity;
use crate::store::StoreData;
use crate::ticker::{Ticker, Ticking};
use crate::{ActivationReport, FunctionCall, HandlerCall, PreparedComponent, WasmError, activation, host, limits};

/// What an engine is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// Activations that may run at the same time (`limits::CELLS`).
    pub cells: u64,
    /// Linear memory one cell can hold (`limits::CELL_MEMORY_BYTES`). A budget above it gets no more than this.
    pub memory_bytes_max: u64,
}

impl Default for EngineOptions {
    /// The defaults of the limits; `cells` does not depend on the machine.
    fn default() -> Self {
        Self { cells: limits::CELLS.default, memory_bytes_max: limits::CELL_MEMORY_BYTES.default }
    }
}

impl EngineOptions {
    /// The defaults with two cells for each core.
    pub fn for_cores(cores: usize) -> Self {
        let cells = (cores as u64).saturating_mul(2).clamp(limits::CELLS.min, limits::CELLS.max);
        Self { cells, ..Self::default() }
    }

    fn checked(self) -> Result<Cells, LimitError> {
        let narrow = |limit: Limit, value: u64| limit.check(value).map(|value| u32::try_from(value).unwrap_or(u32::MAX));
        let memory_bytes_max = limits::CELL_MEMORY_BYTES.check(self.memory_bytes_max)?;
        Ok(Cells {
            count: narrow(limits::CELLS, self.cells)?,
            // The limit's maximum fits every supported target.
            memory_bytes_max: usize::try_from(memory_bytes_max).unwrap_or(usize::MAX),
        })
    }
}

/// Checked options.
#[derive(Debug, Clone, Copy)]
struct Cells {
    count: u32,
    memory_bytes_max: usize,
}

/// Prepares components and runs them. Cheap to clone; the last clone stops the epoch thread.
#[derive(Clone)]
pub struct WasmEngine(Arc<Inner>);

struct Inner {
    engine: Engine,
    linker: Linker<StoreData>,
    ticker: Ticker,
    free_cells: Semaphore,
    cells: Cells,
    identity: OnceLock<EngineIdentity>,
}

/// A cell in use: while it lives, its holder may own one store.
pub(crate) struct Cell<'a> {
    _permit: SemaphorePermit<'a>,
    _ticking: Ticking,
}

impl WasmEngine {
    /// Reserves the pool's address space and starts the (parked) epoch thread.
    ///
    /// # Errors
    /// [`WasmError::Limit`] for options out of range, [`WasmError::EngineUnavailable`] or [`WasmError::NoThread`] when the machine
    /// refuses.
    pub fn new(options: EngineOptions) -> Result<Self, WasmError> {
        let cells = options.checked()?;
        let unavailable = |error: wasmtime::Error| WasmError::EngineUnavailable { cells: options.cells, detail: format!("{error:#}") };
        let engine = Engine::new(&configuration(cells)).map_err(unavailable)?;
        let linker = host::linker(&engine).map_err(unavailable)?;
        let ticking = engine.clone();
        let ticker = Ticker::start(move || ticking.increment_epoch()).map_err(|error| WasmError::NoThread { detail: error.to_string() })?;
        Ok(Self(Arc::new(Inner {
            engine,
            linker,
            ticker,
            free_cells: Semaphore::new(cells.count as usize),
            cells,
            identity: OnceLock::new(),
        })))
    }

    /// Checks, compiles and links a component. CPU heavy: call it where blocking is allowed.
    ///
    /// # Errors
    /// Every way in which bytes can fail to be a component that this host can run; see [`WasmError`].
    pub fn prepare(&self, component: &[u8]) -> Result<PreparedComponent, WasmError> {
        PreparedComponent::prepare(&self.0.engine, &self.0.linker, component)
    }

    /// Runs the component's handler on one event, in a fresh store, and says how it ended. Waits for a free cell first; the wait
    /// counts against the deadline. Never panics and never fails: every end is in the report.
    ///
    /// Dropping the future cancels the activation: the guest is unwound, the cell is free again, and a publication under way ends as
    /// the session's audit says. Needs a tokio runtime with time enabled.
    pub fn run_handler(&self, component: &PreparedComponent, call: HandlerCall) -> impl Future<Output = ActivationReport> + Send + use<> {
        let (engine, component) = (self.clone(), component.clone());
        async move {
            let HandlerCall { event, session, budget, trace } = call;
            let conditions = Conditions { session, budget, trace, derives_keys: component.derives_keys() };
            match component.handler() {
                Some(handler) => activation::run(&engine, conditions, Entry::Handler { handler, event }).await,
                None => not_exported(&component, crate::HANDLER_CONTRACT),
            }
        }
    }

    /// Calls any exported function with values, in a fresh store, and says how it ended; the report has what it gave back. Otherwise
    /// as [`WasmEngine::run_handler`]. A handler called this way gets its event as a value, and its `err` is a declared failure.
    pub fn run_function(&self, component: &PreparedComponent, call: FunctionCall) -> impl Future<Output = ActivationReport> + Send + use<> {
        let (engine, component) = (self.clone(), component.clone());
        async move {
            let FunctionCall { contract, function, arguments, session, budget, trace } = call;
            match component.function(&contract, &function) {
                Some(function) => {
                    let entry = Entry::Function { instance: component.instance(), function, arguments };
                    let conditions = Conditions { session, budget, trace, derives_keys: component.derives_keys() };
                    activation::run(&engine, conditions, entry).await
                }
                None => not_exported(&component, &format!("{contract}#{function}")),
            }
        }
    }

    /// Activations that may run at the same time.
    pub fn cells(&self) -> usize {
        self.0.cells.count as usize
    }

    /// Cells that no activation holds now.
    pub fn free_cells(&self) -> usize {
        self.0.free_cells.available_permits()
    }

    /// Linear memory one activation can be given at most.
    pub fn memory_bytes_max(&self) -> u64 {
        self.0.cells.memory_bytes_max as u64
    }

    pub(crate) fn wasmtime(&self) -> &Engine {
        &self.0.engine
    }

    pub(crate) fn linker(&self) -> &Linker<StoreData> {
        &self.0.linker
    }

    /// What code compiled for this engine is kept under.
    pub(crate) fn identity(&self) -> EngineIdentity {
        *self.0.identity.get_or_init(|| EngineIdentity::of(&self.0.engine))
    }

    /// Memory that the pool may hold although nothing runs: what each memory, table and stack keeps for the next activation. Part of
    /// the node's bound; an engine that ran little holds little of it.
    pub fn resident_bytes_bound(&self) -> u64 {
        let kept = Kept::on_this_kernel();
        let each = |limit: Limit, bytes: usize| limit.max.saturating_mul(bytes as u64);
        let cell = each(limits::MEMORIES, kept.memory_bytes).saturating_add(each(limits::TABLES, kept.table_bytes)) + STACK_BYTES as u64;
        cell.saturating_mul(self.0.cells.count.into())
    }

    /// Waits for a cell. `None` never happens while the engine exists, which the caller holds.
    pub(crate) async fn cell(&self) -> Option<Cell<'_>> {
        let permit = self.0.free_cells.acquire().await.ok()?;
        Some(Cell { _permit: permit, _ticking: self.0.ticker.tick_while_held() })
    }
}

fn not_exported(component: &PreparedComponent, what: &str) -> ActivationReport {
    let reason = format!("{} does not export {what}", component.digest());
    ActivationReport::without_guest(ActivationOutcome::IncompatibleContract { reason })
}

impl fmt::Debug for WasmEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmEngine").field("cells", &self.cells()).field("free_cells", &self.free_cells()).finish_non_exhaustive()
    }
}

/// One activation's stack. Its pages stay with the pool: the next one only writes to them.
const STACK_BYTES: usize = 2 << 20;

/// What a memory and a table keep when their activation ends, wiped, instead of giving it back to the system: giving back and faulting in
/// again costs several times the activation, and stalls the other threads of the process.
#[derive(Debug, Clone, Copy)]
struct Kept {
    memory_bytes: usize,
    table_bytes: usize,
}

impl Kept {
    /// Where the kernel says which pages were written, the first so many of those are kept. Where it does not, they would be the first
    /// of the memory, written or not, and wiping them costs as much as giving them back.
    fn on_this_kernel() -> Self {
        let memory_bytes = if PoolingAllocationConfig::is_pagemap_scan_available() { 2 << 20 } else { 0 };
        Self { memory_bytes, table_bytes: 16 << 10 }
    }
}

fn configuration(cells: Cells) -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        .memory_init_cow(true)
        .async_stack_size(STACK_BYTES)
        .cranelift_opt_level(OptLevel::Speed)
        // Frames get names and, where the component carries them, source lines; only read when a guest traps.
        .wasm_backtrace_details(WasmBacktraceDetails::Enable)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(cells)));
    config
}

/// Room for exactly `cells` components of the largest admitted shape. Address space only: memory is committed as it is touched, and
/// kept as [`Kept`] says.
fn pool(cells: Cells) -> PoolingAllocationConfig {
    let narrow = |limit: Limit| u32::try_from(limit.max).unwrap_or(u32::MAX);
    let each = |limit: Limit| cells.count.saturating_mul(narrow(limit));
    let kept = Kept::on_this_kernel();
    let mut pool = PoolingAllocationConfig::new();
    pool.pagemap_scan(Enabled::Auto).linear_memory_keep_resident(kept.memory_bytes).table_keep_resident(kept.table_bytes);
    pool.total_component_instances(cells.count)
        .total_stacks(cells.count)
        .total_core_instances(each(limits::CORE_INSTANCES))
        .total_memories(each(limits::MEMORIES))
        .total_tables(each(limits::TABLES))
        .max_core_instances_per_component(narrow(limits::CORE_INSTANCES))
        .max_memories_per_component(narrow(limits::MEMORIES))
        .max_tables_per_component(narrow(limits::TABLES))
        .max_tables_per_module(narrow(limits::TABLES))
        .max_memories_per_module(narrow(limits::MEMORIES))
        .table_elements(limits::TABLE_ELEMENTS.max_usize())
        .max_memory_size(cells.memory_bytes_max);
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_at_their_edges() {
        let with = |cells, memory_bytes_max| EngineOptions { cells, memory_bytes_max }.checked().map_err(|refused| refused.name);
        let (cells, memory) = (limits::CELLS, limits::CELL_MEMORY_BYTES);
        assert!(with(cells.min, memory.min).is_ok() && with(cells.max, memory.max).is_ok());
        for bad in [cells.min - 1, cells.max + 1, u64::MAX] {
            assert_eq!(with(bad, memory.min).err(), Some("cells"), "{bad}");
        }
        for bad in [memory.min - 1, memory.max + 1, u64::MAX] {
            assert_eq!(with(cells.min, bad).err(), Some("cell_memory_bytes"), "{bad}");
        }
    }

    #[test]
    fn a_core_has_two_cells() {
        assert_eq!([0, 1, 8, usize::MAX].map(|cores| EngineOptions::for_cores(cores).cells), [1, 2, 16, limits::CELLS.max]);
    }

    #[test]
    fn what_a_pool_keeps_is_bounded_by_its_cells() {
        let bound = |cells| WasmEngine::new(EngineOptions { cells, ..EngineOptions::default() }).unwrap().resident_bytes_bound();
        let one = bound(1);
        // With and without a kernel that says which pages were written.
        assert!([11_010_048, 2_621_440].contains(&one), "{one}");
        assert_eq!(bound(7), 7 * one);
    }

    #[test]
    fn the_largest_pool_can_be_made() {
        let largest = EngineOptions { cells: limits::CELLS.max, memory_bytes_max: limits::CELL_MEMORY_BYTES.max };
        let engine = WasmEngine::new(largest).unwrap();
        assert_eq!((engine.cells(), engine.free_cells()), (1_024, 1_024));
    }
}
