//! The activation manager: the thin shell around admission and scheduler. It decides nothing that they can decide.
//!
//! ```text
//! reserve_inbound ─▶ Reservation ─ activate ─▶ queue ─▶ cell ─▶ backend (confirms, runs) ─▶ journal, ticket, capacity
//!                        │ dropped               │ deadline, cancel, shutdown     │ panic, overrun, cancel
//!                        ▼                       ▼                                ▼
//!                     returned                 ended                            ended
//! ```
//!
//! Invariants:
//! - Everything admitted ends in exactly one place, [`LocalActivationManager::end`], whatever happens to it; there its slot returns.
//! - A ticket completes after its slot has returned, so who reads it can reserve again.
//! - No listener is called, no ticket completed and no task spawned while the state is locked.
//! - One task lives as long as the manager, to end what waits longer than its deadline; each running activation is one more.

mod attention;
mod reservation;
mod running;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use latent_capabilities::{ActivationCapabilityRuntime, Origin, SessionSpec};
use latent_core::{
    ActivationId, ActivationOutcome, Clock, Completer, Deadline, MonoTime, Offset, Partition, Place, Ticket, TopicName, TraceId, UnixMillis,
};
use latent_wasmtime::ActivationReport;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};

use crate::activation::reservation::Held;
use crate::admission::{Account, Admission, AdmissionSnapshot, Phase, Reserved, Slot};
use crate::backend::{ExecutionBackend, StartTime};
use crate::journal::{Ended, Journal, JournalEntry};
use crate::route::Pin;
use crate::scheduler::{Entry, Scheduler, Started};
use crate::{
    ActivationEnd, CallOrder, Catalog, Delivery, IdSource, InboundOrder, InboundTarget, Input, NodeError, NodeLimits, ReserveRefusal,
    limits,
};

pub use reservation::Reservation;

/// What a manager is made of.
pub struct ManagerOptions {
    /// Runs guests.
    pub backend: Arc<dyn ExecutionBackend>,
    /// What may be called.
    pub catalog: Arc<Catalog>,
    /// What functions may do, and through what.
    pub capabilities: Arc<ActivationCapabilityRuntime>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids and traces.
    pub ids: Arc<dyn IdSource>,
    /// Bounds.
    pub limits: NodeLimits,
    /// Where activations run. Needs time enabled.
    pub runtime: Handle,
}

/// Called when capacity has returned. May be called on any thread, also from inside [`LocalActivationManager::activate`] and the
/// drop of a [`Reservation`]; it must not panic and should only wake whoever waits.
pub type CapacityListener = Arc<dyn Fn() + Send + Sync>;

/// Called once for everything that was handed over, when it has ended, with what the journal is about to keep of it. Called on the thread
/// that ends the activation, so it must be short, and must neither block nor panic.
pub type EndListener = Arc<dyn Fn(&JournalEntry) + Send + Sync>;

/// Admits, queues and runs activations on one node.
pub struct LocalActivationManager {
    parts: ManagerOptions,
    state: Mutex<State>,
    journal: Mutex<Journal>,
    listeners: Mutex<Vec<CapacityListener>>,
    end_listener: OnceLock<EndListener>,
    /// The node's account, up to date while somebody waits for it.
    account: watch::Sender<Account>,
    /// The earliest deadline in the queue may have changed.
    queue_changed: Arc<Notify>,
}

struct State {
    intake: Intake,
    admission: Admission,
    scheduler: Scheduler<Waiting>,
    /// How to stop what has a cell.
    running: BTreeMap<ActivationId, oneshot::Sender<()>>,
}

/// Queued work and its input.
struct Waiting {
    work: Work,
    input: Input,
}

/// Work that got a cell, and how it learns that it is to stop.
struct Launch {
    start: Started<Waiting>,
    stopped: oneshot::Receiver<()>,
}

/// What the manager still accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Intake {
    /// Everything.
    Open,
    /// What is reserved already.
    Draining,
    /// Nothing.
    Shut,
}

/// What is handed over with a reservation.
struct Order {
    input: Input,
    origin: Option<Origin>,
    /// Which event is run, and for which time.
    delivery: Option<(Place, u32)>,
    deadline: Deadline,
    trace: Option<TraceId>,
}

