//! Many threads at once: nothing is lost, nothing runs beyond its bounds, nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use latent_core::{ActivationId, ActivationOutcome, Clock, Deadline, SystemClock};
use latent_node::{Account, BackendFuture, ExecutionBackend, InboundOrder, LocalActivationManager, NodeLimits, StartOrder};
use latent_wasmtime::ActivationReport;

use crate::node::{DEADLINE_MILLIS, catalog, ended, event, limits, manager, origin, target};

const CELLS: usize = 3;
const ROUNDS: usize = 3_000;

/// Guests that give way a few times and succeed; remembers the most that ran at once.
#[derive(Default)]
struct Busy {
    running: AtomicUsize,
    most: AtomicUsize,
    started: AtomicUsize,
}

struct Shared(Arc<Busy>);

impl ExecutionBackend for Shared {
    fn run(&self, order: Box<StartOrder>) -> BackendFuture {
        let busy = Arc::clone(&self.0);
        Box::pin(async move {
            let running = Running::enter(busy);
            if let Err(not_started) = order.confirm() {
                return not_started.into_report();
            }
            running.0.started.fetch_add(1, Ordering::SeqCst);
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            ActivationReport::without_guest(ActivationOutcome::Success)
        })
    }

    fn cells_max(&self) -> Option<usize> {
        None
    }
}

struct Running(Arc<Busy>);

impl Running {
    fn enter(busy: Arc<Busy>) -> Self {
        let running = busy.running.fetch_add(1, Ordering::SeqCst) + 1;
        busy.most.fetch_max(running, Ordering::SeqCst);
        Self(busy)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One tenant's driver: reserves, drops some, cancels some, and waits for the rest. Gives the ids of what it handed over.
async fn drive(manager: Arc<LocalActivationManager>, clock: Arc<SystemClock>, of: &'static str) -> Vec<ActivationId> {
    let mut handed_over = Vec::new();
    let mut waiting = Vec::new();
    for round in 0..ROUNDS {
        let Ok(reservation) = manager.reserve_inbound(&target(of)) else {
            // Full: the oldest ticket brings capacity.
            if !waiting.is_empty() {
                let end: latent_node::ActivationEnd = ended(waiting.remove(0)).await;
                assert!(matches!(end.report.outcome, ActivationOutcome::Success | ActivationOutcome::Cancelled));
            }
            continue;
        };
        let activation = reservation.activation();
        if round % 7 == 0 {
            drop(reservation);
            continue;
        }
        let deadline = Deadline::after(clock.mono(), DEADLINE_MILLIS);
        waiting.push(manager.activate(reservation, InboundOrder { event: event("one"), origin: origin(), deadline }));
        handed_over.push(activation);
        if round % 5 == 0 {
            manager.cancel(activation);
        }
    }
    for ticket in waiting {
        let end = ended(ticket).await;
        assert!(matches!(end.report.outcome, ActivationOutcome::Success | ActivationOutcome::Cancelled));
    }
    handed_over
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_drivers_at_once_leave_nothing_behind() {
    let busy = Arc::new(Busy::default());
    let (catalog, _) = catalog(b"one");
    let clock = Arc::new(SystemClock::start());
    let bounds = NodeLimits { cells: 3, tenant_queued: 4, journal_entries: 65_536, ..limits() };
    let manager = manager(Arc::new(Shared(Arc::clone(&busy))), &catalog, Arc::clone(&clock) as _, bounds).unwrap();
    let drivers = ["a", "b", "c", "a"].map(|of| tokio::spawn(drive(Arc::clone(&manager), Arc::clone(&clock), of)));
    let mut handed_over = Vec::new();
    for driver in drivers {
        handed_over.extend(driver.await.unwrap());
    }
    manager.drain().await;
    assert_eq!(manager.snapshot().node, Account::default());
    assert_eq!(busy.running.load(Ordering::SeqCst), 0);
    assert!(busy.most.load(Ordering::SeqCst) <= CELLS);
    // Everything that was handed over ended once, and nothing else.
    let mut ended: Vec<_> = manager.journal_newest(usize::MAX).iter().map(|entry| entry.activation).collect();
    ended.sort_unstable();
    handed_over.sort_unstable();
    assert_eq!(ended, handed_over);
    let successes = manager.journal_newest(usize::MAX).iter().filter(|entry| entry.ended.kind == "success").count();
    assert!(successes > 0 && successes <= busy.started.load(Ordering::SeqCst));
}
