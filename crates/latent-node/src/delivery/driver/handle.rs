//! What others may do with a running driver: wake it, ask it, read its totals. Safe from any thread; nothing here blocks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use hdrhistogram::Histogram;
use latent_core::{ActivationOutcome, BindingId, Completer, Offset, Partition, TenantId, Ticket, TopicName, UnixMillis};
use tokio::sync::Notify;

use super::{BindingSpec, News};
use crate::delivery::{CycleState, EventState};

/// What one binding does, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingStatus {
    /// The binding.
    pub id: BindingId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its topic.
    pub topic: TopicName,
    /// Partitions of the topic.
    pub partitions: u32,
    /// The most telling state of its partitions.
    pub state: CycleState,
    /// Events that are not settled.
    pub pending: u64,
    /// Events begun and not settled.
    pub unacknowledged: u64,
    /// Events that wait for their next attempt.
    pub delayed: u64,
    /// Events acknowledged since the start of the node.
    pub acknowledged: u64,
    /// Events terminated since then: rejected, exhausted or undecodable.
    pub terminated: u64,
    /// Of those, the ones whose attempts were used up.
    pub exhausted: u64,
    /// Events parked in the dead-letter topic since then.
    pub dead_lettered: u64,
    /// Events that expired since then before they were settled.
    pub expired_unread: u64,
    /// How its last activation ended.
    pub last_outcome: Option<&'static str>,
    /// When that was.
    pub last_delivery_at: Option<UnixMillis>,
    /// When the next delayed event is due.
    pub next_attempt_at: Option<UnixMillis>,
    /// What stands in its way now: a log that cannot answer, a service that cannot be called.
    pub obstacle: Option<String>,
    /// How the last attempt that did not succeed ended, and when.
    pub last_failure: Option<(String, UnixMillis)>,
}

/// What one binding does with one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventStatus {
    /// The binding.
    pub binding: BindingId,
    /// What it does with it.
    pub state: EventState,
    /// Attempts made, as far as they are known; 0 for what is settled.
    pub attempts: u32,
    /// Attempts after which the binding gives up.
    pub attempts_max: u32,
    /// When the next attempt is due, on the wall clock.
    pub next_attempt_at: Option<UnixMillis>,
}

/// A place that is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventQuery {
    pub(super) topic: TopicName,
    pub(super) partition: Partition,
    pub(super) offset: Offset,
}

/// What is asked of the driver.
pub(super) enum Question {
    Statuses(Completer<Vec<BindingStatus>>),
    Event(EventQuery, Completer<Vec<EventStatus>>),
}

/// Percentiles of the time from append to settlement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyMillis {
    /// Half of the events were faster.
    pub p50: u64,
    /// 99 of 100 were faster.
    pub p99: u64,
}

/// Sums over all bindings since the start of the node.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeliveryTotals {
    /// Activations that succeeded.
    pub success: u64,
    /// Activations whose handler rejected the event.
    pub rejected: u64,
    /// All other activations.
    pub failed: u64,
    /// Events settled.
    pub settled: u64,
    /// Time from append to settlement, once there was one.
    pub append_to_settled: Option<LatencyMillis>,
}

struct Sums {
    totals: DeliveryTotals,
    latency: Histogram<u64>,
}

impl Default for Sums {
    #[expect(clippy::expect_used, reason = "the constructor refuses nothing but constants of another order")]
    fn default() -> Self {
        // One millisecond to one day at two digits: a few kilobytes whatever is recorded.
        let latency = Histogram::new_with_bounds(1, 86_400_000, 2).expect("1 ms to a day at two digits is a valid histogram");
        Self { totals: DeliveryTotals::default(), latency }
    }
}

/// Left by other threads for the driver's task.
#[derive(Default)]
pub(super) struct Shared {
    /// Topic → partition → units that listen. Only the driver's task changes it.
    listeners: RwLock<HashMap<String, BTreeMap<Partition, Vec<usize>>>>,
    inbox: Mutex<Inbox>,
    wake: Notify,
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Inbox {
    /// At most one entry for each open operation.
    news: Vec<(usize, News)>,
    /// Newest end of each unit's partition: however many appends there were, one entry.
    available: BTreeMap<usize, Offset>,
    requests: Vec<Question>,
    changes: Vec<Change>,
    /// The driver has ended: nobody will answer.
    closed: bool,
}

/// What bindings a running driver is to have.
pub(super) enum Change {
    Add(Vec<BindingSpec>, Completer<Changed>),
    Remove(BTreeSet<BindingId>, Completer<Changed>),
}

/// What became of a change of bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a driver that has ended changes nothing"]
pub enum Changed {
    /// It is in force.
    Done,
    /// The driver has ended, or ended before the change was in force.
    DriverEnded,
}

impl Shared {
    pub(super) fn listen(&self, topic: &TopicName, partition: Partition, unit: usize) {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        listeners.entry(topic.as_str().to_owned()).or_default().entry(partition).or_default().push(unit);
    }

    pub(super) fn unlisten(&self, topic: &TopicName, partition: Partition, unit: usize) {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        let Some(partitions) = listeners.get_mut(topic.as_str()) else { return };
        if let Some(units) = partitions.get_mut(&partition) {
            units.retain(|listener| *listener != unit);
        }
        partitions.retain(|_, units| !units.is_empty());
        listeners.retain(|_, partitions| !partitions.is_empty());
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(super) fn tell(&self, unit: usize, news: News) {
        lock(&self.inbox).news.push((unit, news));
        self.wake();
    }

    pub(super) fn has_news(&self) -> bool {
        let inbox = lock(&self.inbox);
        !inbox.news.is_empty() || !inbox.available.is_empty() || !inbox.changes.is_empty()
    }

    pub(super) fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut lock(&self.inbox).changes)
    }

