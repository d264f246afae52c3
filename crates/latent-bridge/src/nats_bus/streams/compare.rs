//! A topic's stream against the manifest: what would be done, and what stands in the way. Pure.
//!
//! Four settings are the manifest's: subjects, `max_age`, `duplicate_window`, `num_replicas`. Subjects are never changed on a stream that
//! is there, since that would orphan or re-point events. Everything else is the operator's, unless the log cannot live with it.

use serde_json::{Map, Value, json};

use super::desired::Desired;
use super::info::StreamInfo;
use super::plan::{Change, PlannedAction, Refusal, TopicPlan};
use crate::limits;

/// How long a reader's consumer may idle.
const READER_IDLE_NANOS: u64 = limits::READER_IDLE_MILLIS.default * 1_000_000;

/// What to do about a topic whose stream is `found`.
pub(super) fn compare(desired: &Desired, found: Option<&StreamInfo>) -> TopicPlan {
    let (changes, refusals, notes) = match found {
        None => (creation(desired), Vec::new(), Vec::new()),
        Some(found) => (changes(desired, found), refusals(desired, found), notes(found)),
    };
    let action = match (found, changes.is_empty()) {
        _ if !refusals.is_empty() => PlannedAction::Refuse,
        (None, _) => PlannedAction::Create,
        (Some(_), false) => PlannedAction::Update,
        (Some(_), true) => PlannedAction::Keep,
    };
    TopicPlan { topic: desired.topic.clone(), stream: desired.stream.clone(), action, changes, refusals, notes }
}

/// The configuration to send: what was found, with the manifest's settings in it.
pub(super) fn merged(desired: &Desired, found: &StreamInfo) -> Value {
    let mut config: Map<String, Value> = found.config.clone();
    for (field, value) in owned(desired) {
        config.insert(field.to_owned(), value);
    }
    Value::Object(config)
}

fn owned(desired: &Desired) -> [(&'static str, Value); 3] {
    [
        ("max_age", json!(desired.max_age_nanos)),
        ("duplicate_window", json!(desired.duplicate_window_nanos)),
        ("num_replicas", json!(desired.replicas)),
    ]
}

fn creation(desired: &Desired) -> Vec<Change> {
    let all = [("subjects", json!(desired.subjects))].into_iter().chain(owned(desired));
    all.map(|(field, to)| Change { field, from: Value::Null, to, consequence: None }).collect()
}

fn changes(desired: &Desired, found: &StreamInfo) -> Vec<Change> {
    let changed = owned(desired).into_iter().filter_map(|(field, to)| {
        let from = json!(found.number(field));
        (from != to).then(|| Change { field, consequence: consequence(field, &from, &to), from, to })
    });
    changed.collect()
}

/// 0 is no limit for `max_age`.
fn consequence(field: &str, from: &Value, to: &Value) -> Option<&'static str> {
    let (from, to) = (from.as_u64()?, to.as_u64()?);
    match field {
        "max_age" if from == 0 || to < from => Some("events older than this are removed at once"),
        "duplicate_window" if to < from => Some("uids older than this are taken again"),
        "num_replicas" if to < from => Some("copies are given up"),
        _ => None,
    }
}

fn refusals(desired: &Desired, found: &StreamInfo) -> Vec<Refusal> {
    let refused =
        |field, found: Value, wanted: Value, advice: String| Refusal { stream: desired.stream.clone(), field, found, wanted, advice };
    let mut refusals: Vec<Refusal> = subject_advice(desired, found)
        .map(|advice| refused("subjects", json!(found.subjects()), json!(desired.subjects), advice))
        .into_iter()
        .collect();
    let moved = "the broker cannot change it; move the events to a new stream, or give the topic another name";
    for (field, wanted, default) in [("storage", "file", "file"), ("retention", "limits", "limits")] {
        let is = found.text(field, default);
        if is != wanted {
            refusals.push(refused(field, json!(is), json!(wanted), moved.to_owned()));
        }
    }
    for &(field, why) in UNFIT {
        let value = found.config.get(field).filter(|value| is_set(value));
        refusals.extend(value.map(|value| refused(field, value.clone(), Value::Null, why.to_owned())));
    }
    refusals
}

/// Settings with which a stream is no log that this client could publish to and read from.
const UNFIT: &[(&str, &str)] = &[
    ("sealed", "a sealed stream takes nothing; give the topic another name"),
    ("mirror", "a mirror takes no events of its own; give the topic another name"),
    ("sources", "events of other streams would count as the topic's; take the sources away"),
    ("subject_transform", "events would not stay on the partition they were published to; take it away"),
    ("no_ack", "without acknowledgements no publication is ever known to be stored; take it away"),
    ("allow_msg_counter", "a stream of counters takes no events; give the topic another name"),
];

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

/// `None` when the subjects are the topic's, in whatever order.
fn subject_advice(desired: &Desired, found: &StreamInfo) -> Option<String> {
    let (mut is, mut wanted): (Vec<_>, Vec<_>) = (found.subjects(), desired.subjects.iter().map(String::as_str).collect());
    is.sort_unstable();
    wanted.sort_unstable();
    if is == wanted {
        return None;
    }
    let mut numbers: Vec<u32> = is.iter().filter_map(|subject| partition_of(&desired.topic, subject)).collect();
    numbers.sort_unstable();
    let whole = numbers.len() == is.len() && numbers.iter().copied().eq(0..u32::try_from(is.len()).unwrap_or(u32::MAX));
    Some(if whole && !is.is_empty() {
        let (is, wanted) = (is.len(), desired.partitions);
        format!(
            "a changed count would send keys to other partitions: the topic has {is} partitions and the manifest says {wanted}, use {is}"
        )
    } else {
        "these are not the partitions of the topic; the stream belongs to something else: give it or the topic another name".to_owned()
    })
}

fn partition_of(topic: &str, subject: &str) -> Option<u32> {
    let digits = subject.strip_prefix(topic)?.strip_prefix(".p")?;
    let number = digits.parse().ok()?;
    (digits == u32::to_string(&number)).then_some(number)
}

/// What the operator decided and should know the price of.
pub(super) fn notes(found: &StreamInfo) -> Vec<String> {
    let mut notes = Vec::new();
    for field in ["max_bytes", "max_msgs", "max_msgs_per_subject"] {
        let limit = found.config.get(field).and_then(Value::as_i64).filter(|limit| *limit > 0);
        let what = if found.text("discard", "old") == "new" {
            "beyond it events are refused"
        } else {
            "beyond it the oldest events are removed, whatever the manifest keeps"
        };
        notes.extend(limit.map(|limit| format!("{field} is {limit}: {what}")));
    }
    let consumers = found.config.get("max_consumers").and_then(Value::as_i64).filter(|limit| *limit > 0);
    notes.extend(
        consumers.map(|limit| format!("max_consumers is {limit}: reading makes consumers of its own and fails when there are more")),
    );
    let idle = found.config.get("consumer_limits").and_then(|limits| limits.get("inactive_threshold"));
    let idle = idle.filter(|limit| limit.as_u64().is_some_and(|limit| (1..READER_IDLE_NANOS).contains(&limit)));
    notes.extend(
        idle.map(|limit| format!("consumer_limits.inactive_threshold is {limit} ns: reading needs {READER_IDLE_NANOS} ns and fails")),
    );
    if found.text("persist_mode", "default") == "async" {
        notes.push("persist_mode is async: the broker acknowledges what a crash can lose".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests;
