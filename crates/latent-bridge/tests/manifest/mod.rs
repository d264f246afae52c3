//! Rules of the manifest.

mod mistakes;
mod schema;

use latent_bridge::manifest::ColdFormat;
use latent_bridge::{BridgeManifest, BusError, MANIFEST_VERSION, ManifestError, RetentionSpec, TopicSpec};
use proptest::prelude::*;

use crate::support::fixtures::manifest;

const MINIMAL: &str = "manifest_version: 1\nname: edge\ntopics:\n  - name: a\n    partitions: 2\n";

fn with_topic(fields: &str) -> Result<BridgeManifest, ManifestError> {
    BridgeManifest::from_yaml(&format!("manifest_version: 1\nname: edge\ntopics:\n  - name: a\n    partitions: 1\n{fields}"))
}

fn with_names(names: &[&str]) -> Result<(), ManifestError> {
    manifest(&names.iter().map(|name| (*name, 2)).collect::<Vec<_>>()).validate()
}

fn is_invalid(result: Result<BridgeManifest, ManifestError>) -> bool {
    matches!(result, Err(ManifestError::Invalid { .. }))
}

#[test]
fn a_minimal_manifest_has_its_defaults() {
    let read = BridgeManifest::from_yaml(MINIMAL).unwrap();
    assert_eq!((read.manifest_version, read.replication_factor), (MANIFEST_VERSION, 1));
    assert_eq!(read.topics[0].retention, RetentionSpec { hot_hours: 720, dedup_hours: None, cold_uri: None, cold_format: None });
}

#[test]
fn every_field_is_read() {
    let text = "manifest_version: 1\nname: e\nreplication_factor: 3\ntopics:\n- name: a.b\n  partitions: 8\n  schema_ref: schemas/a.json\n  retention: {hot_hours: 24, dedup_hours: 2, cold_uri: /mnt/cold, cold_format: segments}\n";
    let topic = TopicSpec {
        name: "a.b".to_owned(),
        partitions: 8,
        retention: RetentionSpec {
            hot_hours: 24,
            dedup_hours: Some(2),
            cold_uri: Some("/mnt/cold".to_owned()),
            cold_format: Some(ColdFormat::Segments),
        },
        schema_ref: Some("schemas/a.json".to_owned()),
    };
    let expected = BridgeManifest { manifest_version: 1, name: "e".to_owned(), replication_factor: 3, topics: vec![topic] };
    assert_eq!(BridgeManifest::from_yaml(text), Ok(expected));
}

#[test]
fn another_version_is_told_apart_from_a_mistake() {
    let text = MINIMAL.replace("manifest_version: 1", "manifest_version: 2");
    assert_eq!(BridgeManifest::from_yaml(&text), Err(ManifestError::Version(2)));
    assert_eq!(BridgeManifest::from_yaml(&format!("{text}new_field: 1\n")), Err(ManifestError::Version(2)));
    assert!(matches!(BridgeManifest::from_yaml(&MINIMAL.replace("manifest_version: 1\n", "")), Err(ManifestError::Parse { .. })));
}

