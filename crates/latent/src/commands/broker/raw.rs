//! Streams of raw subjects: what `[[provider]]` mappings expect of them, against what is there. They are the operator's own: what they keep
//! and for how long no configuration of a node says, so they are compared and never made. No I/O.

use std::time::Duration;

use latent_bridge::nats_bus::covers;
use serde::Serialize;
use serde_json::{Map, Value};

use super::users::Site;
use crate::config::settings::ProviderConfig;

/// What is expected of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Expected {
    pub(super) stream: String,
    provider: String,
    subjects: Vec<String>,
    duplicate_window_millis: u64,
    payload_ceiling_bytes: u64,
}

/// One stream, compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Compared {
    #[serde(flatten)]
    expected: Expected,
    /// Each keeps publications from being what the configuration says.
    pub(super) problems: Vec<String>,
    /// Worth knowing.
    pub(super) notes: Vec<String>,
}

/// Bytes that a publication may have beside its payload.
const HEADER_BYTES_MAX: u64 = 9_216;

/// The streams that providers at `site` expect, and the providers elsewhere.
pub(super) fn expected(providers: &[ProviderConfig], site: &Site) -> (Vec<Expected>, Vec<String>) {
    let (mut all, mut elsewhere) = (Vec::<Expected>::new(), Vec::new());
    for provider in providers {
        let (id, nats) = (provider.id.as_str(), &provider.nats);
        if nats.address() != site.address {
            elsewhere.push(format!("provider {id} is on another broker, {}: not looked at", nats.address()));
            continue;
        }
        for mapped in nats.mapped() {
            let subject = mapped.subject.as_str().to_owned();
            let known = all.iter_mut().find(|expected| expected.stream == mapped.stream.as_str() && expected.provider == id);
            match known {
                Some(known) => known.subjects.push(subject),
                None => all.push(Expected {
                    stream: mapped.stream.as_str().to_owned(),
                    provider: id.to_owned(),
                    subjects: vec![subject],
                    duplicate_window_millis: nats.duplicate_window_millis(),
                    payload_ceiling_bytes: nats.payload_ceiling_bytes(),
                }),
            }
        }
    }
    (all, elsewhere)
}

/// Compares one stream with its settings; `None`: it is not there.
pub(super) fn compare(expected: Expected, found: Option<&Map<String, Value>>) -> Compared {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    match found {
        None => {
            let subjects = expected.subjects.join(", ");
            problems.push(format!("it is not there; make it with the subjects {subjects} and a duplicate window of {}", window(&expected)));
        }
        Some(found) => {
            subjects(&expected, found, &mut problems);
            duplicate_window(&expected, found, &mut problems, &mut notes);
            others(&expected, found, &mut problems, &mut notes);
        }
    }
    Compared { expected, problems, notes }
}

fn subjects(expected: &Expected, found: &Map<String, Value>, problems: &mut Vec<String>) {
    let kept: Vec<_> = found.get("subjects").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for subject in &expected.subjects {
        if !kept.iter().any(|pattern| covers(pattern, subject)) {
            problems.push(format!("it keeps [{}] and not {subject}, which the configuration publishes to; add it", kept.join(", ")));
        }
    }
}

fn window(expected: &Expected) -> String {
    shown(expected.duplicate_window_millis)
}

fn shown(millis: u64) -> String {
    format!("{:?}", Duration::from_millis(millis))
}

fn duplicate_window(expected: &Expected, found: &Map<String, Value>, problems: &mut Vec<String>, notes: &mut Vec<String>) {
    let millis = found.get("duplicate_window").and_then(Value::as_u64).unwrap_or_default() / 1_000_000;
    let told = format!("its duplicate window is {} and the configuration says {}", shown(millis), window(expected));
    match millis.cmp(&expected.duplicate_window_millis) {
        std::cmp::Ordering::Less => problems.push(format!("{told}: a repeated key is stored again in between; make it longer")),
        std::cmp::Ordering::Greater => notes.push(told),
        std::cmp::Ordering::Equal => {}
    }
}

fn others(expected: &Expected, found: &Map<String, Value>, problems: &mut Vec<String>, notes: &mut Vec<String>) {
    let flag = |field: &str| found.get(field).and_then(Value::as_bool).unwrap_or_default();
    for (field, why) in [("no_ack", "no publication is ever known to be stored"), ("sealed", "it takes nothing")] {
        if flag(field) {
            problems.push(format!("{field} is set: {why}"));
        }
    }
    let largest = found.get("max_msg_size").and_then(Value::as_i64).and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
    let wanted = expected.payload_ceiling_bytes + HEADER_BYTES_MAX;
    if let Some(bytes) = largest.filter(|bytes| *bytes < wanted) {
        notes.push(format!(
            "max_msg_size is {bytes}: publications near payload_ceiling_bytes ({}) are refused",
            expected.payload_ceiling_bytes
        ));
    }
    if found.get("storage").and_then(Value::as_str) == Some("memory") {
        notes.push("it is kept in memory: a restart of the broker loses it".to_owned());
    }
}

impl Compared {
    /// Lines for people.
    pub(super) fn text(&self) -> String {
        let Expected { stream, provider, subjects, .. } = &self.expected;
        let fits = if self.problems.is_empty() { "fits" } else { "does not fit" };
        let mut lines = vec![format!("{fits}: stream {stream} of provider {provider} (subjects {})", subjects.join(", "))];
        lines.extend(self.problems.iter().map(|problem| format!("  {problem}")));
        lines.extend(self.notes.iter().map(|note| format!("  note: {note}")));
        lines.join("\n")
    }

    pub(super) fn name(&self) -> &str {
        &self.expected.stream
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn orders() -> Expected {
        Expected {
            stream: "ORDERS".to_owned(),
            provider: "shop".to_owned(),
            subjects: vec!["orders.new".to_owned(), "orders.old".to_owned()],
            duplicate_window_millis: 120_000,
            payload_ceiling_bytes: 65_536,
        }
    }

    fn compared(found: &Value) -> (Vec<String>, Vec<String>) {
        let compared = compare(orders(), found.as_object());
        (compared.problems, compared.notes)
    }

    #[test]
    fn a_stream_that_is_as_expected_has_no_problem() {
        let found = json!({ "subjects": ["orders.*"], "duplicate_window": 120_000_000_000_u64, "max_msg_size": -1, "storage": "file" });
        assert_eq!(compared(&found), (Vec::new(), Vec::new()));
    }

    #[test]
    fn each_difference_is_told_with_both_sides() {
        let (missing, _) = compared(&Value::Null);
        assert!(
            missing[0].contains("not there") && missing[0].contains("orders.new, orders.old") && missing[0].contains("120s"),
            "{missing:?}"
        );
        let found = json!({
            "subjects": ["orders.new", "x"], "duplicate_window": 60_000_000_000_u64, "no_ack": true, "max_msg_size": 66_000, "storage": "memory",
        });
        let (problems, notes) = compared(&found);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].contains("[orders.new, x] and not orders.old"), "{problems:?}");
        assert!(problems[1].contains("60s") && problems[1].contains("120s"), "{problems:?}");
        assert!(problems[2].contains("no_ack") && notes.len() == 2, "{problems:?} {notes:?}");
        let longer = json!({ "subjects": [">"], "duplicate_window": 121_000_000_000_u64 });
        let (problems, notes) = compared(&longer);
        assert!(problems.is_empty() && notes.len() == 1, "{problems:?} {notes:?}");
    }
}