/// Everything about one activation but its slot and its input.
struct Work {
    activation: ActivationId,
    trace: TraceId,
    target: InboundTarget,
    pin: Pin,
    origin: Option<Origin>,
    delivery: Option<(Place, u32)>,
    deadline: Deadline,
    queued_at: UnixMillis,
    queued_mono: MonoTime,
    completer: Completer<ActivationEnd>,
}

impl LocalActivationManager {
    /// A manager with empty accounts. Spawns the task that watches the queue.
    ///
    /// # Errors
    /// [`NodeError`] when a limit is out of range or the backend has fewer cells than the node is to have.
    pub fn new(options: ManagerOptions) -> Result<Arc<Self>, NodeError> {
        let limits = options.limits.checked()?;
        if let Some(backend_cells) = options.backend.cells_max().filter(|cells| *cells < limits.cells as usize) {
            return Err(NodeError::TooFewBackendCells { cells: limits.cells, backend_cells });
        }
        let queue_changed = Arc::new(Notify::new());
        let manager = Arc::new(Self {
            state: Mutex::new(State {
                intake: Intake::Open,
                admission: Admission::new(limits),
                // As many tenants as can hold something are remembered, so nobody who waits is forgotten.
                scheduler: Scheduler::new(limits.admission_slots as usize),
                running: BTreeMap::new(),
            }),
            journal: Mutex::new(Journal::new(&limits)),
            listeners: Mutex::default(),
            end_listener: OnceLock::new(),
            account: watch::Sender::new(Account::default()),
            queue_changed: Arc::clone(&queue_changed),
            parts: options,
        });
        manager.parts.runtime.spawn(expire_queued(Arc::downgrade(&manager), queue_changed));
        Ok(manager)
    }

    /// Pins the route and takes a slot and the input memory, before anything is asked of the event's source. Starts no store and
    /// no cell. Dropping the reservation returns everything.
    ///
    /// # Errors
    /// [`ReserveRefusal`]; nothing was taken.
    pub fn reserve_inbound(self: &Arc<Self>, target: &InboundTarget) -> Result<Reservation, ReserveRefusal> {
        target.budget.checked()?;
        let input_bytes = limits::INPUT_BYTES.check(target.input_bytes_max).map_err(latent_core::CoreError::Limit)?;
        let pin = self.parts.catalog.resolve(target.call())?;
        let activation = ActivationId::from_random(self.parts.ids.next_id());
        let slot = {
            let mut state = self.lock();
            if state.intake != Intake::Open {
                return Err(ReserveRefusal::Stopping);
            }
            let slot = state.admission.reserve(&target.tenant, input_bytes)?;
            self.publish_account(&state);
            slot
        };
        Ok(Reservation::new(Arc::clone(self), activation, Held { slot, pin, target: target.clone() }))
    }

    /// Hands over the event of a reservation. Nothing blocks; the ticket completes when the activation has ended. Dropping the
    /// ticket stops nothing.
    pub fn activate(self: &Arc<Self>, reservation: Reservation, order: InboundOrder) -> Ticket<ActivationEnd> {
        let InboundOrder { event, origin, deadline } = order;
        let place = Place { topic: event.topic.clone(), partition: event.partition, offset: event.offset };
        let delivery = Some((place, event.delivery));
        self.hand_over(reservation, Order { input: Input::Event(event), origin: Some(origin), delivery, deadline, trace: None })
    }

    /// Hands over the arguments of a direct call. Otherwise as [`LocalActivationManager::activate`]; the report has the result.
    pub fn call(self: &Arc<Self>, reservation: Reservation, order: CallOrder) -> Ticket<ActivationEnd> {
        let CallOrder { arguments, deadline, origin, trace } = order;
        self.hand_over(reservation, Order { input: Input::Values(arguments), origin, delivery: None, deadline, trace })
    }

