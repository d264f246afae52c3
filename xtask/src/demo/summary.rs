//! What happened, from what the commands and the node said. No I/O: documents in, a summary out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// Rows of each table for people.
const TABLE_ROWS_MAX: usize = 8;

/// What became of one line of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Publication {
    Stored,
    Duplicate,
    /// With the error's kind.
    Refused(String),
}

impl Publication {
    /// Reads a line of `latent bus publish --json`.
    pub(super) fn parse(document: &Value) -> Result<Self, Failure> {
        if let Some(kind) = document.pointer("/error/kind").and_then(Value::as_str) {
            return Ok(Self::Refused(kind.to_owned()));
        }
        match document.get("duplicate").and_then(Value::as_bool) {
            Some(true) => Ok(Self::Duplicate),
            Some(false) => Ok(Self::Stored),
            None => Err(unexpected("`latent bus publish --json`", document)),
        }
    }
}

/// A parked event, as `latent deadletter list --json` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeadLetter {
    topic: String,
    partition: u64,
    offset: u64,
    reason: String,
}

impl DeadLetter {
    /// Reads a line of `latent deadletter list --json`.
    pub(super) fn parse(document: &Value) -> Result<Self, Failure> {
        let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        let number = |name: &str| document.get(name).and_then(Value::as_u64);
        let read =
            || Some(Self { topic: text("topic")?, partition: number("partition")?, offset: number("offset")?, reason: text("reason")? });
        read().ok_or_else(|| unexpected("`latent deadletter list --json`", document))
    }

    fn json(&self) -> Value {
        json!({"topic": self.topic, "partition": self.partition, "offset": self.offset, "reason": self.reason})
    }
}

/// What a run left behind, as the commands and the node told it.
pub(super) struct Findings<'f> {
    pub(super) published: &'f [Publication],
    /// The node's summary.
    pub(super) counters: &'f Value,
    /// The events of the output topic.
    pub(super) results: &'f [Value],
    pub(super) dead_letters: Vec<DeadLetter>,
}