    pub(super) fn take_news(&self) -> Vec<(usize, News)> {
        let mut inbox = lock(&self.inbox);
        let mut news = std::mem::take(&mut inbox.news);
        news.extend(std::mem::take(&mut inbox.available).into_iter().map(|(unit, end)| (unit, News::Available(end))));
        news
    }

    pub(super) fn take_requests(&self) -> Vec<Question> {
        std::mem::take(&mut lock(&self.inbox).requests)
    }

    /// Nobody takes news or requests any more; whoever waits gets an empty answer.
    pub(super) fn close(&self) {
        let unanswered = {
            let mut inbox = lock(&self.inbox);
            inbox.closed = true;
            (std::mem::take(&mut inbox.requests), std::mem::take(&mut inbox.changes))
        };
        // Outside the lock: a dropped completer answers, and whoever gets the answer may ask again.
        drop(unanswered);
    }

    pub(super) fn count_activation(&self, outcome: &ActivationOutcome) {
        let mut sums = lock(&self.sums);
        let counter = match outcome {
            ActivationOutcome::Success => &mut sums.totals.success,
            ActivationOutcome::Rejected { .. } => &mut sums.totals.rejected,
            _ => &mut sums.totals.failed,
        };
        *counter = counter.saturating_add(1);
    }

    pub(super) fn count_settled(&self, append_to_settled_millis: Option<u64>) {
        let mut sums = lock(&self.sums);
        sums.totals.settled = sums.totals.settled.saturating_add(1);
        if let Some(millis) = append_to_settled_millis {
            sums.latency.saturating_record(millis);
        }
    }
}

/// A handle on a driver. Cheap to clone.
#[derive(Clone)]
pub struct DeliveryHandle(Arc<Shared>);

impl DeliveryHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// The partition has events up to `end`, exclusive. Called from the log's own thread.
    pub fn available(&self, topic: &str, partition: Partition, end: Offset) {
        {
            let listeners = self.0.listeners.read().unwrap_or_else(PoisonError::into_inner);
            let Some(units) = listeners.get(topic).and_then(|partitions| partitions.get(&partition)) else { return };
            let mut inbox = lock(&self.0.inbox);
            for unit in units {
                let known = inbox.available.entry(*unit).or_default();
                *known = end.max(*known);
            }
        }
        self.0.wake();
    }

    /// Adds bindings to the running driver. An append between the moment a specification was made and the moment it is in force must
    /// be told again with [`DeliveryHandle::available`].
    pub fn add(&self, bindings: Vec<BindingSpec>) -> Ticket<Changed> {
        self.change(|completer| Change::Add(bindings, completer))
    }

    /// Takes bindings out of the running driver: nothing of theirs begins any more, and the ticket completes when what had begun is
    /// settled and their sources are gone. Others go on meanwhile. Ids that no binding has are passed over.
    pub fn remove(&self, bindings: BTreeSet<BindingId>) -> Ticket<Changed> {
        self.change(|completer| Change::Remove(bindings, completer))
    }

    fn change(&self, change: impl FnOnce(Completer<Changed>) -> Change) -> Ticket<Changed> {
        let (ticket, completer) = Ticket::pair(Changed::DriverEnded);
        {
            let mut inbox = lock(&self.0.inbox);
            if inbox.closed {
                return Ticket::ready(Changed::DriverEnded);
            }
            inbox.changes.push(change(completer));
        }
        self.0.wake();
        ticket
    }

    /// The status of every binding, in the order in which they were added. Empty when the driver has ended.
    pub fn statuses(&self) -> Ticket<Vec<BindingStatus>> {
        self.ask(Question::Statuses)
    }

    /// What every binding of the topic does with the event at this place, in the order in which they were added. Empty when the driver has
    /// ended.
    pub fn event(&self, topic: TopicName, partition: Partition, offset: Offset) -> Ticket<Vec<EventStatus>> {
        self.ask(|completer| Question::Event(EventQuery { topic, partition, offset }, completer))
    }

    fn ask<T: Send + 'static>(&self, question: impl FnOnce(Completer<Vec<T>>) -> Question) -> Ticket<Vec<T>> {
        let (ticket, completer) = Ticket::pair(Vec::new());
        {
            let mut inbox = lock(&self.0.inbox);
            if inbox.closed {
                return Ticket::ready(Vec::new());
            }
            inbox.requests.push(question(completer));
        }
        self.0.wake();
        ticket
    }

    /// Events settled since the start: of [`DeliveryHandle::totals`] what is asked for often.
    pub fn settled(&self) -> u64 {
        lock(&self.0.sums).totals.settled
    }

    /// Sums since the start.
    pub fn totals(&self) -> DeliveryTotals {
        let sums = lock(&self.0.sums);
        let at = |quantile| sums.latency.value_at_quantile(quantile);
        let append_to_settled = (!sums.latency.is_empty()).then(|| LatencyMillis { p50: at(0.5), p99: at(0.99) });
        DeliveryTotals { append_to_settled, ..sums.totals }
    }
}

// No guarded section calls out or panics half-way, so a poisoned lock still guards a whole state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