    fn hand_over(self: &Arc<Self>, reservation: Reservation, order: Order) -> Ticket<ActivationEnd> {
        let Order { input, origin, delivery, deadline, trace } = order;
        let trace = trace.unwrap_or_else(|| TraceId::from_random(self.parts.ids.next_id()));
        let activation = reservation.activation();
        let digest = reservation.digest();
        let unfinished = |reason: &str| ActivationEnd {
            activation,
            trace,
            started_at: None,
            digest,
            run_micros: 0,
            report: ActivationReport::without_guest(ActivationOutcome::HostFailure { reason: reason.to_owned() }),
        };
        if !reservation.belongs_to(self) {
            return Ticket::ready(unfinished("the reservation was made by another manager"));
        }
        let (ticket, completer) = Ticket::pair(unfinished("the node ended before the activation did"));
        if let Some(Held { slot, pin, target }) = reservation.into_held() {
            let (queued_at, queued_mono) = (self.parts.clock.unix(), self.parts.clock.mono());
            let work = Work { activation, trace, target, pin, origin, delivery, deadline, queued_at, queued_mono, completer };
            self.enqueue(slot, Waiting { work, input });
        }
        ticket
    }

    /// Stops one activation, queued or running; it ends as cancelled. False when there is none of that id (any more).
    pub fn cancel(self: &Arc<Self>, activation: ActivationId) -> bool {
        let mut state = self.lock();
        if let Some(entry) = state.scheduler.cancel(activation) {
            drop(state);
            self.end_queued(entry, ActivationOutcome::Cancelled);
            return true;
        }
        // A receiver that is gone belongs to an activation that is just ending by itself.
        state.running.remove(&activation).is_some_and(|stop| stop.send(()).is_ok())
    }

    /// Takes nothing new and resolves when everything admitted has ended by itself, reservations included.
    pub async fn drain(&self) {
        {
            let mut state = self.lock();
            state.intake = state.intake.max(Intake::Draining);
        }
        self.until(|account| account.held() == 0).await;
    }

    /// Takes nothing new, cancels what is queued, stops what runs, and resolves when all of that has ended and its stores are gone.
    /// Reservations that somebody still holds are not waited for: they can only be dropped now.
    pub async fn shutdown(self: &Arc<Self>) {
        self.cancel_queued();
        let running = std::mem::take(&mut self.lock().running);
        running.into_values().for_each(|stop| {
            // An error means that it is ending by itself.
            let _ = stop.send(());
        });
        self.until(|account| account.queued + account.running == 0).await;
    }

