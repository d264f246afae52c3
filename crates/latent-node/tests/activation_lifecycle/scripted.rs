//! A backend whose guests do what the test says, when it says so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use latent_capabilities::Session;
use latent_core::{ActivationOutcome, ComponentDigest};
use latent_node::{BackendFuture, ExecutionBackend, Input, StartOrder};
use latent_wasmtime::{ActivationReport, LogLine, LogSource};
use tokio::sync::{Notify, oneshot};

/// What the next run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    /// Starts, and ends when the test says so.
    Wait,
    /// Waits for [`ScriptedBackend::finish_loading`] before it asks for the start.
    LoadFirst,
    /// Panics before there is a future.
    PanicInCall,
    /// Starts, then panics.
    PanicInGuest,
    /// Starts and waits; panics when it is dropped.
    PanicInDrop,
}

/// A guest that was started.
pub(crate) struct Guest {
    pub(crate) label: String,
    pub(crate) digest: ComponentDigest,
    pub(crate) session: Session,
}

#[derive(Default)]
struct Shared {
    scripts: Mutex<VecDeque<Script>>,
    guests: Mutex<Vec<Guest>>,
    ends: Mutex<BTreeMap<String, oneshot::Sender<ActivationOutcome>>>,
    loading: Notify,
    stores: AtomicUsize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ScriptedBackend {
    shared: Arc<Shared>,
    cells_max: Option<usize>,
}

/// Stands for a guest's store: counts those that exist.
struct Store {
    shared: Arc<Shared>,
    panics: bool,
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.stores.fetch_sub(1, Ordering::SeqCst);
        assert!(!self.panics, "scripted panic of a drop");
    }
}

impl ScriptedBackend {
    pub(crate) fn with_cells_max(cells_max: Option<usize>) -> Self {
        Self { cells_max, ..Self::default() }
    }

    pub(crate) fn script(&self, script: Script) {
        self.shared.scripts.lock().unwrap().push_back(script);
    }

    pub(crate) fn finish_loading(&self) {
        self.shared.loading.notify_one();
    }

    /// Ends the running guest of that label.
    pub(crate) fn end(&self, label: &str, outcome: ActivationOutcome) {
        let end = self.shared.ends.lock().unwrap().remove(label).expect("a guest of that label runs");
        end.send(outcome).expect("the guest still waits");
    }

    /// Labels of all guests ever started, in order.
    pub(crate) fn started(&self) -> Vec<String> {
        self.shared.guests.lock().unwrap().iter().map(|guest| guest.label.clone()).collect()
    }

    pub(crate) fn last_guest(&self) -> Guest {
        self.shared.guests.lock().unwrap().pop().expect("a guest was started")
    }

    /// Stores that exist now.
    pub(crate) fn stores(&self) -> usize {
        self.shared.stores.load(Ordering::SeqCst)
    }
}

impl ExecutionBackend for ScriptedBackend {
    fn run(&self, order: Box<StartOrder>) -> BackendFuture {
        let script = self.shared.scripts.lock().unwrap().pop_front().unwrap_or(Script::Wait);
        assert_ne!(script, Script::PanicInCall, "scripted panic of a call");
        let shared = Arc::clone(&self.shared);
        shared.stores.fetch_add(1, Ordering::SeqCst);
        let store = Store { shared, panics: script == Script::PanicInDrop };
        Box::pin(run(store, script, order))
    }

    fn cells_max(&self) -> Option<usize> {
        self.cells_max
    }
}

async fn run(store: Store, script: Script, order: Box<StartOrder>) -> ActivationReport {
    let shared = Arc::clone(&store.shared);
    if script == Script::LoadFirst {
        shared.loading.notified().await;
    }
    let digest = order.digest();
    let start = match order.confirm() {
        Ok(start) => start,
        Err(not_started) => return not_started.into_report(),
    };
    // A guest's label is the payload of its event, or its arguments.
    let label = match &start.input {
        Input::Event(event) => event.payload.to_vec(),
        Input::Values(arguments) => arguments.to_vec(),
    };
    let label = String::from_utf8(label).unwrap();
    let (end, ended) = oneshot::channel();
    shared.ends.lock().unwrap().insert(label.clone(), end);
    shared.guests.lock().unwrap().push(Guest { label, digest, session: start.session });
    assert_ne!(script, Script::PanicInGuest, "scripted panic of a guest");
    let outcome = ended.await.expect("the backend outlives its guests");
    let log = vec![LogLine { source: LogSource::Stdout, text: "hello".to_owned() }];
    let result = matches!(start.input, Input::Values(_)).then(|| Bytes::from_static(b"[]"));
    let used = ActivationReport { fuel_used: 11, memory_bytes_peak: 22, outbound_requests: 44, ..ActivationReport::without_guest(outcome) };
    ActivationReport { result, log, log_bytes_cut: 33, ..used }
}
