//! What provisioning would do, as data and as text: for each topic one action, every change with both values, every refusal with what
//! to do about it. Decides nothing.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::nats_bus::words::{Told, told};

/// What provisioning would do, topic by topic in the manifest's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The topics of the manifest.
    pub topics: Vec<TopicPlan>,
}

/// What provisioning would do for one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicPlan {
    /// The topic.
    pub topic: String,
    /// Its stream.
    pub stream: String,
    /// What would be done.
    pub action: PlannedAction,
    /// Each setting that would change. With `create`: what the new stream gets, each from nothing.
    pub changes: Vec<Change>,
    /// Why nothing at all would be done.
    pub refusals: Vec<Refusal>,
    /// What holds and is worth knowing.
    pub notes: Vec<String>,
}

/// What would be done for a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlannedAction {
    /// The stream is made.
    Create,
    /// Settings of the stream are changed; all others stay as they are.
    Update,
    /// Nothing.
    Keep,
    /// The stream does not fit and cannot be made to. Then nothing is done for any topic.
    Refuse,
}

/// One setting of a stream, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The broker's name of the setting; durations are in nanoseconds.
    pub field: &'static str,
    /// The value now; null: there is none.
    pub from: Value,
    /// The value afterwards.
    pub to: Value,
    /// What follows from it, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consequence: Option<&'static str>,
}

/// Why a stream cannot become the topic's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The stream that stands in the way: the topic's own, or another one.
    pub stream: String,
    /// The broker's name of the setting.
    pub field: &'static str,
    /// The value found.
    pub found: Value,
    /// The value that it would have to have.
    pub wanted: Value,
    /// Why this is not changed, and what to do.
    pub advice: String,
}

impl Plan {
    /// True when something would be done.
    pub fn changes_anything(&self) -> bool {
        !self.is_refused() && self.topics.iter().any(|topic| topic.action != PlannedAction::Keep)
    }

    /// True when nothing is done, for any topic, because one of them is refused.
    pub fn is_refused(&self) -> bool {
        self.topics.iter().any(|topic| topic.action == PlannedAction::Refuse)
    }

    /// Every refusal, one line each, with topic, stream, field and both values.
    pub fn refusals(&self) -> Vec<String> {
        let of = |topic: &TopicPlan| topic.refusals.iter().map(|refusal| refusal.told(&topic.topic)).collect::<Vec<_>>();
        self.topics.iter().flat_map(of).collect()
    }
}

impl TopicPlan {
    /// Every setting that is not the manifest's, one line each, with both values.
    pub(super) fn differences(&self) -> Vec<String> {
        let of = |change: &Change| {
            let Change { field, from, to, .. } = change;
            let (topic, stream, from, to) = (&self.topic, &self.stream, Shown(field, from), Shown(field, to));
            format!("topic {topic:?}: stream {stream:?} has {field} {from} and the manifest wants {to}")
        };
        let refusals = self.refusals.iter().map(|refusal| refusal.told(&self.topic));
        refusals.chain(self.changes.iter().map(of)).collect()
    }
}

impl Refusal {
    fn told(&self, topic: &str) -> String {
        let Self { stream, field, found, wanted, advice } = self;
        let (found, wanted) = (Shown(field, found), Shown(field, wanted));
        format!("topic {topic:?}: stream {stream:?} has {field} {found} and the manifest wants {wanted}; {advice}")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.topics.iter().try_for_each(|topic| topic.fmt(f))
    }
}

impl fmt::Display for TopicPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.action {
            PlannedAction::Create => "create",
            PlannedAction::Update => "update",
            PlannedAction::Keep => "keep",
            PlannedAction::Refuse => "refused",
        };
        writeln!(f, "{done} stream {} of topic {}", self.stream, self.topic)?;
        for change in &self.changes {
            writeln!(f, "  {change}")?;
        }
        for refusal in &self.refusals {
            writeln!(f, "  refused: {}", refusal.told(&self.topic))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, from, to, consequence } = self;
        match from {
            Value::Null => write!(f, "{field}: {}", Shown(field, to))?,
            from => write!(f, "{field}: {} -> {}", Shown(field, from), Shown(field, to))?,
        }
        consequence.map_or(Ok(()), |consequence| write!(f, " ({consequence})"))
    }
}

/// Subjects that are shown of a longer list.
const SUBJECTS_SHOWN: usize = 4;

