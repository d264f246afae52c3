//! The story of an event in lines for people. Pure.

use std::fmt::Write as _;

use latent_core::{Attributes, Replay};

use super::story::Story;
use crate::administration::short_digest;
use crate::commands::deadletter::Letter;
use crate::control::{Event, EventWord, JournalReach, Run, RunOutput, TriggerEvent};
use crate::output::printable;
use crate::timestamp::{time_until, timestamp};

/// A name and what is said of it, one below the other.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn push(&mut self, name: &str, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{name:<9} {}", printable(text));
    }

    fn below(&mut self, text: &str) {
        self.push("", text);
    }
}

/// The whole story at `now`, in milliseconds since 1970.
pub(super) fn tell(story: &Story, now: u64) -> String {
    let mut lines = Lines::default();
    event(story, &mut lines);
    for trigger in &story.history.triggers {
        lines.push("trigger", &format!("{}: {}", trigger.id, trigger_words(story, trigger, now)));
    }
    if story.history.triggers.is_empty() {
        lines.push("trigger", "none wakes for this topic");
    }
    left_out(&mut lines, story.history.triggers_left_out, "further trigger");
    left_out(&mut lines, story.history.runs_left_out, "older run");
    story.history.runs.iter().for_each(|told| run(told, &mut lines));
    for replayed in &story.replays {
        let Event { partition, offset, uid, .. } = &replayed.event;
        lines.push("replay", &format!("{}/{partition}/{offset}, uid {uid}, out of dead letter {}", story.topic, replayed.replay.letter));
    }
    lines.push("journal", &journal_words(story.history.journal));
    lines.0
}

fn left_out(lines: &mut Lines, count: u64, what: &str) {
    match count {
        0 => {}
        1 => lines.below(&format!("1 {what} is not shown")),
        count => lines.below(&format!("{count} {what}s are not shown")),
    }
}

fn event(story: &Story, lines: &mut Lines) {
    match &story.event {
        Some(event) => {
            let Event { uid, key, media_type, attributes, payload, stored_at, .. } = event;
            let key = if key.is_empty() { "no key".to_owned() } else { format!("key {key}") };
            lines.push("event", &format!("{}, uid {uid}", story.place));
            lines.below(&format!("stored {}, {key}, {media_type}, {} bytes", timestamp(*stored_at), payload.0.len()));
            let attributes = Attributes::stored(attributes.clone()).unwrap_or_default();
            attributes.client().for_each(|(name, value)| lines.below(&format!("attribute {name}: {value}")));
        }
        None => lines.push("event", &format!("{}, uid {}; the log has it no more", story.place, story.uid)),
    }
    if let Some(Replay { number, letter, place, uid, .. }) = story.replay_of() {
        lines.below(&format!("it is replay {number} of {place}, uid {uid}, out of dead letter {letter}"));
    }
    if let Some(letter) = &story.is_letter {
        lines.below(&format!("it is the dead letter of {}: {}", letter.letter.place, verdict_words(letter)));
    }
}

fn trigger_words(story: &Story, trigger: &TriggerEvent, now: u64) -> String {
    let (attempts, attempts_max) = (trigger.attempts.unwrap_or_default(), trigger.attempts_max);
    let attempt = attempts.saturating_add(1);
    let why = trigger.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let parked = story.letter_of(&trigger.id).map(|letter| {
        let at = timestamp(letter.event.stored_at);
        format!("parked in {} at {at}: {}", letter.place, verdict_words(letter))
    });
    match (trigger.state, parked) {
        (EventWord::Removed, parked) => {
            let parked = parked.map(|parked| format!("; {parked}")).unwrap_or_default();
            format!("is not configured any more, and its state is kept{parked}")
        }
        (_, Some(parked)) => parked,
        (EventWord::Settled, None) => settled_words(story, &trigger.id),
        (EventWord::Settling, None) => format!("done{why}; that is being written down"),
        (EventWord::Pending, None) => format!("waits for its turn, then runs for attempt {attempt} of {attempts_max}"),
        (EventWord::BehindItsKey, None) => "waits until an earlier event of its key is done".to_owned(),
        (EventWord::Delayed, None) => {
            let due = trigger.next_attempt_at.map_or_else(String::new, |at| format!(" {}", time_until(at, now)));
            format!("attempt {attempt} of {attempts_max} is due{due}")
        }
        // The attempt that runs was counted when it began.
        (EventWord::Running, None) => format!("is running, attempt {} of {attempts_max}", attempts.max(1)),
        (EventWord::Condemned, None) => {
            let place = trigger.dead_letter_topic.as_ref().map_or_else(String::new, |topic| format!(" in {topic}"));
            format!("will not run again{why} and waits to be parked{place}")
        }
        (EventWord::OnBroker, None) => "a broker wakes it; what it decided is not kept, its runs and dead letters are".to_owned(),
        (EventWord::Expired, None) => "the log has removed it; whether it was done is not known any more".to_owned(),
    }
}