    /// Adds a listener for returned capacity.
    ///
    /// # Errors
    /// [`NodeError::Limit`] when there are `capacity_listeners` already.
    pub fn on_capacity(&self, listener: CapacityListener) -> Result<(), NodeError> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        limits::CAPACITY_LISTENERS.check(listeners.len() as u64 + 1)?;
        listeners.push(listener);
        Ok(())
    }

    /// Tells `listener` of every end from now on. There can be one.
    ///
    /// # Errors
    /// [`NodeError::EndListenerTaken`] when there is one already.
    pub fn on_end(&self, listener: EndListener) -> Result<(), NodeError> {
        self.end_listener.set(listener).map_err(|_| NodeError::EndListenerTaken)
    }

    /// The accounts at this moment.
    pub fn snapshot(&self) -> AdmissionSnapshot {
        self.lock().admission.snapshot()
    }

    /// The activations that have a cell now, in the order of their ids.
    pub fn running(&self) -> Vec<ActivationId> {
        self.lock().running.keys().copied().collect()
    }

    /// The journal entry of an activation, if it is still remembered.
    pub fn journal_entry(&self, activation: ActivationId) -> Option<Arc<JournalEntry>> {
        self.journal().find(activation)
    }

    /// The activations on one event that are still remembered, newest first; see [`Journal::of_event`].
    pub fn journal_of_event(&self, topic: &TopicName, partition: Partition, offset: Offset) -> Vec<Arc<JournalEntry>> {
        self.journal().of_event(topic, partition, offset)
    }

    /// How far back the journal goes: its entries, and when the oldest was handed over.
    pub fn journal_reach(&self) -> (usize, Option<UnixMillis>) {
        let journal = self.journal();
        (journal.len(), journal.oldest().map(|entry| entry.queued_at))
    }

    /// The last activations that ended, newest first, at most `count_max`.
    pub fn journal_newest(&self, count_max: usize) -> Vec<Arc<JournalEntry>> {
        self.journal().newest(count_max)
    }

    /// Puts work in its tenant's line, or ends it at once when it cannot run.
    fn enqueue(self: &Arc<Self>, slot: Slot<Reserved>, Waiting { work, input }: Waiting) {
        let (bytes, reserved) = (input.bytes(), slot.input_bytes());
        if bytes > reserved {
            let reason = format!("the input holds {bytes} bytes and {reserved} were reserved for it");
            return self.end(slot, work, None, ActivationReport::without_guest(ActivationOutcome::InvalidArguments { reason }));
        }
        let (launches, somebody_waits) = {
            let mut state = self.lock();
            if state.intake == Intake::Shut {
                drop(state);
                return self.end(slot, work, None, ActivationReport::without_guest(ActivationOutcome::Cancelled));
            }
            let slot = state.admission.queue(slot);
            let (activation, deadline) = (work.activation, work.deadline);
            state.scheduler.enqueue(Entry { activation, deadline, slot, work: Waiting { work, input } });
            let launches = state.start_ready();
            self.publish_account(&state);
            (launches, !state.scheduler.is_empty())
        };
        // Who started at once changed no deadline of the queue, and waking the task that watches it wakes a thread for nothing.
        if somebody_waits {
            self.queue_changed.notify_one();
        }
        if !launches.is_empty() {
            // A place in the queue became free.
            self.launch(launches);
            self.notify_capacity();
        }
    }

    fn end_queued(self: &Arc<Self>, entry: Entry<Waiting>, outcome: ActivationOutcome) {
        self.end(entry.slot, entry.work.work, None, ActivationReport::without_guest(outcome));
    }

    /// The one end of everything that was handed over.
    fn end<P: Phase>(self: &Arc<Self>, slot: Slot<P>, work: Work, started: Option<StartTime>, report: ActivationReport) {
        let next = {
            let mut state = self.lock();
            state.running.remove(&work.activation);
            self.release(&mut state, slot)
        };
        attention::warn(&work, &report.publications);
        let entry = work.journal_entry(started, self.parts.clock.mono(), &report);
        tracing::debug!(
            activation = %work.activation,
            trace = %work.trace,
            tenant = %work.target.tenant,
            service = %work.target.service,
            outcome = entry.ended.kind,
            "activation ended"
        );
        let run_micros = entry.run_micros;
        if let Some(listener) = self.end_listener.get() {
            listener(&entry);
        }
        self.journal().push(entry);
        let started_at = started.map(|start| start.unix);
        let digest = work.pin.digest;
        work.completer.complete(ActivationEnd { activation: work.activation, trace: work.trace, started_at, digest, run_micros, report });
        self.launch(next);
        self.notify_capacity();
    }

    /// Gives a slot back and lets the next ones start.
    fn release<P: Phase>(&self, state: &mut State, slot: Slot<P>) -> Vec<Launch> {
        state.admission.release(slot);
        let launches = state.start_ready();
        self.publish_account(state);
        launches
    }

    /// Returns a reservation that was not used.
    fn release_unused(self: &Arc<Self>, slot: Slot<Reserved>) {
        let launches = {
            let mut state = self.lock();
            self.release(&mut state, slot)
        };
        self.launch(launches);
        self.notify_capacity();
    }

    fn launch(self: &Arc<Self>, launches: Vec<Launch>) {
        launches.into_iter().for_each(|launch| running::spawn(self, launch));
    }

    /// What the guest's session is made of.
    fn session(&self, work: &Work) -> SessionSpec {
        SessionSpec {
            activation: work.activation,
            tenant: work.target.tenant.clone(),
            publication: work.pin.publication,
            origin: work.origin.clone(),
            outbound_requests: work.target.budget.outbound_requests,
            deadline: work.deadline,
            capabilities: Arc::clone(&self.parts.capabilities),
            clock: Arc::clone(&self.parts.clock),
        }
    }

    /// Takes nothing new from now on and cancels what is queued, in one step, so that nothing starts any more.
    fn cancel_queued(self: &Arc<Self>) {
        let queued: Vec<_> = {
            let mut state = self.lock();
            state.intake = Intake::Shut;
            std::iter::from_fn(|| state.scheduler.cancel_any()).collect()
        };
        queued.into_iter().for_each(|entry| self.end_queued(entry, ActivationOutcome::Cancelled));
    }

    /// Ends what waited in the queue beyond its deadline; says how long until there is something to end again.
    fn end_expired(self: &Arc<Self>) -> Option<Duration> {
        loop {
            let now = self.parts.clock.mono();
            let entry = {
                let mut state = self.lock();
                match state.scheduler.expire(now) {
                    Some(entry) => entry,
                    None => return state.scheduler.next_deadline().map(|deadline| deadline.at().since(now)),
                }
            };
            self.end_queued(entry, ActivationOutcome::Timeout);
        }
    }

    async fn until(&self, reached: impl Fn(&Account) -> bool) {
        let mut account = self.account.subscribe();
        // What changed before anybody listened was not told.
        self.publish_account(&self.lock());
        // The sender lives in `self`, so the channel cannot close.
        let _ = account.wait_for(reached).await;
    }

    /// Tells those who wait for an account; nearly always nobody does, and telling nobody costs as much.
    fn publish_account(&self, state: &State) {
        if self.account.receiver_count() > 0 {
            self.account.send_replace(state.admission.node());
        }
    }

    fn notify_capacity(&self) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        listeners.iter().for_each(|listener| listener());
    }

    // No guarded section calls out or panics half-way, so a poisoned lock still guards a whole state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LocalActivationManager {
    fn drop(&mut self) {
        // Lets the task that watches the queue see that there is none any more.
        self.queue_changed.notify_one();
    }
}

