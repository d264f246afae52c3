//! The words about what became of one event: what each trigger does with it, and the runs that the journal remembers. Bounded, so that
//! an answer always fits its line.

use std::sync::Arc;

use latent_capabilities::{Publication, PublicationEnd};
use latent_core::UnixMillis;
use latent_node::JournalEntry;
use latent_node::delivery::{EventState, EventStatus};
use serde::{Deserialize, Serialize};

use crate::limits;

/// What a node knows of one event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventHistory {
    /// The triggers of its topic, at most `why_triggers`.
    pub(crate) triggers: Vec<TriggerEvent>,
    /// Further triggers of its topic.
    pub(crate) triggers_left_out: u64,
    /// Its runs that are remembered, oldest first.
    pub(crate) runs: Vec<Run>,
    /// Older runs that are remembered and left out here.
    pub(crate) runs_left_out: u64,
    /// How far back runs are remembered; `None` when the node is stopped: its journal ends with it.
    pub(crate) journal: Option<JournalReach>,
}

/// How far back runs are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JournalReach {
    /// Runs of any event.
    pub(crate) entries: u64,
    /// When the oldest was handed over, in milliseconds since 1970.
    pub(crate) oldest_queued_at: Option<u64>,
}

/// What a trigger does with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EventWord {
    /// It is done with.
    Settled,
    /// It is done with, and that is being written down.
    Settling,
    /// It waits for its turn.
    Pending,
    /// It waits until an earlier event of its key is done with.
    BehindItsKey,
    /// It waits for its next attempt.
    Delayed,
    /// It is running.
    Running,
    /// It never runs (again) and waits to be parked.
    Condemned,
    /// It is not kept any more.
    Expired,
    /// The trigger is not configured any more.
    Removed,
    /// A broker has it: it hands it out, or has seen it settled.
    OnBroker,
}

/// One trigger and one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TriggerEvent {
    /// Id of the trigger.
    pub(crate) id: String,
    /// What it does with the event.
    pub(crate) state: EventWord,
    /// Why the event never runs (again), where that is known here.
    pub(crate) reason: Option<String>,
    /// Attempts made. None where that is not known (any more): what is settled, expired or of a broker.
    pub(crate) attempts: Option<u32>,
    /// Attempts after which the trigger gives up.
    pub(crate) attempts_max: u32,
    /// When the next attempt is due, in milliseconds since 1970.
    pub(crate) next_attempt_at: Option<u64>,
    /// The topic where its dead letters go.
    pub(crate) dead_letter_topic: Option<String>,
}

impl TriggerEvent {
    /// Of a trigger that a broker wakes, where nothing of the event is at hand.
    pub(crate) fn on_broker(id: String, attempts_max: u32, dead_letter_topic: Option<String>) -> Self {
        Self { id, state: EventWord::OnBroker, reason: None, attempts: None, attempts_max, next_attempt_at: None, dead_letter_topic }
    }

    /// As the driver tells it.
    pub(crate) fn of(status: EventStatus, dead_letter_topic: Option<String>) -> Self {
        let (state, reason) = match status.state {
            EventState::Unseen | EventState::Ready => (EventWord::Pending, None),
            EventState::BehindItsKey => (EventWord::BehindItsKey, None),
            EventState::Delayed(_) => (EventWord::Delayed, None),
            EventState::Running => (EventWord::Running, None),
            EventState::Condemned(reason) => (EventWord::Condemned, Some(reason)),
            EventState::Settling(reason) => (EventWord::Settling, reason),
            EventState::Settled => (EventWord::Settled, None),
            EventState::Expired => (EventWord::Expired, None),
        };
        let is_known = !matches!(state, EventWord::Settled | EventWord::Expired);
        Self {
            id: status.binding.to_string(),
            state,
            reason: reason.map(|reason| reason.kind().to_owned()),
            attempts: is_known.then_some(status.attempts),
            attempts_max: status.attempts_max,
            next_attempt_at: status.next_attempt_at.map(|UnixMillis(at)| at),
            dead_letter_topic,
        }
    }
}

impl EventHistory {
    /// What triggers do with an event, as much of it as fits an answer; of its runs nothing yet.
    pub(crate) fn of_triggers(mut triggers: Vec<TriggerEvent>) -> Self {
        let triggers_left_out = triggers.len().saturating_sub(limits::WHY_TRIGGERS.max_usize()) as u64;
        triggers.truncate(limits::WHY_TRIGGERS.max_usize());
        Self { triggers, triggers_left_out, ..Self::default() }
    }
}