#[test]
fn unknown_and_doubled_fields_are_refused_at_every_level_with_their_line() {
    let cases = [
        (format!("{MINIMAL}topocs: []\n"), 6),
        (format!("{MINIMAL}    schema_reff: x\n"), 6),
        (format!("{MINIMAL}    retention: {{hot_horus: 1}}\n"), 6),
        (format!("{MINIMAL}name: again\n"), 6),
        (format!("{MINIMAL}    partitions: 3\n"), 6),
    ];
    for (text, expected) in cases {
        match BridgeManifest::from_yaml(&text) {
            Err(ManifestError::Parse { line: Some(line), .. }) => assert_eq!(line, expected, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn text_that_is_no_manifest_is_refused() {
    for text in
        ["", "[]", "a: b: c", "{{{", "manifest_version: 1", "\0", "--- 1\n--- 2\n", &format!("{MINIMAL}---\n{MINIMAL}"), &"[".repeat(5_000)]
    {
        assert!(matches!(BridgeManifest::from_yaml(text), Err(ManifestError::Parse { .. })), "{text:.60?}");
    }
}

#[test]
fn the_size_cap_is_exact() {
    let padded = |bytes: usize| format!("{MINIMAL}#{}", "x".repeat(bytes - MINIMAL.len() - 1));
    assert!(BridgeManifest::from_yaml(&padded(262_144)).is_ok());
    let refused = BridgeManifest::from_yaml(&padded(262_145)).unwrap_err();
    assert!(matches!(refused, ManifestError::Parse { .. }) && refused.to_string().contains("exceeds cap"), "{refused}");
}

#[test]
fn anchors_and_aliases_are_refused_anywhere_before_the_parser_runs() {
    for mark in ["&a", "*a", "&0", "*_", "&-", "# see *note", "'a &b'"] {
        let refused = BridgeManifest::from_yaml(&format!("{MINIMAL}# {mark}\n"));
        assert!(matches!(refused, Err(ManifestError::Parse { line: Some(6), .. })), "{mark}: {refused:?}");
    }
    assert!(BridgeManifest::from_yaml(&format!("{MINIMAL}# a & b * c *\n")).is_ok());
}

#[test]
fn names_and_paths_hold_no_marks() {
    for name in ["", "R&D-east", "region*star", "a&"] {
        let broken = BridgeManifest { name: name.to_owned(), ..manifest(&[("a", 1)]) };
        assert!(matches!(broken.validate(), Err(ManifestError::Invalid { .. })), "{name:?}");
    }
    for field in ["schema_ref: 'a& b'", "retention: {cold_uri: 'a* b'}"] {
        assert!(is_invalid(with_topic(&format!("    {field}\n"))), "{field}");
    }
}

#[test]
fn numbers_are_checked_at_their_edges() {
    let topic = |field: &str, value: u64| {
        BridgeManifest::from_yaml(&match field {
            "partitions" => MINIMAL.replace("partitions: 2", &format!("partitions: {value}")),
            "replication_factor" => format!("{MINIMAL}replication_factor: {value}\n"),
            field => {
                format!("{MINIMAL}    retention: {{hot_hours: 24, {field}: {value}}}\n").replace("hot_hours: 24, hot_hours", "hot_hours")
            }
        })
    };
    for (field, min, max) in [("partitions", 1, 1_024), ("replication_factor", 1, 5), ("hot_hours", 1, 87_600), ("dedup_hours", 1, 24)] {
        assert!(topic(field, min).is_ok() && topic(field, max).is_ok(), "{field}");
        assert!(is_invalid(topic(field, min - 1)) && is_invalid(topic(field, max + 1)), "{field}");
        assert!(topic(field, u64::MAX).is_err(), "{field}");
    }
}

#[test]
fn topic_names_are_dotted_tokens_and_there_is_at_least_one() {
    assert!(with_names(&[]).is_err());
    assert!(with_names(&[&"x".repeat(120)]).is_ok());
    for name in
        ["", ".", "..", "a..b", ".a", "a.", "a b", "a/b", "a\n", "$JS.x", "_INBOX.x", ">", "a.*", "é", &"x".repeat(121), &"x".repeat(255)]
    {
        assert!(matches!(with_names(&[name]), Err(ManifestError::Invalid { .. })), "{name:?}");
    }
}

#[test]
fn names_that_collide_are_refused_with_both() {
    for (a, b) in [("a", "a"), ("a.b", "a_b"), ("a", "a.p0"), ("a.p1", "a"), ("x.y", "x.y.p1023"), ("a.b.c", "a_b.c")] {
        let text = with_names(&["other", a, b]).unwrap_err().to_string();
        assert!(text.contains(&format!("{a:?}")) && text.contains(&format!("{b:?}")), "{text}");
    }
    assert!(with_names(&["a", "a-b", "a.b", "a.p", "a.pq", "a.p1x", "b.p0"]).is_ok());
}

#[test]
fn a_schema_is_a_relative_path_and_a_local_archive_does_not_climb() {
    for bad in ["/abs.json", "../a.json", "a/../b.json", "./a.json", "a/./b.json", ".", "''"] {
        assert!(is_invalid(with_topic(&format!("    schema_ref: {bad}\n"))), "{bad}");
    }
    assert!(with_topic("    schema_ref: schemas/a.json\n").is_ok());
    for (uri, fits) in
        [("data/../../etc", false), ("..", false), ("''", false), ("/mnt/cold", true), ("s3://bucket/../x", true), ("cold", true)]
    {
        assert_eq!(with_topic(&format!("    retention: {{cold_uri: {uri}}}\n")).is_ok(), fits, "{uri}");
    }
}

#[test]
fn what_could_not_be_read_again_is_not_valid() {
    let names: Vec<_> = (0..5_000).map(|n| format!("topic-{n:05}-{}", "x".repeat(60))).collect();
    let many = manifest(&names.iter().map(|name| (name.as_str(), 1)).collect::<Vec<_>>());
    assert!(matches!(many.validate(), Err(ManifestError::Invalid { .. })) && many.to_yaml().is_err());
}

#[test]
fn on_a_bus_it_is_a_configuration_error() {
    let error = BusError::from(BridgeManifest::from_yaml("topocs: 1").unwrap_err());
    assert!(matches!(&error, BusError::Config { problem } if problem.contains("line 1")), "{error}");
}

fn any_text() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "null", "true", "1", "0x1f", "1e3", "- a", "a: b", "#x", " x ", "'", "\"", "\\", "|", "~", "é", "\u{feff}", "\u{85}", "\t", "\n",
        "!t", "%", "@", "{", "& ", "*",
    ]);
    prop_oneof![any::<String>(), prop::collection::vec(odd, 1..4).prop_map(|parts| parts.concat()),]
}

fn any_manifest() -> impl Strategy<Value = BridgeManifest> {
    let retention = (1_u32..=87_600, prop::option::of(1_u32..100), prop::option::of(any_text()), prop::option::of(any::<bool>())).prop_map(
        |(hot_hours, dedup_hours, cold_uri, segments)| RetentionSpec {
            hot_hours,
            dedup_hours,
            cold_uri,
            cold_format: segments.map(|segments| if segments { ColdFormat::Segments } else { ColdFormat::Objects }),
        },
    );
    let name = prop_oneof![
        "[a-c0-9]{1,3}(\\.[a-z0-9_-]{1,3}){0,2}",
        prop::sample::select(vec!["1", "true", "null", "1e3", "no", "-", "0x1"]).prop_map(str::to_owned)
    ];
    let topic = (name, 1_u32..=1_024, retention, prop::option::of(any_text()))
        .prop_map(|(name, partitions, retention, schema_ref)| TopicSpec { name, partitions, retention, schema_ref });
    (any_text(), 1_u32..=5, prop::collection::vec(topic, 1..4)).prop_map(|(name, replication_factor, topics)| BridgeManifest {
        manifest_version: 1,
        name,
        replication_factor,
        topics,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn every_valid_manifest_reads_back_as_itself(manifest in any_manifest()) {
        prop_assume!(manifest.validate().is_ok());
        let text = manifest.to_yaml().unwrap();
        prop_assert_eq!(BridgeManifest::from_yaml(&text), Ok(manifest), "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z:\\-{}\\[\\]&*#|>'\"!\n ]{0,200}") {
        let _ = BridgeManifest::from_yaml(&text);
    }
}
