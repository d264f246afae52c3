//! One activation, from call to report.
//!
//! ```text
//! wait for a cell ─▶ arguments ─▶ fresh store ─▶ instantiate ─▶ call ─▶ result ─▶ report
//!        └───────────────┴──────────────┴───────────┴─────────────┴─ deadline ─▶ Timeout
//! ```
//! The arguments of a function call become values only when there is a cell, so that the memory of values is bounded by the cells.
//! Two watches end it at its deadline: the epoch callback while the guest computes, the timer while it waits in a host call.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use latent_capabilities::{Publications, Session};
use latent_core::{ActivationOutcome, Budget, Clock, ContractName, Deadline, DeliveredEvent, FunctionName, TraceId};
use wasmtime::component::{InstancePre, Val};
use wasmtime::{Store, UpdateDeadline};

use crate::activation_log::{ActivationLog, LogLine};
use crate::bindings::FunctionPre;
use crate::contracts::ExportedFunction;
use crate::engine::WasmEngine;
use crate::outcome::Stage;
use crate::store::{self, Completions, Limiter, SharedLog, StoreData};
use crate::values::ValuesLimits;
use crate::{host, limits, outcome};

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

/// What a function is called with.
///
/// As with [`HandlerCall`], identity, clock and deadline are those of the session.
pub struct FunctionCall {
    /// The exported interface.
    pub contract: ContractName,
    /// The function in it.
    pub function: FunctionName,
    /// Its arguments: one positional array in the form of [`crate::values`].
    pub arguments: Bytes,
    /// What the activation may do, as whom, until when.
    pub session: Session,
    /// What it may use.
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
    /// What a function gave back, also when that is its declared failure: one positional array in the form of [`crate::values`]. A
    /// handler that answers an event has none.
    pub result: Option<Bytes>,
    /// Fuel used, of `budget.cpu_fuel`, as far as the engine has booked it: it books at calls and returns, so a guest that is stopped in the
    /// middle of a loop has used more. Of an activation that somebody else stopped it is 0, as the next two are.
    pub fuel_used: u64,
    /// Largest sum of linear memory held.
    pub memory_bytes_peak: u64,
    /// Publications attempted, of `budget.outbound_requests`.
    pub outbound_requests: u64,
    /// What became of them, as far as the report's author knows: of an activation that somebody else stopped, ask its session.
    pub publications: Publications,
    /// Log, stdout and stderr, in order, at most `budget.log_bytes`.
    pub log: Vec<LogLine>,
    /// Bytes that the guest wrote to its log beyond that.
    pub log_bytes_cut: u64,
}

impl ActivationReport {
    /// The report of an activation in which no guest ran, or of which nobody can say what it used.
    pub const fn without_guest(outcome: ActivationOutcome) -> Self {
        Self {
            outcome,
            result: None,
            fuel_used: 0,
            memory_bytes_peak: 0,
            outbound_requests: 0,
            publications: Publications::NONE,
            log: Vec::new(),
            log_bytes_cut: 0,
        }
    }
}

/// Under which conditions something is called.
pub(crate) struct Conditions {
    pub(crate) session: Session,
    pub(crate) budget: Budget,
    pub(crate) trace: TraceId,
    /// What runs can derive keys.
    pub(crate) derives_keys: bool,
}

/// What is called.
pub(crate) enum Entry<'a> {
    Handler { handler: &'a FunctionPre<StoreData>, event: DeliveredEvent },
    Function { instance: &'a InstancePre<StoreData>, function: &'a ExportedFunction, arguments: Bytes },
}

/// How a call ended, and what it gave back.
struct Ended {
    outcome: ActivationOutcome,
    result: Option<Bytes>,
}

impl From<ActivationOutcome> for Ended {
    fn from(outcome: ActivationOutcome) -> Self {
        Self { outcome, result: None }
    }
}

pub(crate) async fn run(engine: &WasmEngine, conditions: Conditions, entry: Entry<'_>) -> ActivationReport {
    let spec = conditions.session.spec();
    let (clock, deadline) = (Arc::clone(&spec.clock), spec.deadline);
    let Some(cell) = until(&*clock, deadline, engine.cell()).await else {
        return ActivationReport::without_guest(ActivationOutcome::Timeout);
    };
    // The semaphore is never closed; if that changes, it is the host that has no cell.
    let Some(_cell) = cell else {
        return ActivationReport::without_guest(ActivationOutcome::HostFailure { reason: "the engine gives out no cells".to_owned() });
    };
    let work = match Work::prepare(entry) {
        Ok(work) => work,
        Err(outcome) => return ActivationReport::without_guest(outcome),
    };
    let deadline = deadline.narrowed(clock.mono(), conditions.budget.wall_time_millis);
    let fuel = conditions.budget.cpu_fuel;
    // Declared before the store, so dropped after it: the guest's memory goes before the charge for what was lowered into it.
    let completions = Completions::default();
    let mut store = match fresh_store(engine, &conditions, deadline, work.host_call_bytes()) {
        Ok(store) => store,
        Err(error) => return ActivationReport::without_guest(outcome::of_error(&error, Stage::Starting, None)),
    };
    store.data_mut().completions = completions.clone();
    let ended = until(&*clock, deadline, work.call(&mut store)).await;
    report(&store, &conditions.budget, fuel, ended.unwrap_or_else(|| ActivationOutcome::Timeout.into()))
}

