//! Functions by script, and a clock that jumps.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latent_core::{ActivationId, ActivationOutcome, Budget, Clock, MonoTime, SystemClock, TraceId, TrapCode, UnixMillis};
use latent_node::{BackendFuture, ExecutionBackend, Input, StartOrder};
use latent_testkit::until_some;
use latent_wasmtime::ActivationReport;
use tokio::sync::Notify;

/// A function of which every run does what its arguments say: `["ok"]`, `["fail"]`, `["refused"]`, `["trap"]`, `["timeout"]`, and `["hang"]`,
/// which ends when the test says so or when it is stopped. What else stands in the arguments tells messages apart.
#[derive(Default)]
pub(crate) struct Scripted {
    runs: Mutex<Vec<Run>>,
    running: AtomicU64,
    go_on: Notify,
    at_begin: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// What one run was given.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) arguments: String,
    pub(crate) tenant: String,
    pub(crate) budget: Budget,
    pub(crate) trace: TraceId,
    pub(crate) activation: ActivationId,
    /// What was left of its time.
    pub(crate) left: Duration,
}

/// The system's time, with jumps that no timer sees: a process that stood still.
#[derive(Debug)]
pub(crate) struct JumpingClock {
    system: SystemClock,
    skipped_millis: AtomicU64,
    wall_moved_millis: AtomicI64,
}

impl JumpingClock {
    pub(super) fn start() -> Self {
        Self { system: SystemClock::start(), skipped_millis: AtomicU64::new(0), wall_moved_millis: AtomicI64::new(0) }
    }

    pub(crate) fn skip(&self, millis: u64) {
        self.skipped_millis.fetch_add(millis, Ordering::SeqCst);
    }

    pub(crate) fn move_wall(&self, millis: i64) {
        self.wall_moved_millis.store(millis, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn mono(&self) -> MonoTime {
        self.system.mono().plus_millis(self.skipped_millis.load(Ordering::SeqCst))
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(self.system.unix().0.saturating_add_signed(self.wall_moved_millis.load(Ordering::SeqCst)))
    }
}

struct Store(Arc<Scripted>);

impl Drop for Store {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Told apart from [`Scripted`] so that runs can share it.
pub(super) struct Backend(pub(super) Arc<Scripted>);

impl ExecutionBackend for Backend {
    fn run(&self, order: Box<StartOrder>) -> BackendFuture {
        let scripted = Arc::clone(&self.0);
        scripted.running.fetch_add(1, Ordering::SeqCst);
        let store = Store(Arc::clone(&scripted));
        Box::pin(async move {
            let _store = store;
            let start = match order.confirm() {
                Ok(start) => start,
                Err(refused) => return refused.into_report(),
            };
            let Input::Values(arguments) = start.input else { panic!("a raw stream gives values") };
            let text = String::from_utf8_lossy(&arguments).into_owned();
            let spec = start.session.spec();
            let run = Run {
                arguments: text.clone(),
                tenant: spec.tenant.as_str().to_owned(),
                budget: start.budget,
                trace: start.trace,
                activation: spec.activation,
                left: spec.deadline.at().since(spec.clock.mono()),
            };
            if let Some(act) = &*scripted.at_begin.lock().unwrap() {
                act();
            }
            scripted.runs.lock().unwrap().push(run);
            let reason = || "as the test says".to_owned();
            let outcome = match text.split('"').nth(1).unwrap_or_default() {
                "ok" => ActivationOutcome::Success,
                "fail" => ActivationOutcome::DeclaredFailure,
                "refused" => ActivationOutcome::PermissionRefused { reason: reason() },
                "incompatible" => ActivationOutcome::IncompatibleContract { reason: reason() },
                "trap" => ActivationOutcome::Trap { code: TrapCode::Unreachable, detail: reason() },
                "timeout" => ActivationOutcome::Timeout,
                "hang" => {
                    scripted.go_on.notified().await;
                    ActivationOutcome::Success
                }
                _ => ActivationOutcome::InvalidArguments { reason: reason() },
            };
            ActivationReport::without_guest(outcome)
        })
    }

    fn cells_max(&self) -> Option<usize> {
        None
    }
}

impl Scripted {
    /// The arguments of every run so far, in order.
    pub(crate) fn runs(&self) -> Vec<String> {
        self.seen().into_iter().map(|run| run.arguments).collect()
    }

    /// Everything that each run was given.
    pub(crate) fn seen(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    /// Waits until so many runs have begun.
    pub(crate) async fn until_runs(&self, count: usize) {
        let look = || std::future::ready((self.runs.lock().unwrap().len() >= count).then_some(()));
        until_some("runs", look).await;
    }

    /// Waits until there is a run with these arguments.
    pub(crate) async fn until_run(&self, arguments: &str) {
        let look = || std::future::ready(self.runs().iter().any(|run| run == arguments).then_some(()));
        until_some("a run", look).await;
    }

    /// Stores that exist now.
    pub(crate) fn stores(&self) -> u64 {
        self.running.load(Ordering::SeqCst)
    }

    /// What happens when a run begins, before anybody can see it.
    pub(crate) fn at_begin(&self, act: impl Fn() + Send + 'static) {
        *self.at_begin.lock().unwrap() = Some(Box::new(act));
    }

    /// Lets one run of `hang` end.
    pub(crate) fn go_on(&self) {
        self.go_on.notify_one();
    }
}