impl State {
    /// Gives out the free cells. From here on each can be stopped, though its task does not exist yet.
    fn start_ready(&mut self) -> Vec<Launch> {
        let mut launches = Vec::new();
        while let Some(start) = self.scheduler.next(&mut self.admission) {
            let (stop, stopped) = oneshot::channel();
            self.running.insert(start.activation, stop);
            launches.push(Launch { start, stopped });
        }
        launches
    }
}

impl Work {
    fn journal_entry(&self, started: Option<StartTime>, now: MonoTime, report: &ActivationReport) -> JournalEntry {
        let start = started.map_or(now, |start| start.mono);
        let micros = |later: MonoTime, earlier: MonoTime| later.as_micros().saturating_sub(earlier.as_micros());
        JournalEntry {
            activation: self.activation,
            trace: self.trace,
            tenant: self.target.tenant.clone(),
            principal: self.target.principal.clone(),
            service: self.target.service.clone(),
            contract: self.target.contract.clone(),
            function: self.target.function.clone(),
            generation: self.pin.generation,
            publication: self.pin.publication,
            digest: self.pin.digest,
            delivery: self.origin.clone().zip(self.delivery.clone()).map(|(origin, (place, count))| Delivery { place, origin, count }),
            ended: Ended::of(&report.outcome),
            queued_at: self.queued_at,
            started_at: started.map(|start| start.unix),
            wait_micros: micros(start, self.queued_mono),
            run_micros: micros(now, start),
            fuel_used: report.fuel_used,
            memory_bytes_peak: report.memory_bytes_peak,
            outbound_requests: report.outbound_requests,
            publications: report.publications.clone(),
            log: report.log.clone(),
            log_bytes_cut: report.log_bytes_cut,
        }
    }
}

/// Ends queued work at its deadline, for as long as the manager exists.
async fn expire_queued(manager: Weak<LocalActivationManager>, queue_changed: Arc<Notify>) {
    loop {
        let Some(wait) = manager.upgrade().map(|manager| manager.end_expired()) else { return };
        match wait {
            None => queue_changed.notified().await,
            Some(wait) => {
                // At least a millisecond, so that a clock that lags behind the timer cannot make this a busy loop.
                let changed = tokio::time::timeout(wait.max(Duration::from_millis(1)), queue_changed.notified()).await;
                drop(changed);
            }
        }
    }
}