/// Everything a run says about itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summary {
    events_in: u64,
    refused: BTreeMap<String, u64>,
    activations: [(&'static str, u64); 3],
    /// Receipts of the function's publications, and how many of them said that the event was there already.
    receipts: (u64, u64),
    events_out: u64,
    duplicates_suppressed: u64,
    dead_letters: Vec<DeadLetter>,
    append_to_settled_ms: Option<(f64, f64)>,
    by_class: BTreeMap<String, u64>,
    by_repository: BTreeMap<String, u64>,
}

impl Summary {
    /// Puts together what was found.
    pub(super) fn of(findings: Findings<'_>) -> Result<Self, Failure> {
        let Findings { published, counters, results, dead_letters } = findings;
        let count =
            |pointer: &str| counters.pointer(pointer).and_then(Value::as_u64).ok_or_else(|| unexpected("the node's summary", counters));
        let of_kind = |kind: &Publication| published.iter().filter(|publication| *publication == kind).count() as u64;
        let refused = published.iter().filter_map(|publication| match publication {
            Publication::Refused(kind) => Some(kind.as_str()),
            Publication::Stored | Publication::Duplicate => None,
        });
        let percentile = |name: &str| counters.pointer(&format!("/append_to_settled_ms/{name}")).and_then(Value::as_f64);
        let receipts = (count("/publications/receipts")?, count("/publications/duplicates")?);
        Ok(Self {
            events_in: of_kind(&Publication::Stored),
            refused: counted(refused),
            activations: [
                ("success", count("/activations/success")?),
                ("rejected", count("/activations/rejected")?),
                ("failed", count("/activations/failed")?),
            ],
            receipts,
            events_out: results.len() as u64,
            duplicates_suppressed: of_kind(&Publication::Duplicate) + receipts.1,
            dead_letters,
            append_to_settled_ms: percentile("p50").zip(percentile("p99")),
            by_class: counted(results.iter().map(|event| text(event, "/value/class"))),
            by_repository: counted(results.iter().map(|event| text(event, "/key"))),
        })
    }

    /// The document that machines read.
    pub(super) fn json(&self) -> Value {
        let activations: Map<String, Value> =
            self.activations.iter().map(|(outcome, count)| ((*outcome).to_owned(), json!(count))).collect();
        let (p50, p99) = self.append_to_settled_ms.unzip();
        json!({
            "events_in": self.events_in,
            "activations": activations,
            "events_out": self.events_out,
            "duplicates_suppressed": self.duplicates_suppressed,
            "dead_letters": self.dead_letters.iter().map(DeadLetter::json).collect::<Vec<_>>(),
            "append_to_settled_ms": {"p50": p50, "p99": p99},
        })
    }

    /// How the numbers explain each other; `None` where they do not, as after a failed attempt or with an event of someone else's on
    /// the output topic.
    fn sentence(&self) -> Option<String> {
        let [(_, handled), (_, rejected), (_, failed)] = self.activations;
        let (events, (publications, there)) = (self.events_in, self.receipts);
        let new = self.events_out;
        let is_sum = |one: u64, other: u64, sum: u64| one.checked_add(other) == Some(sum);
        let adds_up = failed == 0 && is_sum(handled, rejected, events) && is_sum(new, there, publications);
        adds_up.then(|| {
            format!(
                "{events} events: {handled} handled, {rejected} rejected; {publications} publications: {new} new, {there} already there"
            )
        })
    }

    /// The same for people, with what to look at next.
    pub(super) fn readable(&self, next_steps: &[String]) -> String {
        let mut page = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(page, "{name:<38} {value}");
        };
        if let Some(sentence) = self.sentence() {
            line(&sentence, String::new());
            line("", String::new());
        }
        line("events in", self.events_in.to_string());
        for (kind, count) in &self.refused {
            line("  refused lines", format!("{count} ({kind})"));
        }
        for (outcome, count) in self.activations {
            line(&format!("activations {outcome}"), count.to_string());
        }
        line("events out", self.events_out.to_string());
        line("duplicates suppressed", self.duplicates_suppressed.to_string());
        line("dead letters", self.dead_letters.len().to_string());
        for (reason, count) in counted(self.dead_letters.iter().map(|letter| letter.reason.as_str())) {
            line(&format!("  {reason}"), count.to_string());
        }
        if let Some((p50, p99)) = self.append_to_settled_ms {
            line("append to settled", format!("p50 {p50:.1} ms, p99 {p99:.1} ms"));
        }
        for (title, table) in [("by class", &self.by_class), ("by repository", &self.by_repository)] {
            line("", String::new());
            line(title, String::new());
            largest(table).for_each(|(name, count)| line(&format!("  {name}"), count));
        }
        line("", String::new());
        line("where to look next", String::new());
        next_steps.iter().for_each(|step| line(&format!("  {step}"), String::new()));
        page.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}

/// Events of all bindings that are not settled yet, from the lines of `latent trigger status --json`.
pub(super) fn unsettled(statuses: &[Value]) -> Result<u64, Failure> {
    let left = |status: &Value| {
        let counts = ["pending", "unacknowledged", "delayed"].map(|name| status.get(name).and_then(Value::as_u64));
        // Each of the three may be counted within another: the largest is how many are left at least.
        counts.into_iter().try_fold(0, |most, count| count.map(|count| most.max(count)))
    };
    statuses.iter().map(|status| left(status).ok_or_else(|| unexpected("`latent trigger status --json`", status))).sum()
}

/// Events settled since the node started, from its summary.
pub(super) fn settled(counters: &Value) -> Result<u64, Failure> {
    counters.get("events_settled").and_then(Value::as_u64).ok_or_else(|| unexpected("the node's summary", counters))
}

/// Partitions of `topic`, from the lines of `latent bus topics --json`.
pub(super) fn partitions(topics: &[Value], topic: &str) -> Result<u64, Failure> {
    let line = topics.iter().find(|line| line.get("topic").and_then(Value::as_str) == Some(topic));
    let partitions = line.and_then(|line| line.get("partitions")).and_then(Value::as_u64);
    partitions.ok_or_else(|| unexpected("`latent bus topics --json`", &json!(topics)))
}

fn unexpected(what: &str, document: &Value) -> Failure {
    Failure::Unexpected { what: what.to_owned(), problem: document.to_string().chars().take(400).collect() }
}

fn text<'a>(event: &'a Value, pointer: &str) -> &'a str {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or("(none)")
}

fn counted<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name.to_owned()).or_insert(0) += 1);
    counts
}

