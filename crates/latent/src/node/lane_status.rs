//! How the triggers that follow `nats-jetstream-pull-v2` stand: what the delivery cycle does, with what the broker said of their consumers last
//! (T-110).

use std::collections::BTreeMap;

use latent_core::{BindingId, Offset, Partition};
use latent_nats::lanes::{LaneMonitor, LaneReport};

use crate::control::{BindingState, TriggerStatus};
use crate::engine::Engine;

/// The lanes of each trigger, together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Consumers {
    /// `None` while not all were asked yet.
    pending: Option<u64>,
    unacknowledged: Option<u64>,
    /// What stands in the way of one of them.
    trouble: Option<String>,
    /// Partitions of which the broker gave up on messages.
    stranded: u64,
    stranded_at: Option<u64>,
}

/// Where a trigger's partition is settled up to, as its broker said last; 0 while it has not said.
pub(super) fn settled_up_to(monitors: &[LaneMonitor], trigger: &BindingId, partition: Partition) -> Offset {
    let id = format!("{trigger}_p{partition}");
    let of_lane = monitors.iter().flat_map(LaneMonitor::lanes).find(|report| report.trigger == *trigger && report.id.as_str() == id);
    Offset(of_lane.map_or(0, |report| report.settled_up_to))
}

/// By the trigger's id.
pub(super) fn of(monitors: &[LaneMonitor]) -> BTreeMap<String, Consumers> {
    let mut all: BTreeMap<String, Consumers> = BTreeMap::new();
    for report in monitors.iter().flat_map(LaneMonitor::lanes) {
        let known = all.remove(report.trigger.as_str());
        all.insert(report.trigger.to_string(), Consumers::with(known, &report));
    }
    all
}

impl Consumers {
    fn with(known: Option<Self>, report: &LaneReport) -> Self {
        let seen = |number: u64| report.is_inspected.then_some(number);
        let known = known.unwrap_or(Self { pending: Some(0), unacknowledged: Some(0), ..Self::default() });
        let sum = |known: Option<u64>, more: u64| known.zip(seen(more)).map(|(known, more)| known.saturating_add(more));
        let trouble = report.trouble.as_ref().map(|(fault, why, _)| format!("{}: {why}", fault.kind()));
        Self {
            // The broker counts apart what was never delivered.
            pending: sum(known.pending, report.pending.saturating_add(report.unacknowledged)),
            unacknowledged: sum(known.unacknowledged, report.unacknowledged),
            trouble: known.trouble.or(trouble),
            stranded: known.stranded.saturating_add(u64::from(report.stranded.is_some())),
            stranded_at: known.stranded_at.or(report.stranded.map(|stranded| stranded.settled_up_to.saturating_add(1))),
        }
    }

    /// What the cycle says, with what the broker says.
    pub(super) fn status(&self, cycle: TriggerStatus) -> TriggerStatus {
        let waits = self.pending.is_some_and(|pending| pending > 0);
        // At the broker, for whom there is room.
        let behind = self.pending.zip(self.unacknowledged).map(|(pending, unacknowledged)| pending.saturating_sub(unacknowledged));
        // A pull that stands at the broker while nothing comes is no work.
        let rests = self.pending == Some(0) && cycle.unacknowledged == Some(0) && cycle.delayed == 0;
        let cycle_state = if cycle.state == BindingState::Busy && rests { BindingState::Idle } else { cycle.state };
        let state = match cycle_state {
            BindingState::Stopped => BindingState::Stopped,
            _ if self.trouble.is_some() => BindingState::Stalled,
            BindingState::Idle if self.stranded > 0 => BindingState::Stranded,
            // Messages wait at the broker, or another node has them.
            BindingState::Idle if waits => BindingState::Busy,
            BindingState::Delayed if behind > Some(0) => BindingState::Busy,
            BindingState::Saturated if behind == Some(0) && cycle.delayed > 0 => BindingState::Delayed,
            state => state,
        };
        TriggerStatus {
            engine: Engine::Nats.word().to_owned(),
            state,
            pending: self.pending,
            unacknowledged: self.unacknowledged,
            stranded: self.stranded,
            stranded_at: self.stranded_at,
            last_error: self.trouble.clone().or(cycle.last_error),
            ..cycle
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::stream_status::stopped_as;

    fn consumers(pending: Option<u64>, stranded: u64, trouble: Option<&str>) -> Consumers {
        Consumers { pending, unacknowledged: pending, trouble: trouble.map(str::to_owned), stranded, stranded_at: None }
    }

    #[test]
    fn whether_anything_waits_behind_what_is_here_is_what_the_broker_says() {
        use BindingState::{Busy, Delayed, Saturated};
        for (cycle, behind, expected) in [(Delayed, 0, Delayed), (Delayed, 1, Busy), (Saturated, 0, Delayed), (Saturated, 1, Saturated)] {
            let here = TriggerStatus { state: cycle, delayed: 1, ..stopped_as("t".to_owned(), "in".to_owned()) };
            let consumers = Consumers { unacknowledged: Some(8), ..consumers(Some(8 + behind), 0, None) };
            assert_eq!(consumers.status(here).state, expected, "{cycle:?} {behind}");
        }
    }

    #[test]
    fn what_the_broker_says_and_what_the_cycle_does_are_one_state() {
        use BindingState::{Busy, Delayed, Idle, Saturated, Stalled, Stopped, Stranded};
        for (cycle, unacknowledged, pending, stranded, trouble, expected) in [
            (Idle, 0, Some(0), 0, None, Idle),
            (Idle, 0, None, 0, None, Idle),
            (Idle, 0, Some(3), 0, None, Busy),
            (Busy, 0, Some(0), 0, None, Idle),
            (Busy, 1, Some(0), 0, None, Busy),
            (Busy, 0, Some(1), 0, None, Busy),
            (Busy, 0, Some(0), 1, None, Stranded),
            (Idle, 0, Some(0), 1, None, Stranded),
            (Delayed, 0, Some(1), 1, None, Delayed),
            (Saturated, 1, Some(9), 0, None, Saturated),
            (Busy, 1, Some(1), 0, Some("permission-refused: no"), Stalled),
            (Stopped, 0, Some(1), 1, Some("unreachable: no"), Stopped),
        ] {
            let cycle = TriggerStatus { state: cycle, unacknowledged: Some(unacknowledged), ..stopped_as("t".to_owned(), "in".to_owned()) };
            let told = consumers(pending, stranded, trouble).status(cycle.clone());
            assert_eq!(told.state, expected, "{cycle:?} {pending:?} {stranded} {trouble:?}");
            assert_eq!((told.pending, told.last_error.as_deref(), told.engine.as_str()), (pending, trouble, "nats"));
        }
    }
}
