//! How the triggers that a broker wakes stand, in the form that all triggers have. What the broker says is as of the last visits.

use std::collections::BTreeMap;

use latent_nats::triggers::{BindingInput, BindingReport, TriggerBinding, TriggerMonitor, TriggerState};

use crate::config::Config;
use crate::control::{BindingState, TriggerStatus};
use crate::engine::Engine;

/// Each trigger that the broker wakes, while the node runs.
pub(super) fn stream_statuses(monitor: &TriggerMonitor) -> Vec<TriggerStatus> {
    together(monitor.bindings().iter().zip(monitor.config().bindings()).map(|(report, binding)| running(report, binding)))
}

/// The same without a node: what the broker has is not asked.
pub(crate) fn stopped_streams(config: &Config) -> Vec<TriggerStatus> {
    let of_lanes = config.lane_triggers().map(|lane| TriggerStatus {
        partitions: lane.partitions,
        ..stopped_as(lane.trigger.id.to_string(), lane.trigger.topic.to_string())
    });
    together(config.streams.iter().flat_map(|streams| streams.triggers.bindings()).map(stopped).chain(of_lanes))
}

/// One line for each trigger, whatever number of partitions it has.
fn together(of_bindings: impl Iterator<Item = TriggerStatus>) -> Vec<TriggerStatus> {
    let mut triggers: BTreeMap<String, TriggerStatus> = BTreeMap::new();
    for status in of_bindings {
        match triggers.remove(&status.id) {
            None => _ = triggers.insert(status.id.clone(), status),
            Some(known) => _ = triggers.insert(status.id.clone(), merged(known, status)),
        }
    }
    triggers.into_values().collect()
}

fn merged(one: TriggerStatus, other: TriggerStatus) -> TriggerStatus {
    let sum = |one: u64, other: u64| one.saturating_add(other);
    let both = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| sum(one, other));
    // Of the last outcomes the later one.
    let (later, earlier) = if one.last_delivery_at >= other.last_delivery_at { (&one, &other) } else { (&other, &one) };
    TriggerStatus {
        id: one.id.clone(),
        engine: one.engine.clone(),
        state: if rank(one.state) >= rank(other.state) { one.state } else { other.state },
        pending: both(one.pending, other.pending),
        unacknowledged: both(one.unacknowledged, other.unacknowledged),
        delayed: sum(one.delayed, other.delayed),
        dead_lettered: sum(one.dead_lettered, other.dead_lettered),
        last_outcome: later.last_outcome.clone().or_else(|| earlier.last_outcome.clone()),
        last_delivery_at: later.last_delivery_at,
        next_attempt_at: [one.next_attempt_at, other.next_attempt_at].into_iter().flatten().min(),
        topic: one.topic.clone(),
        partitions: one.partitions.saturating_add(other.partitions),
        settled: both(one.settled, other.settled),
        terminated: both(one.terminated, other.terminated),
        exhausted: both(one.exhausted, other.exhausted),
        expired_unread: 0,
        stranded: sum(one.stranded, other.stranded),
        stranded_at: one.stranded_at.or(other.stranded_at),
        last_error: one.last_error.clone().or_else(|| other.last_error.clone()),
    }
}

/// The most telling state stands for all.
const fn rank(state: BindingState) -> u8 {
    match state {
        BindingState::Stopped => 0,
        BindingState::Idle => 1,
        BindingState::Delayed => 2,
        BindingState::Busy => 3,
        BindingState::Stranded => 4,
        BindingState::Saturated => 5,
        BindingState::Stalled => 6,
    }
}

fn stopped(binding: &TriggerBinding) -> TriggerStatus {
    let topic = match binding.input() {
        BindingInput::Values => binding.filter().to_string(),
        BindingInput::Event { topic, .. } => topic.to_string(),
    };
    stopped_as(binding.trigger().to_string(), topic)
}

pub(super) fn stopped_as(id: String, topic: String) -> TriggerStatus {
    TriggerStatus {
        id,
        engine: Engine::Nats.word().to_owned(),
        state: BindingState::Stopped,
        pending: None,
        unacknowledged: None,
        delayed: 0,
        dead_lettered: 0,
        last_outcome: None,
        last_delivery_at: None,
        next_attempt_at: None,
        topic,
        partitions: 1,
        settled: None,
        terminated: None,
        exhausted: None,
        expired_unread: 0,
        stranded: 0,
        stranded_at: None,
        last_error: None,
    }
}

fn running(report: &BindingReport, binding: &TriggerBinding) -> TriggerStatus {
    TriggerStatus {
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
        pending: report.pending.zip(report.unacknowledged).map(|(never, unsettled)| never.saturating_add(unsettled)),
        unacknowledged: report.unacknowledged,
        delayed: u64::from(report.delayed),
        dead_lettered: report.dead_lettered,
        last_outcome: report.last_outcome.map(str::to_owned),
        last_delivery_at: report.last_delivery_at.map(|at| at.0),
        next_attempt_at: report.next_attempt_at.map(|at| at.0),
        settled: Some(report.settled),
        terminated: Some(report.terminated),
        exhausted: Some(report.exhausted),
        stranded: report.stranded,
        stranded_at: report.stranded_at,
        last_error: report.problem.as_ref().map(|(fault, why)| format!("{}: {why}", fault.kind())),
        ..stopped(binding)
    }
}
