//! A handler by script, shared by every node of a test: what it was given, in which order, and whether two runs of one key ever overlapped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use latent_core::{ActivationOutcome, DeliveredEvent, TrapCode};
use latent_node::{BackendFuture, ExecutionBackend, Input, StartOrder};
use latent_testkit::until_some;
use latent_wasmtime::ActivationReport;
use tokio::sync::{Semaphore, watch};

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) node: &'static str,
    pub(crate) key: String,
    pub(crate) text: String,
    pub(crate) offset: u64,
    pub(crate) delivery: u32,
}

/// What every run did. The payload says what a run comes to: `ok…`, `reject…`, `retry…`, `trap…`, `once…` (a trap on the first run of the
/// event alone) and `hang…`, which ends when the test says so.
pub(crate) struct Handler {
    runs: Mutex<Vec<Run>>,
    /// By key: runs under way.
    running: Mutex<BTreeMap<String, u64>>,
    overlaps: AtomicU64,
    under_way: AtomicU64,
    most_under_way: AtomicU64,
    gate: Semaphore,
}

impl Default for Handler {
    fn default() -> Self {
        Self {
            runs: Mutex::default(),
            running: Mutex::default(),
            overlaps: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            most_under_way: AtomicU64::new(0),
            gate: Semaphore::new(0),
        }
    }
}

impl Handler {
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    /// Texts of one key, in the order of their runs.
    pub(crate) fn of_key(&self, key: &str) -> Vec<String> {
        self.runs().into_iter().filter(|run| run.key == key).map(|run| run.text).collect()
    }

    pub(crate) async fn until_runs(&self, count: usize) {
        until_some("runs", || std::future::ready((self.runs.lock().unwrap().len() >= count).then_some(()))).await;
    }

    /// Two runs of one key were under way at a time, on whatever nodes, so often.
    pub(crate) fn overlaps(&self) -> u64 {
        self.overlaps.load(Ordering::SeqCst)
    }

    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::SeqCst)
    }

    pub(crate) fn most_under_way(&self) -> u64 {
        self.most_under_way.load(Ordering::SeqCst)
    }

    /// Lets so many runs of `hang` end.
    pub(crate) fn go_on(&self, runs: usize) {
        self.gate.add_permits(runs);
    }

    fn begin(self: &Arc<Self>, node: &'static str, event: &DeliveredEvent) -> Running {
        let text = String::from_utf8_lossy(&event.payload).into_owned();
        let run = Run { node, key: event.key.clone(), text, offset: event.offset.0, delivery: event.delivery };
        self.runs.lock().unwrap().push(run);
        let of_key = {
            let mut running = self.running.lock().unwrap();
            let count = running.entry(event.key.clone()).or_default();
            *count += 1;
            *count
        };
        self.overlaps.fetch_add(u64::from(of_key > 1), Ordering::SeqCst);
        let all = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(all, Ordering::SeqCst);
        Running { handler: Arc::clone(self), key: event.key.clone() }
    }
}

/// Until it is dropped, also when the run is stopped.
struct Running {
    handler: Arc<Handler>,
    key: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handler.under_way.fetch_sub(1, Ordering::SeqCst);
        *self.handler.running.lock().unwrap().get_mut(&self.key).unwrap() -= 1;
    }
}

/// The handler as one node has it.
pub(crate) struct Backend {
    pub(crate) node: &'static str,
    /// The node's process has ended, and with it what runs there.
    pub(crate) dead: watch::Receiver<bool>,
    pub(crate) handler: Arc<Handler>,
}

impl ExecutionBackend for Backend {
    fn run(&self, order: Box<StartOrder>) -> BackendFuture {
        let (handler, node, mut dead) = (Arc::clone(&self.handler), self.node, self.dead.clone());
        Box::pin(async move {
            let start = match order.confirm() {
                Ok(start) => start,
                Err(refused) => return refused.into_report(),
            };
            let Input::Event(event) = start.input else { panic!("a lane gives events") };
            let _running = handler.begin(node, &event);
            let text = String::from_utf8_lossy(&event.payload).into_owned();
            let trap = || ActivationOutcome::Trap { code: TrapCode::Unreachable, detail: "as the test says".to_owned() };
            let reason = || "as the test says".to_owned();
            let outcome = match text.split('-').next().unwrap_or_default() {
                "ok" => ActivationOutcome::Success,
                "reject" => ActivationOutcome::Rejected { reason: reason() },
                "retry" => ActivationOutcome::RetryRequested { reason: reason(), delay_millis: None },
                "once" if event.delivery > 1 => ActivationOutcome::Success,
                "hang" => tokio::select! {
                    permit = handler.gate.acquire() => {
                        permit.unwrap().forget();
                        ActivationOutcome::Success
                    }
                    _ = dead.wait_for(|dead| *dead) => ActivationOutcome::Cancelled,
                },
                _ => trap(),
            };
            ActivationReport::without_guest(outcome)
        })
    }

    fn cells_max(&self) -> Option<usize> {
        None
    }
}
