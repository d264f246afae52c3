//! How the triggers of streams stand, in the form that all triggers have. What the broker says is as of the last visit.

use latent_nats::triggers::{BindingReport, TriggerBinding, TriggerMonitor, TriggerState};

use crate::config::Config;
use crate::control::{BindingState, TriggerStatus};
use crate::engine::Engine;

/// Each trigger that a stream wakes, while the node runs.
pub(super) fn stream_statuses(monitor: &TriggerMonitor) -> Vec<TriggerStatus> {
    monitor.bindings().into_iter().zip(monitor.config().bindings()).map(|(report, binding)| status(report, binding)).collect()
}

/// The same without a node: what the broker has is not asked.
pub(crate) fn stopped_streams(config: &Config) -> Vec<TriggerStatus> {
    let bindings = config.streams.iter().flat_map(|streams| streams.triggers.bindings());
    bindings.map(|binding| status(stopped(binding), binding)).collect()
}

fn stopped(binding: &TriggerBinding) -> BindingReport {
    BindingReport {
        id: binding.id().clone(),
        state: TriggerState::Stopped,
        pending: 0,
        unacknowledged: 0,
        delayed: false,
        terminated: 0,
        exhausted: 0,
        settled: 0,
        last_outcome: None,
        last_delivery_at: None,
        next_attempt_at: None,
        problem: None,
    }
}

fn status(report: BindingReport, binding: &TriggerBinding) -> TriggerStatus {
    let runs = report.state != TriggerState::Stopped;
    TriggerStatus {
        id: report.id.to_string(),
        engine: Engine::Nats.word().to_owned(),
        state: match report.state {
            TriggerState::Idle => BindingState::Idle,
            TriggerState::Busy => BindingState::Busy,
            TriggerState::Saturated => BindingState::Saturated,
            TriggerState::Delayed => BindingState::Delayed,
            TriggerState::Stalled => BindingState::Stalled,
            TriggerState::Stranded => BindingState::Stranded,
            TriggerState::Stopped => BindingState::Stopped,
        },
        // The broker counts apart what was never delivered.
        pending: report.pending.saturating_add(report.unacknowledged),
        unacknowledged: report.unacknowledged,
        delayed: u64::from(report.delayed),
        dead_lettered: 0,
        last_outcome: report.last_outcome.map(str::to_owned),
        last_delivery_at: report.last_delivery_at.map(|at| at.0),
        next_attempt_at: report.next_attempt_at.map(|at| at.0),
        topic: binding.filter().to_string(),
        partitions: 1,
        settled: runs.then_some(report.settled),
        terminated: runs.then_some(report.terminated),
        exhausted: runs.then_some(report.exhausted),
        expired_unread: 0,
        last_error: report.problem.map(|(fault, why)| format!("{}: {why}", fault.kind())),
    }
}
