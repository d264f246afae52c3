//! Every kind of mistake gives an error that says where, what and what would be right.

use latent_bridge::{BridgeManifest, ManifestError};

const HEAD: &str = "manifest_version: 1\nname: e\n";
const TOPIC: &str = "topics:\n  - name: a\n    partitions: 1\n";

/// Text below the head, or below head and topic, or on its own.
fn mistakes() -> Vec<(String, (u64, u64), &'static [&'static str])> {
    let on_its_own = |text: &str| text.to_owned();
    let below_head = |text: &str| format!("{HEAD}{text}");
    let in_topic = |text: &str| format!("{HEAD}{TOPIC}    {text}\n");
    vec![
        (on_its_own(""), (1, 1), &["manifest_version: 1"]),
        (on_its_own("[]"), (1, 1), &["fields are expected"]),
        (on_its_own("17"), (1, 1), &["fields are expected"]),
        (format!("name: e\n{TOPIC}"), (2, 1), &["missing field `manifest_version`"]),
        (format!("manifest_version: 1\n{TOPIC}"), (2, 1), &["missing field `name`"]),
        (below_head(""), (2, 1), &["missing field `topics`"]),
        (below_head("topics:\n  - partitions: 1\n"), (4, 5), &["missing field `name`"]),
        (below_head("topics:\n  - name: a\n"), (4, 5), &["missing field `partitions`"]),
        (below_head("topocs: 1\n"), (3, 1), &["`topocs`", "manifest_version, name, replication_factor, topics"]),
        (in_topic("partitons: 1"), (6, 5), &["`partitons`", "name, partitions, retention, schema_ref"]),
        (in_topic("retention: {hot_horus: 1}"), (6, 17), &["`hot_horus`", "hot_hours, dedup_hours, cold_uri, cold_format"]),
        (in_topic("name: b"), (6, 5), &["`name` is given twice"]),
        (format!("manifest_version: one\nname: e\n{TOPIC}"), (1, 19), &["\"one\"", "the number 1"]),
        (format!("manifest_version: -1\nname: e\n{TOPIC}"), (1, 19), &["-1", "the number 1"]),
        (format!("manifest_version: 1\nname: ''\n{TOPIC}"), (2, 7), &["name: it is empty"]),
        (format!("manifest_version: 1\nname:\n{TOPIC}"), (2, 5), &["text is needed"]),
        (format!("manifest_version: 1\nname: 5\n{TOPIC}"), (2, 7), &["in quotes: \"5\""]),
        (format!("manifest_version: 1\nname: true\n{TOPIC}"), (2, 7), &["in quotes: \"true\""]),
        (format!("manifest_version: 1\nname: [a]\n{TOPIC}"), (2, 7), &["text is expected"]),
        (format!("manifest_version: 1\nname: R&D& x\n{TOPIC}"), (2, 8), &["anchors and aliases"]),
        (format!("manifest_version: 1\nname: R & D\n{TOPIC}"), (2, 7), &["\"R & D\" contains `&`"]),
        (below_head("replication_factor: 6\ntopics: []\n"), (3, 21), &["replication_factor: 6 is outside 1 to 5"]),
        (below_head("replication_factor: many\ntopics: []\n"), (3, 21), &["\"many\"", "a whole number from 1 to 5"]),
        (below_head("replication_factor:\ntopics: []\n"), (3, 19), &["a whole number from 1 to 5"]),
        (below_head("topics: 1\n"), (3, 9), &["a list is expected"]),
        (below_head("topics: {a: 1}\n"), (3, 9), &["a list is expected"]),
        (below_head("topics: [a]\n"), (3, 10), &["fields are expected"]),
        (below_head("topics:\n  - name: a..b\n    partitions: 1\n"), (4, 11), &["topic 1: name", "\"a..b\"", "single dots"]),
        (below_head("topics:\n  - name: a\n    partitions: 0\n"), (5, 17), &["topic \"a\": partitions: 0 is outside 1 to 1024"]),
        (below_head("topics:\n  - name: a\n    partitions: 1025\n"), (5, 17), &["1025 is outside 1 to 1024"]),
        (below_head("topics:\n  - name: a\n    partitions: -1\n"), (5, 17), &["-1", "a whole number from 1 to 1024"]),
        (below_head("topics:\n  - name: a\n    partitions: 4294967296\n"), (5, 17), &["4294967296", "from 1 to 1024"]),
        (below_head("topics:\n  - name: a\n    partitions: 1.5\n"), (5, 17), &["1.5", "from 1 to 1024"]),
        (below_head("topics:\n  - name: a\n    partitions: '1'\n"), (5, 17), &["\"1\"", "from 1 to 1024"]),
        (in_topic("schema_ref: ../a.json"), (6, 17), &["topic \"a\": schema_ref: \"../a.json\" must be a relative path"]),
        (in_topic("schema_ref: ''"), (6, 17), &["\"\" must be a relative path"]),
        (in_topic("schema_ref: 5"), (6, 17), &["in quotes: \"5\""]),
        (in_topic("retention: 5"), (6, 16), &["fields are expected"]),
        (in_topic("retention: {hot_hours: 87601}"), (6, 28), &["retention.hot_hours: 87601 is outside 1 to 87600"]),
        (in_topic("retention: {hot_hours: 2 h}"), (6, 28), &["\"2 h\"", "a whole number from 1 to 87600"]),
        (in_topic("retention: {hot_hours: 1, dedup_hours: 2}"), (6, 44), &["retention.dedup_hours: 2 is outside 1 to hot_hours (1)"]),
        (in_topic("retention: {dedup_hours: 721}"), (6, 30), &["721 is outside 1 to hot_hours (720)"]),
        (in_topic("retention: {cold_uri: a/../b}"), (6, 27), &["retention.cold_uri: \"a/../b\" must not contain `..`"]),
        (in_topic("retention: {cold_uri: ''}"), (6, 27), &["it is empty"]),
        (in_topic("retention: {cold_format: zip}"), (6, 30), &["`zip`", "objects, segments"]),
        (format!("{HEAD}{TOPIC}  - name: a\n    partitions: 1\n"), (6, 11), &["\"a\" is declared twice"]),
        (format!("{HEAD}{TOPIC}  - name: a.p7\n    partitions: 1\n"), (6, 11), &["\"a.p7\"", "\"a\""]),
        (format!("{HEAD}{TOPIC}  - name: b.c\n    partitions: 1\n  - name: b_c\n    partitions: 1\n"), (8, 11), &["\"b.c\" and \"b_c\""]),
        (format!("{HEAD}{TOPIC}# see &a\n"), (6, 7), &["anchors and aliases"]),
        (format!("{HEAD}{TOPIC}---\na: 1\n"), (6, 1), &["one document"]),
        (below_head("topics: []\n"), (0, 0), &["topics: there is none"]),
    ]
}

#[test]
fn a_manifest_with_any_kind_of_mistake_is_refused_with_place_value_and_what_would_be_right() {
    let mut wrong = Vec::new();
    for (text, place, expected) in mistakes() {
        let error = BridgeManifest::from_yaml(&text).unwrap_err();
        let told = error.to_string();
        let (ManifestError::Parse { line, column, .. } | ManifestError::Invalid { line, column, .. }) = error else { panic!("{told}") };
        let is_placed = (line.unwrap_or(0), column.unwrap_or(0)) == place && told.matches("line ").count() == usize::from(line.is_some());
        if !is_placed || !expected.iter().all(|part| told.contains(part)) {
            wrong.push(format!("{text}=> {told}, not {place:?} {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_rule_broken_by_a_value_that_is_not_written_stands_where_its_topic_does() {
    let manifest = BridgeManifest::from_yaml(&format!("{HEAD}{TOPIC}")).unwrap();
    let mut broken = manifest.clone();
    broken.topics[0].partitions = 0;
    let error = broken.validate().unwrap_err();
    assert!(matches!(error, ManifestError::Invalid { line: None, column: None, .. }), "a value without text has no place: {error}");
}