/// Of a settled event nothing but its runs says how.
fn settled_words(story: &Story, trigger: &str) -> String {
    match story.history.runs.iter().rev().find(|run| run.trigger == trigger) {
        Some(run) if run.outcome == "success" => format!("done: success at attempt {}", run.attempt),
        Some(run) => format!("done: it ended with {} at attempt {} and will not run again", run.outcome, run.attempt),
        None => "done; no run of it is remembered".to_owned(),
    }
}

fn verdict_words(letter: &Letter) -> String {
    let verdict = &letter.letter.verdict;
    let attempts = match verdict.attempts {
        0 => "without a run".to_owned(),
        1 => "after 1 attempt".to_owned(),
        attempts => format!("after {attempts} attempts"),
    };
    let detail = if letter.detail().is_empty() { String::new() } else { format!(": {}", letter.detail()) };
    format!("{} {attempts}{detail}", verdict.reason.kind())
}

fn run(run: &Run, lines: &mut Lines) {
    let at = timestamp(run.started_at.unwrap_or(run.queued_at));
    let detail = if run.detail.is_empty() { String::new() } else { format!(": {}", run.detail) };
    lines.push("run", &format!("{at}, {}, attempt {}: {}{detail}", run.trigger, run.attempt, run.outcome));
    let (wait, ran) = (millis(run.wait_micros), millis(run.run_micros));
    let spent = format!("waited {wait} ms, ran {ran} ms, fuel {}, memory {} KiB", run.fuel, run.memory_bytes.div_ceil(1_024));
    lines.below(&format!("{spent}, service {}, component {}", run.service, short_digest(&run.component)));
    lines.below(&format!("activation {}", run.activation));
    run.outputs.iter().for_each(|output| lines.below(&output_words(output)));
    left_out(lines, run.outputs_left_out, "further publication");
    run.log.iter().for_each(|(source, text)| lines.below(&format!("{source}: {text}")));
    if run.log_bytes_cut > 0 {
        lines.below(&format!("{} bytes of its log are not kept or not shown", run.log_bytes_cut));
    }
}

#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
fn millis(micros: u64) -> String {
    format!("{:.1}", micros as f64 / 1_000.0)
}

fn output_words(output: &RunOutput) -> String {
    let RunOutput { topic, uid, outcome, cause, partition, offset, in_log } = output;
    let place = match (partition, offset) {
        (Some(partition), Some(offset)) => format!("{topic}/{partition}/{offset}"),
        (None, Some(offset)) => format!("{topic} at offset {offset}"),
        (_, None) => topic.clone(),
    };
    let uid = uid.as_ref().map(|uid| format!(", uid {uid}")).unwrap_or_default();
    let cause = cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
    let found = match (outcome.as_str(), in_log) {
        ("uncertain", Some(true)) => "; the log has it",
        ("uncertain", Some(false)) => "; the log does not have it",
        (_, Some(false)) => "; the log has it no more",
        (_, Some(true) | None) => "",
    };
    format!("published {place}{uid}: {outcome}{cause}{found}")
}

fn journal_words(journal: Option<JournalReach>) -> String {
    match journal {
        None => "the node is stopped, and its journal of runs ended with it".to_owned(),
        Some(JournalReach { oldest_queued_at: None, .. }) => "no run of any event is remembered yet".to_owned(),
        Some(JournalReach { entries, oldest_queued_at: Some(oldest) }) => {
            format!("the last {entries} runs of any event are remembered, from {} on", timestamp(oldest))
        }
    }
}

#[cfg(test)]
mod tests;