/// One run of the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// The activation's id.
    pub(crate) activation: String,
    /// Of which trigger.
    pub(crate) trigger: String,
    /// Which run of the event it was, counted from 1.
    pub(crate) attempt: u32,
    /// Kind of its outcome: a name of `docs/errors.md`.
    pub(crate) outcome: String,
    /// Why it is not a success, in the words of the function or the host.
    pub(crate) detail: String,
    /// The service it called.
    pub(crate) service: String,
    /// The component it ran.
    pub(crate) component: String,
    /// When it was handed over, in milliseconds since 1970.
    pub(crate) queued_at: u64,
    /// When it started; `None` when no guest code ran.
    pub(crate) started_at: Option<u64>,
    /// From handing over to start.
    pub(crate) wait_micros: u64,
    /// From start to end.
    pub(crate) run_micros: u64,
    /// Fuel used.
    pub(crate) fuel: u64,
    /// Largest sum of linear memory held.
    pub(crate) memory_bytes: u64,
    /// What it published, or tried to.
    pub(crate) outputs: Vec<RunOutput>,
    /// Publications that are not named.
    pub(crate) outputs_left_out: u64,
    /// What it wrote: source and text of each line.
    pub(crate) log: Vec<(String, String)>,
    /// Bytes of its log that are not kept or not shown.
    pub(crate) log_bytes_cut: u64,
}

/// One publication of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunOutput {
    /// The topic, as the function named it.
    pub(crate) topic: String,
    /// Its uid; `None` when it ended before it had one.
    pub(crate) uid: Option<String>,
    /// `receipt`, `duplicate`, `uncertain` or a known failure.
    pub(crate) outcome: String,
    /// What hid the answer of an uncertain one.
    pub(crate) cause: Option<String>,
    /// The partition it lies in; `None` from a node, which whoever asks looks up.
    #[serde(default)]
    pub(crate) partition: Option<u32>,
    /// Its offset there, as its receipt said or as it was found.
    pub(crate) offset: Option<u64>,
    /// Whether the log has it; `None` where that was not looked up.
    #[serde(default)]
    pub(crate) in_log: Option<bool>,
}

impl RunOutput {
    fn of(publication: &Publication) -> Self {
        let (cause, offset) = match &publication.end {
            PublicationEnd::Stored { sequence, .. } => (None, Some(*sequence)),
            PublicationEnd::Uncertain { cause } => (Some((*cause).to_owned()), None),
            PublicationEnd::Conflict | PublicationEnd::Failed { .. } => (None, None),
        };
        Self {
            topic: publication.topic.as_str().to_owned(),
            uid: publication.uid.as_ref().map(|uid| uid.as_str().to_owned()),
            outcome: publication.kind().to_owned(),
            cause,
            partition: None,
            offset,
            in_log: None,
        }
    }
}

/// What is left of the room for one answer.
struct Room {
    log_bytes: u64,
    outputs: usize,
}

impl Room {
    fn run(&mut self, entry: &JournalEntry) -> Run {
        let delivery = entry.delivery.as_ref();
        let outputs: Vec<_> = entry.publications.iter().take(self.outputs).map(RunOutput::of).collect();
        self.outputs -= outputs.len();
        let outputs_left_out = entry.publications.left_out() + (entry.publications.len() - outputs.len()) as u64;
        let (log, left_out) = self.log(entry);
        Run {
            activation: entry.activation.to_string(),
            trigger: delivery.map(|delivery| delivery.origin.binding.to_string()).unwrap_or_default(),
            attempt: delivery.map(|delivery| delivery.count).unwrap_or_default(),
            outcome: entry.ended.kind.to_owned(),
            detail: entry.ended.detail.clone(),
            service: entry.service.to_string(),
            component: entry.digest.to_string(),
            queued_at: entry.queued_at.0,
            started_at: entry.started_at.map(|at| at.0),
            wait_micros: entry.wait_micros,
            run_micros: entry.run_micros,
            fuel: entry.fuel_used,
            memory_bytes: entry.memory_bytes_peak,
            outputs,
            outputs_left_out,
            log,
            log_bytes_cut: entry.log_bytes_cut.saturating_add(left_out),
        }
    }

    /// The lines there is room for, and the bytes of the others.
    fn log(&mut self, entry: &JournalEntry) -> (Vec<(String, String)>, u64) {
        let (mut kept, mut left_out) = (Vec::new(), 0_u64);
        for line in &entry.log {
            // A line of JSON around each.
            match self.log_bytes.checked_sub(line.text.len() as u64 + 32) {
                Some(rest) if left_out == 0 => {
                    self.log_bytes = rest;
                    kept.push((line.source.to_string(), line.text.clone()));
                }
                _ => left_out = left_out.saturating_add(line.text.len() as u64 + 1),
            }
        }
        (kept, left_out)
    }
}

/// The runs of an event, given newest first, as an answer has room for them; and how many older ones are left out. The newest have the
/// most room.
pub(crate) fn runs_of(entries: &[Arc<JournalEntry>]) -> (Vec<Run>, u64) {
    let runs_max = limits::WHY_RUNS.max_usize();
    let mut room = Room { log_bytes: limits::WHY_LOG_BYTES.max, outputs: limits::WHY_OUTPUTS.max_usize() };
    let mut runs: Vec<_> = entries.iter().take(runs_max).map(|entry| room.run(entry)).collect();
    runs.reverse();
    (runs, entries.len().saturating_sub(runs_max) as u64)
}

#[cfg(test)]
mod tests;
