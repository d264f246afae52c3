//! One activation, from call to report.
//!
//! ```text
//! wait for a cell ─▶ fresh store ─▶ instantiate ─▶ handle(event) ─▶ report
//!        └───────────────┴──────────────┴─────────────────┴─ deadline ─▶ Timeout
//! ```
//! Two watches end it at its deadline: the epoch callback while the guest computes, the timer while it waits in a host call.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use latent_capabilities::Session;
use latent_core::{ActivationOutcome, Budget, Clock, Deadline, DeliveredEvent, TraceId};
use wasmtime::{Store, UpdateDeadline};

use crate::activation_log::{ActivationLog, LogLine};
use crate::bindings::FunctionPre;
use crate::engine::WasmEngine;
use crate::outcome::Stage;
use crate::store::{self, Limiter, SharedLog, StoreData};
use crate::{host, outcome};

/// What a handler is run with.
///
/// Activation id, tenant, clock and deadline are those of the session, so that they cannot disagree with it. The session's deadline
/// is when *guest code* must have ended: whoever opens the session has taken the settle margin off it already (T-063).
pub struct HandlerCall {
    /// The event.
    pub event: DeliveredEvent,
    /// What the activation may do, as whom, until when.
    pub session: Session,
    /// What it may use. Its `wall_time_millis` counts from the moment a cell is free; the session's deadline includes that wait.
    pub budget: Budget,
    /// The trace it belongs to.
    pub trace: TraceId,
}

/// How one activation ended and what it used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the outcome decides what happens to the event"]
pub struct ActivationReport {
    /// How it ended.
    pub outcome: ActivationOutcome,
    /// Fuel used, of `budget.cpu_fuel`.
    pub fuel_used: u64,
    /// Largest sum of linear memory held.
    pub memory_bytes_peak: u64,
    /// Log, stdout and stderr, in order, at most `budget.log_bytes`.
    pub log: Vec<LogLine>,
    /// Bytes that the guest wrote to its log beyond that.
    pub log_bytes_cut: u64,
}

impl ActivationReport {
    /// The report of an activation that ended before it had a store.
    pub(crate) fn not_started(outcome: ActivationOutcome) -> Self {
        Self { outcome, fuel_used: 0, memory_bytes_peak: 0, log: Vec::new(), log_bytes_cut: 0 }
    }
}

pub(crate) async fn run(engine: &WasmEngine, handler: &FunctionPre<StoreData>, call: HandlerCall) -> ActivationReport {
    let spec = call.session.spec();
    let (clock, deadline) = (Arc::clone(&spec.clock), spec.deadline);
    let Some(cell) = until(&*clock, deadline, engine.cell()).await else {
        return ActivationReport::not_started(ActivationOutcome::Timeout);
    };
    // The semaphore is never closed; if that changes, it is the host that has no cell.
    let Some(_cell) = cell else {
        return ActivationReport::not_started(ActivationOutcome::HostFailure { reason: "the engine gives out no cells".to_owned() });
    };
    let deadline = deadline.narrowed(clock.mono(), call.budget.wall_time_millis);
    let fuel = call.budget.cpu_fuel;
    let mut store = match fresh_store(engine, &call, deadline) {
        Ok(store) => store,
        Err(error) => return ActivationReport::not_started(outcome::of_error(&error, Stage::Starting, None)),
    };
    let ended = until(&*clock, deadline, call_handler(handler, &mut store, call.event)).await;
    let outcome = ended.unwrap_or(ActivationOutcome::Timeout);
    report(&store, fuel, outcome)
}

async fn call_handler(handler: &FunctionPre<StoreData>, store: &mut Store<StoreData>, event: DeliveredEvent) -> ActivationOutcome {
    let function = match handler.instantiate_async(&mut *store).await {
        Ok(function) => function,
        Err(error) => return outcome::of_error(&error, Stage::Starting, store.data().limiter.refused()),
    };
    match function.latent_events_handler().call_handle(&mut *store, &host::events::delivered(event)).await {
        Ok(result) => outcome::of_result(result),
        Err(error) => outcome::of_error(&error, Stage::Handling, store.data().limiter.refused()),
    }
}

/// `work` until `deadline`; `None` when the deadline came first, also when it has already passed.
async fn until<T>(clock: &dyn Clock, deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
    let left: Duration = deadline.at().since(clock.mono());
    if left.is_zero() {
        return None;
    }
    tokio::time::timeout(left, work).await.ok()
}

fn fresh_store(engine: &WasmEngine, call: &HandlerCall, deadline: Deadline) -> wasmtime::Result<Store<StoreData>> {
    let memory_bytes = call.budget.memory_bytes.min(engine.memory_bytes_max());
    let log = SharedLog::new(ActivationLog::new(saturating_usize(call.budget.log_bytes)));
    let clock = Arc::clone(&call.session.spec().clock);
    let data = StoreData {
        wasi: host::wasi::confined(&log, &clock),
        session: call.session.clone(),
        trace: call.trace,
        deadline,
        log,
        limiter: Limiter::new(saturating_usize(memory_bytes)),
        resources: store::bounded_resources(),
    };
    let mut store = Store::new(engine.wasmtime(), data);
    store::confine(&mut store);
    store.set_fuel(call.budget.cpu_fuel)?;
    store.set_epoch_deadline(1);
    // Each tick gives the executor its thread back, so that timers and cancellation reach a guest that only computes.
    store.epoch_deadline_callback(move |_| {
        if deadline.has_passed(clock.mono()) {
            return Err(outcome::DeadlinePassed.into());
        }
        Ok(UpdateDeadline::Yield(1))
    });
    Ok(store)
}

fn saturating_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn report(store: &Store<StoreData>, fuel: u64, outcome: ActivationOutcome) -> ActivationReport {
    let data = store.data();
    let (log, log_bytes_cut) = data.log.lock().finish();
    ActivationReport {
        outcome,
        // Fuel is always on, so reading it cannot fail.
        fuel_used: fuel.saturating_sub(store.get_fuel().unwrap_or(0)),
        memory_bytes_peak: data.limiter.memory_bytes_peak(),
        log,
        log_bytes_cut,
    }
}