/// A value as a person reads it: durations with their unit, long lists cut.
pub(super) struct Shown<'v>(pub(super) &'v str, pub(super) &'v Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            ("max_age" | "duplicate_window", Value::Number(nanos)) => write!(f, "{}", duration(nanos.as_u64().unwrap_or_default())),
            (_, Value::Array(list)) => {
                let shown: Vec<_> = list.iter().take(SUBJECTS_SHOWN).map(|item| told(item.as_str().unwrap_or("?"))).collect();
                write!(f, "[{}", shown.join(", "))?;
                match list.len().saturating_sub(SUBJECTS_SHOWN) {
                    0 => f.write_str("]"),
                    more => write!(f, ", and {more} more]"),
                }
            }
            (_, Value::Null) => f.write_str("nothing"),
            (_, Value::String(text)) => write!(f, "{}", Told(text)),
            (_, other) => write!(f, "{}", told(other)),
        }
    }
}

/// In the largest unit that needs no fraction.
fn duration(nanos: u64) -> String {
    let units = [("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000)];
    if nanos == 0 {
        return "0 (no limit)".to_owned();
    }
    let fitting = units.iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
    fitting.map_or_else(|| format!("{nanos} ns"), |(name, unit)| format!("{} {name}", nanos / unit))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_read_as_a_person_would_write_them() {
        let table = [
            ("max_age", json!(7_200_000_000_000_u64), "2 h"),
            ("max_age", json!(0), "0 (no limit)"),
            ("duplicate_window", json!(90_000_000_000_u64), "90 s"),
            ("duplicate_window", json!(120_000_000_000_u64), "2 min"),
            ("duplicate_window", json!(100_000_000), "100 ms"),
            ("max_age", json!(1), "1 ns"),
            ("num_replicas", json!(3), "3"),
            ("storage", json!("file"), "file"),
            ("mirror", Value::Null, "nothing"),
            ("subjects", json!(["a.p0", "a.p1"]), "[a.p0, a.p1]"),
            ("subjects", json!(["a", "b", "c", "d", "e", "f"]), "[a, b, c, d, and 2 more]"),
        ];
        for (field, value, expected) in table {
            assert_eq!(Shown(field, &value).to_string(), expected);
        }
    }

    #[test]
    fn the_text_of_a_plan_has_both_sides_of_everything() {
        let change =
            Change { field: "max_age", from: json!(7_200_000_000_000_u64), to: json!(3_600_000_000_000_u64), consequence: Some("gone") };
        let refusal = Refusal {
            stream: "av_b".to_owned(),
            field: "storage",
            found: json!("memory"),
            wanted: json!("file"),
            advice: "move it".to_owned(),
        };
        let topic = |topic: &str, action, changes, refusals| TopicPlan {
            topic: topic.to_owned(),
            stream: format!("av_{topic}"),
            action,
            changes,
            refusals,
            notes: vec!["so it is".to_owned()],
        };
        let update = topic("a", PlannedAction::Update, vec![change], Vec::new());
        let kept = Plan { topics: vec![TopicPlan { notes: Vec::new(), ..topic("c", PlannedAction::Keep, Vec::new(), Vec::new()) }] };
        assert!(!kept.changes_anything() && !kept.is_refused());
        assert_eq!(kept.to_string(), "keep stream av_c of topic c\n");
        let updated = Plan { topics: vec![update.clone()] };
        assert!(updated.changes_anything() && !updated.is_refused());
        assert_eq!(updated.to_string(), "update stream av_a of topic a\n  max_age: 2 h -> 1 h (gone)\n  note: so it is\n");
        assert_eq!(update.differences(), ["topic \"a\": stream \"av_a\" has max_age 2 h and the manifest wants 1 h"]);
        let refused = Plan { topics: vec![update, topic("b", PlannedAction::Refuse, Vec::new(), vec![refusal])] };
        let line = "topic \"b\": stream \"av_b\" has storage memory and the manifest wants file; move it";
        assert!(!refused.changes_anything() && refused.is_refused());
        assert_eq!(refused.refusals(), [line]);
        assert!(refused.to_string().contains(&format!("refused: {line}")), "{refused}");
        assert_eq!(serde_json::to_value(&refused).unwrap()["topics"][1]["action"], "refuse");
    }
}
