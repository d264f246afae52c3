//! Whether two subjects could be the same one, and which of other streams' subjects stand in a topic's way (BUG-47). Pure.

use serde_json::json;

use super::desired::Desired;
use super::plan::Refusal;

/// What of another stream keeps the topic's stream from being made; `None` when nothing does.
pub(super) fn overlap(desired: &Desired, other: &str, subjects: &[&str]) -> Option<Refusal> {
    let wanted_by = |subject: &&&str| desired.subjects.iter().any(|own| collide(own, subject));
    let found: Vec<&str> = subjects.iter().filter(wanted_by).copied().collect();
    let wanted: Vec<&String> = desired.subjects.iter().filter(|own| found.iter().any(|subject| collide(own, subject))).collect();
    let advice = "no subject may be of two streams; take it out of the other stream, or give the topic another name".to_owned();
    let refusal =
        |found: Vec<&str>| Refusal { stream: other.to_owned(), field: "subjects", found: json!(found), wanted: json!(wanted), advice };
    (!found.is_empty()).then(|| refusal(found))
}

/// The one subject under which every partition of a topic is asked for.
pub(super) fn filter(topic: &str) -> String {
    format!("{topic}.*")
}

/// True when some subject fits both, as the broker compares them.
fn collide(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_collide_when_one_subject_fits_both() {
        let table = [
            ("a.p0", "a.p0", true),
            ("a.p0", "a.p1", false),
            ("a.p0", "a.*", true),
            ("a.p0", "*.p0", true),
            ("a.p0", "a.>", true),
            ("a.p0", ">", true),
            ("a.p0", "*", false),
            ("a.p0", "a", false),
            ("a.p0", "a.p0.>", false),
            ("a.b.p0", "a.*", false),
            ("a.b.p0", "a.*.p0", true),
            ("a.b.p0", "a.>", true),
            ("a.p0", "A.p0", false),
        ];
        for (one, other, expected) in table {
            assert_eq!((collide(one, other), collide(other, one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn a_refusal_names_the_subjects_of_both_sides_that_collide_and_no_others() {
        let desired = Desired::of_two_partitions("a");
        assert_eq!(overlap(&desired, "OTHER", &["b.>", "a", "a.q"]), None);
        let refusal = overlap(&desired, "OTHER", &["b.>", "a.p1"]).unwrap();
        assert_eq!((refusal.stream.as_str(), refusal.found, refusal.wanted), ("OTHER", json!(["a.p1"]), json!(["a.p1"])));
        let refusal = overlap(&desired, "OTHER", &["a.>"]).unwrap();
        assert_eq!((refusal.found, refusal.wanted), (json!(["a.>"]), json!(["a.p0", "a.p1"])));
    }
}
