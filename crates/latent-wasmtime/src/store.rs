//! What one activation owns while it runs: its store's data and the limiter of its memories and tables.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use latent_capabilities::{CompletionOwner, Session};
use latent_core::{BudgetKind, Deadline, TraceId};
use wasmtime::component::ResourceTable;
use wasmtime::{ResourceLimiter, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::activation_log::ActivationLog;
use crate::{host, limits};

/// The log, shared with the guest's output streams.
#[derive(Clone)]
pub(crate) struct SharedLog(Arc<Mutex<ActivationLog>>);

impl SharedLog {
    pub(crate) fn new(log: ActivationLog) -> Self {
        Self(Arc::new(Mutex::new(log)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ActivationLog> {
        // Nobody holds it across a point that can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory charged for the receipts that the guest was given.
///
/// A store frees its data before it frees the guest's memory, into which the receipts were lowered. So whoever makes a store keeps a
/// clone of this that is dropped after the store; the charges return with the last clone.
#[derive(Clone, Default)]
pub(crate) struct Completions(Arc<Mutex<Vec<CompletionOwner>>>);

impl Completions {
    /// Keeps one more. There are at most as many as the budget has outbound requests.
    pub(crate) fn keep(&self, owner: CompletionOwner) {
        if owner.bytes() > 0 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(owner);
        }
    }
}

/// The data of one activation's store.
pub(crate) struct StoreData {
    pub(crate) session: Session,
    /// The guest can derive keys, so a rerun must find what it found.
    pub(crate) derives_keys: bool,
    pub(crate) completions: Completions,
    pub(crate) trace: TraceId,
    /// When guest code must have ended.
    pub(crate) deadline: Deadline,
    pub(crate) log: SharedLog,
    pub(crate) limiter: Limiter,
    /// Made with the first call of WASI: most guests never make one, and it costs a microsecond.
    pub(crate) wasi: Option<WasiCtx>,
    pub(crate) resources: ResourceTable,
}

impl WasiView for StoreData {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let (log, spec) = (&self.log, self.session.spec());
        let origin = spec.origin.as_ref().filter(|_| self.derives_keys);
        let ctx = self.wasi.get_or_insert_with(|| host::wasi::confined(log, &spec.clock, origin));
        WasiCtxView { ctx, table: &mut self.resources }
    }
}

/// A table of host resources that cannot grow past its limit.
pub(crate) fn bounded_resources() -> ResourceTable {
    let mut resources = ResourceTable::new();
    resources.set_max_capacity(limits::HOST_RESOURCES.default_usize());
    resources
}

/// Puts the store under its limiter and bounds what the guest may hand over in one call.
pub(crate) fn confine(store: &mut Store<StoreData>, host_call_bytes: usize) {
    store.limiter(|data| &mut data.limiter);
    store.set_hostcall_fuel(host_call_bytes);
}

/// Bounds memory and table elements over all memories and tables of a store, and remembers what it refused last.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: Account,
    tables: Account,
}

/// One bounded sum.
#[derive(Debug)]
struct Account {
    held: usize,
    held_max: usize,
    peak: usize,
    /// The last growth granted, to give back when the allocator could not do it.
    granted: usize,
    /// The guest's last wish was refused. A later success clears it: that guest recovered, and ends for another reason.
    refused: bool,
}

impl Account {
    fn new(held_max: usize) -> Self {
        Self { held: 0, held_max, peak: 0, granted: 0, refused: false }
    }

    /// Grants a growth to `desired` if its own `maximum` and the sum allow it.
    fn grow(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> bool {
        let more = desired.saturating_sub(current);
        let held = self.held.saturating_add(more);
        self.refused = held > self.held_max || maximum.is_some_and(|maximum| desired > maximum);
        if self.refused {
            return false;
        }
        (self.held, self.granted) = (held, more);
        self.peak = self.peak.max(held);
        true
    }

    fn give_back(&mut self) {
        self.held = self.held.saturating_sub(std::mem::take(&mut self.granted));
        self.refused = true;
    }
}

impl Limiter {
    pub(crate) fn new(memory_bytes_max: usize) -> Self {
        Self { memory: Account::new(memory_bytes_max), tables: Account::new(limits::TABLE_ELEMENTS.default_usize()) }
    }

    /// The largest sum of memory that was held.
    pub(crate) fn memory_bytes_peak(&self) -> u64 {
        self.memory.peak as u64
    }

    /// The part of the budget whose last wish was refused.
    pub(crate) fn refused(&self) -> Option<BudgetKind> {
        if self.memory.refused {
            Some(BudgetKind::Memory)
        } else if self.tables.refused {
            Some(BudgetKind::Tables)
        } else {
            None
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.memory.grow(current, desired, maximum))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory.give_back();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.tables.grow(current, desired, maximum))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.tables.give_back();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_resources_are_bounded_at_their_edge() {
        let mut resources = bounded_resources();
        for _ in 0..limits::HOST_RESOURCES.default {
            resources.push(()).unwrap();
        }
        assert!(resources.push(()).is_err());
    }

    #[test]
    fn the_sum_over_all_memories_is_bounded_at_its_edge() {
        let mut limiter = Limiter::new(10);
        assert!(limiter.memory_growing(0, 4, None).unwrap() && limiter.memory_growing(0, 5, None).unwrap());
        assert!(!limiter.memory_growing(5, 7, None).unwrap());
        assert_eq!(limiter.refused(), Some(BudgetKind::Memory));
        assert!(limiter.memory_growing(5, 6, None).unwrap());
        assert_eq!((limiter.refused(), limiter.memory_bytes_peak()), (None, 10));
    }

    #[test]
    fn a_growth_that_the_allocator_could_not_do_is_given_back_and_counts_as_refused() {
        let mut limiter = Limiter::new(10);
        assert!(limiter.memory_growing(0, 8, None).unwrap());
        limiter.memory_grow_failed(wasmtime::Error::msg("no memory")).unwrap();
        assert_eq!(limiter.refused(), Some(BudgetKind::Memory));
        assert!(limiter.memory_growing(0, 10, None).unwrap());
    }

    #[test]
    fn a_memory_s_own_maximum_is_a_refusal_too() {
        let mut limiter = Limiter::new(10);
        assert!(!limiter.memory_growing(0, 3, Some(2)).unwrap());
    }

    #[test]
    fn table_elements_are_bounded_at_their_edge() {
        let mut limiter = Limiter::new(0);
        let most = limits::TABLE_ELEMENTS.default_usize();
        assert!(limiter.table_growing(0, most, None).unwrap());
        assert!(!limiter.table_growing(most, most + 1, None).unwrap());
        assert_eq!(limiter.refused(), Some(BudgetKind::Tables));
    }
}