/// The largest rows, and how many more there are.
fn largest(table: &BTreeMap<String, u64>) -> impl Iterator<Item = (String, String)> {
    let mut rows: Vec<(&String, &u64)> = table.iter().collect();
    rows.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let more = rows.len().saturating_sub(TABLE_ROWS_MAX);
    let shown = rows.into_iter().take(TABLE_ROWS_MAX).map(|(name, count)| (name.clone(), count.to_string()));
    shown.chain((more > 0).then(|| (format!("and {more} more"), String::new())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Value {
        json!({
            "activations": {"success": 1, "rejected": 1, "failed": 0}, "events_settled": 2,
            "publications": {"receipts": 2, "duplicates": 1, "failures": 0, "uncertain": 0},
            "append_to_settled_ms": {"p50": 1.25, "p99": 9.5},
        })
    }

    fn sample(counters: &Value) -> Summary {
        let published = [
            json!({"topic": "github.events", "partition": 0, "offset": 0, "uid": "u1", "duplicate": false}),
            json!({"topic": "github.events", "partition": 0, "offset": 1, "uid": "u2", "duplicate": false}),
            json!({"topic": "github.events", "partition": 0, "offset": 0, "uid": "u1", "duplicate": true}),
            json!({"line": 4, "error": {"kind": "rejected", "permanent": true, "uncertain": false, "message": "too large"}}),
        ];
        let published: Vec<_> = published.iter().map(|line| Publication::parse(line).unwrap()).collect();
        let results = [json!({"partition": 0, "offset": 0, "key": "acme/shop", "value": {"class": "bug"}})];
        let letter = json!({"place": "d/0/3", "topic": "d", "partition": 0, "offset": 3, "reason": "rejected", "trigger": "t"});
        let dead_letters = vec![DeadLetter::parse(&letter).unwrap()];
        Summary::of(Findings { published: &published, counters, results: &results, dead_letters }).unwrap()
    }

    #[test]
    fn the_document_for_machines_has_exactly_its_fields() {
        let expected = json!({
            "events_in": 2,
            "activations": {"success": 1, "rejected": 1, "failed": 0},
            "events_out": 1,
            "duplicates_suppressed": 2,
            "dead_letters": [{"topic": "d", "partition": 0, "offset": 3, "reason": "rejected"}],
            "append_to_settled_ms": {"p50": 1.25, "p99": 9.5},
        });
        assert_eq!(sample(&counters()).json(), expected);
        assert!(!sample(&counters()).json().to_string().contains('\n'), "it is one line");
    }

    #[test]
    fn the_page_for_people_says_the_same_and_where_to_look_next() {
        let page = sample(&counters()).readable(&["look here".to_owned()]);
        for line in ["events in 2", "refused lines 1 (rejected)", "bug 1", "acme/shop 1", "dead letters 1", "rejected 1", "look here"] {
            let words = |found: &str| found.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(page.lines().any(|found| words(found) == line), "{line:?} is not in\n{page}");
        }
    }

    #[test]
    fn a_sentence_explains_the_numbers_only_where_they_add_up() {
        let sentence = "2 events: 1 handled, 1 rejected; 2 publications: 1 new, 1 already there";
        let page = sample(&counters()).readable(&[]);
        assert_eq!(page.lines().next(), Some(sentence), "{page}");
        for (pointer, other) in [
            ("/activations/success", 2),
            ("/activations/rejected", 0),
            ("/activations/failed", 1),
            ("/publications/receipts", 3),
            ("/publications/duplicates", 0),
        ] {
            let mut counters = counters();
            *counters.pointer_mut(pointer).unwrap() = json!(other);
            let page = sample(&counters).readable(&[]);
            assert!(!page.contains("already there") && page.starts_with("events in"), "{pointer}: {page}");
        }
    }

    #[test]
    fn a_long_table_shows_its_largest_rows_and_how_many_it_leaves_out() {
        let table: BTreeMap<String, u64> = (1..=10).map(|count| (format!("r{count:02}"), count)).collect();
        let names: Vec<_> = largest(&table).map(|(name, _)| name).collect();
        assert_eq!(names, ["r10", "r09", "r08", "r07", "r06", "r05", "r04", "r03", "and 2 more"]);
    }

    #[test]
    fn only_when_nothing_is_pending_in_flight_or_delayed_is_everything_settled() {
        let status = |pending: u64, unacknowledged: u64, delayed: u64| json!({"pending": pending, "unacknowledged": unacknowledged, "delayed": delayed});
        assert_eq!(unsettled(&[status(0, 0, 0), status(0, 0, 0)]).unwrap(), 0);
        for left in [status(1, 0, 0), status(0, 1, 0), status(0, 0, 1)] {
            assert_eq!(unsettled(&[status(0, 0, 0), left]).unwrap(), 1);
        }
        assert!(unsettled(&[json!({"pending": 0})]).is_err(), "an unknown form must not look like the end");
    }

    #[test]
    fn a_document_of_another_form_is_named() {
        assert!(Publication::parse(&json!({"ok": true})).is_err());
        assert!(Summary::of(Findings { published: &[], counters: &json!({}), results: &[], dead_letters: Vec::new() }).is_err());
        assert!(DeadLetter::parse(&json!({"topic": "d", "partition": 0, "offset": 3})).is_err());
        assert!(settled(&json!({})).is_err());
        assert!(partitions(&[json!({"topic": "a", "partitions": 3})], "b").is_err());
        assert_eq!(partitions(&[json!({"topic": "a", "partitions": 3})], "a").unwrap(), 3);
    }
}