/// What is called, with arguments that fit it.
enum Work<'a> {
    Handler { handler: &'a FunctionPre<StoreData>, event: DeliveredEvent },
    Function { instance: &'a InstancePre<StoreData>, function: &'a ExportedFunction, arguments: Vec<Val> },
}

impl<'a> Work<'a> {
    fn prepare(entry: Entry<'a>) -> Result<Self, ActivationOutcome> {
        Ok(match entry {
            Entry::Handler { handler, event } => Self::Handler { handler, event },
            Entry::Function { instance, function, arguments } => {
                let arguments = function
                    .signature
                    .decode(&arguments, &ValuesLimits::default())
                    .map_err(|error| ActivationOutcome::InvalidArguments { reason: error.to_string() })?;
                Self::Function { instance, function, arguments }
            }
        })
    }

    /// What the guest may hand over in one call of the host, its result included.
    fn host_call_bytes(&self) -> usize {
        match self {
            Self::Handler { .. } => limits::HOST_CALL_BYTES.default_usize(),
            Self::Function { .. } => limits::RESULT_LIFT_BYTES.default_usize(),
        }
    }

    async fn call(self, store: &mut Store<StoreData>) -> Ended {
        match self {
            Self::Handler { handler, event } => call_handler(handler, store, event).await.into(),
            Self::Function { instance, function, arguments } => call_function(instance, store, function, &arguments).await,
        }
    }
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

async fn call_function(
    instance: &InstancePre<StoreData>,
    store: &mut Store<StoreData>,
    function: &ExportedFunction,
    arguments: &[Val],
) -> Ended {
    let instance = match instance.instantiate_async(&mut *store).await {
        Ok(instance) => instance,
        Err(error) => return outcome::of_error(&error, Stage::Starting, store.data().limiter.refused()).into(),
    };
    let Some(callable) = instance.get_func(&mut *store, function.index) else {
        let reason = "the function that the component was prepared with is not in its instance".to_owned();
        return ActivationOutcome::HostFailure { reason }.into();
    };
    let mut results = vec![Val::Bool(false); function.signature.results()];
    if let Err(error) = callable.call_async(&mut *store, arguments, &mut results).await {
        return outcome::of_call(&error, store.data().limiter.refused()).into();
    }
    match function.signature.encode(&results, &ValuesLimits::default()) {
        Ok(result) => Ended { outcome: outcome::of_values(&results), result: Some(result) },
        Err(error) => outcome::of_unencodable(&error).into(),
    }
}

/// `work` until `deadline`; `None` when the deadline came first, also when it has already passed.
async fn until<T>(clock: &dyn Clock, deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
    if deadline.at().since(clock.mono()).is_zero() {
        return None;
    }
    let mut work = pin!(work);
    // Most guests never wait, and a timer for what is ready at once would be a good part of a short activation.
    if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        return Some(done);
    }
    tokio::time::timeout(deadline.at().since(clock.mono()), work).await.ok()
}

fn fresh_store(engine: &WasmEngine, call: &Conditions, deadline: Deadline, host_call_bytes: usize) -> wasmtime::Result<Store<StoreData>> {
    let memory_bytes = call.budget.memory_bytes.min(engine.memory_bytes_max());
    let log = SharedLog::new(ActivationLog::new(saturating_usize(call.budget.log_bytes)));
    let clock = Arc::clone(&call.session.spec().clock);
    let data = StoreData {
        wasi: None,
        session: call.session.clone(),
        derives_keys: call.derives_keys,
        completions: Completions::default(),
        trace: call.trace,
        deadline,
        log,
        limiter: Limiter::new(saturating_usize(memory_bytes)),
        resources: store::bounded_resources(),
    };
    let mut store = Store::new(engine.wasmtime(), data);
    store::confine(&mut store, host_call_bytes);
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

fn report(store: &Store<StoreData>, budget: &Budget, fuel: u64, ended: Ended) -> ActivationReport {
    let data = store.data();
    let (log, log_bytes_cut) = data.log.lock().finish();
    ActivationReport {
        outcome: ended.outcome,
        result: ended.result,
        // Fuel is always on, so reading it cannot fail.
        fuel_used: fuel.saturating_sub(store.get_fuel().unwrap_or(0)),
        memory_bytes_peak: data.limiter.memory_bytes_peak(),
        outbound_requests: budget.outbound_requests.saturating_sub(data.session.requests_left()),
        // The guest has ended, and with it every publication: a call of the host does not outlive the call of the guest it came from.
        publications: data.session.take_publications(),
        log,
        log_bytes_cut,
    }
}
