//! One running activation: a task that owns its slot and ends it, however the task itself ends.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use latent_core::ActivationOutcome;
use latent_wasmtime::ActivationReport;
use tokio::sync::oneshot;

use super::{Launch, LocalActivationManager, Waiting, Work};
use crate::admission::{Running, Slot};
use crate::backend::{BackendFuture, ExecutionBackend, Start, StartOrder};
use crate::limits;
use crate::scheduler::Started;

/// Ends the activation when it goes: with its report, or as cancelled when the runtime dropped the task.
struct RunningActivation {
    manager: Arc<LocalActivationManager>,
    held: Option<(Slot<Running>, Work)>,
    started: Arc<OnceLock<Start>>,
    report: Option<ActivationReport>,
}

pub(super) fn spawn(manager: &Arc<LocalActivationManager>, launch: Launch) {
    let Launch { start: Started { slot, work: Waiting { work, input }, .. }, stopped } = launch;
    let started = Arc::new(OnceLock::new());
    // In one piece on the heap from here on: it is handed from step to step, and copying it would be a good part of a short activation.
    let order = Box::new(StartOrder {
        catalog: Arc::clone(&manager.parts.catalog),
        pin: work.pin.clone(),
        contract: work.target.contract.clone(),
        function: work.target.function.clone(),
        session: manager.session(&work),
        input,
        budget: work.target.budget,
        trace: work.trace,
        started: Arc::clone(&started),
    });
    let running = RunningActivation { manager: Arc::clone(manager), held: Some((slot, work)), started, report: None };
    // If the runtime is gone the task is dropped unpolled, here, and ends the activation on its way out.
    manager.parts.runtime.spawn(run(running, order, stopped));
}

async fn run(mut running: RunningActivation, order: Box<StartOrder>, stopped: oneshot::Receiver<()>) {
    let report = tokio::select! {
        biased;
        Ok(()) = stopped => ActivationReport::without_guest(ActivationOutcome::Cancelled),
        report = running.attempt(order) => report,
    };
    // The backend's future is gone by now, and with it the guest's store.
    running.report = Some(report);
}

impl RunningActivation {
    async fn attempt(&self, order: Box<StartOrder>) -> ActivationReport {
        let deadline = order.session.deadline.at();
        let backend = Arc::clone(&self.manager.parts.backend);
        let mut running = pin!(run_caught(&*backend, order));
        // What never waits needs no timer.
        if let Poll::Ready(report) = poll_fn(|context| Poll::Ready(running.as_mut().poll(context))).await {
            return report;
        }
        let left = deadline.since(self.manager.parts.clock.mono());
        let patience = left.saturating_add(Duration::from_millis(limits::BACKEND_OVERRUN_MILLIS.default));
        let ended = tokio::time::timeout(patience, running).await;
        ended.unwrap_or_else(|_| ActivationReport::without_guest(ActivationOutcome::Timeout))
    }
}

/// Runs the backend's future; a panic in it is an outcome like others.
async fn run_caught(backend: &dyn ExecutionBackend, order: Box<StartOrder>) -> ActivationReport {
    let mut order = Some(order);
    let mut future: Option<BackendFuture> = None;
    poll_fn(|cx| {
        // After a panic neither the order nor the future is touched again but to drop it.
        let step = catch_unwind(AssertUnwindSafe(|| {
            if let Some(order) = order.take() {
                future = Some(backend.run(order));
            }
            future.as_mut().map_or(Poll::Pending, |future| future.as_mut().poll(cx))
        }));
        step.unwrap_or_else(|_| Poll::Ready(panicked()))
    })
    .await
}

fn panicked() -> ActivationReport {
    let reason = "the execution backend panicked; the node's log has the message".to_owned();
    ActivationReport::without_guest(ActivationOutcome::HostFailure { reason })
}

impl Drop for RunningActivation {
    fn drop(&mut self) {
        let Some((slot, work)) = self.held.take() else { return };
        let mut report = self.report.take().unwrap_or_else(|| {
            // The backend's future panicked while it was dropped.
            if std::thread::panicking() {
                return panicked();
            }
            // Otherwise only a runtime that shuts down drops a task before its end. Nothing can run any more, so nothing may start.
            self.manager.cancel_queued();
            ActivationReport::without_guest(ActivationOutcome::Cancelled)
        });
        let started = self.started.get();
        if let Some(start) = started {
            // The backend's future is gone, so every publication has ended; what it did not report itself is here.
            report.publications.append(start.session.take_publications());
        }
        self.manager.end(slot, work, started.map(|start| start.time), report);
    }
}
