//! The manifest's JSON Schema says what the validator says.

use std::collections::BTreeSet;

use jsonschema::Validator;
use latent_bridge::manifest::MANIFEST_SCHEMA;
use latent_bridge::{BridgeManifest, limits};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

fn schema() -> Value {
    serde_json::from_str(MANIFEST_SCHEMA).unwrap()
}

fn validator() -> Validator {
    jsonschema::draft7::options().offline().build(&schema()).unwrap()
}

/// The rules that the schema's `$comment` says no schema can express, judged on a value that the schema accepts.
fn breaks_a_rule_beyond_schemas(manifest: &Value) -> bool {
    let topics = manifest["topics"].as_array().unwrap();
    let names: Vec<&str> = topics.iter().map(|topic| topic["name"].as_str().unwrap()).collect();
    let streams: BTreeSet<_> = names.iter().map(|name| name.replace('.', "_")).collect();
    let is_partition_of = |name: &str, other: &str| {
        let number = name.strip_prefix(other).and_then(|rest| rest.strip_prefix(".p"));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let hours = |topic: &Value, field: &str| topic["retention"][field].as_f64();
    let forgets_late = |topic: &Value| hours(topic, "dedup_hours") > Some(hours(topic, "hot_hours").unwrap_or(720.0));
    streams.len() < names.len()
        || names.iter().any(|name| names.iter().any(|other| is_partition_of(name, other)))
        || topics.iter().any(forgets_late)
}

/// What agrees or not, judged by both: the error text when they differ.
fn judge(validator: &Validator, manifest: &Value) -> Result<(), String> {
    let by_schema = validator.is_valid(manifest);
    // JSON is YAML, so this is what an operator's file says.
    let by_program = BridgeManifest::from_yaml(&manifest.to_string());
    let expected = by_schema && !breaks_a_rule_beyond_schemas(manifest);
    if expected == by_program.is_ok() { Ok(()) } else { Err(format!("schema: {by_schema}, program: {by_program:?}, {manifest}")) }
}

fn number() -> impl Strategy<Value = Value> {
    let edges: Vec<Value> =
        vec![json!(0), json!(1), json!(2), json!(5), json!(6), json!(720), json!(1_024), json!(1_025), json!(87_600), json!(87_601)];
    let odd = vec![
        json!(-1),
        json!(1.0),
        json!(2.5),
        json!(-0.0),
        json!(4_294_967_297_u64),
        json!(u64::MAX),
        json!(1e30),
        json!("1"),
        json!(true),
        json!(null),
        json!([]),
    ];
    prop_oneof![40 => (1_u32..=5).prop_map(Value::from), 3 => select(edges), 2 => select(odd)]
}

fn text(pieces: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let odd = vec![json!(1), json!(null), json!(false), json!([]), json!({})];
    prop_oneof![6 => Just(json!("a")), 12 => prop::collection::vec(select(pieces), 1..5).prop_map(|parts| parts.concat().into()), 1 => select(odd)]
}

/// An object of some of these fields, sometimes with one that nobody knows.
fn object(fields: Vec<(&'static str, BoxedStrategy<Value>, f64)>) -> BoxedStrategy<Value> {
    let field = |(name, value, present): (&'static str, BoxedStrategy<Value>, f64)| {
        prop::option::weighted(present, value).prop_map(move |value| value.map(|value| (name.to_owned(), value)))
    };
    let unknown = prop::option::weighted(0.01, Just(("unknown".to_owned(), json!(1))));
    let members = fields.into_iter().map(field).map(Strategy::boxed).chain([unknown.boxed()]).collect::<Vec<_>>();
    let odd = select(vec![json!(null), json!(7), json!([]), json!("x")]);
    prop_oneof![60 => members.prop_map(|members| Value::Object(members.into_iter().flatten().collect::<Map<_, _>>())), 1 => odd].boxed()
}

fn any_manifest() -> BoxedStrategy<Value> {
    let path = text(&["a", "a", "a", "b", "b/", "/c", "/", ".", "..", "&", "* ", "://", "é", " ", "\n", "-", "~", "\\", "\"", "#", ":"]);
    let retention = object(vec![
        ("hot_hours", number().boxed(), 0.7),
        ("dedup_hours", number().boxed(), 0.4),
        ("cold_uri", text(&["a", "a", "/", ".", "..", "..", "&", "*", "://", "s3", " ", "\n"]).boxed(), 0.4),
        ("cold_format", prop_oneof![8 => Just(json!("objects")), 4 => Just(json!("segments")), 2 => Just(json!(null)), 1 => Just(json!("Objects")), 1 => Just(json!(1))].boxed(), 0.3),
    ]);
    let good = vec!["a", "b", "a.b", "a_b", "a.p0", "c-9", "x.y", "d", "e", "f", "g"];
    let names = vec!["a", "b", "a.b", "a_b", "a.p0", "a.p1x", "c-9", "x.y", "x.y.p1023", "_a", "a..b", ".a", "a.", "", "A", "7"];
    let long = prop_oneof![Just("x".repeat(120)), Just("x".repeat(121))].prop_map(Value::from);
    let name = prop_oneof![10 => select(good).prop_map(Value::from), 4 => select(names).prop_map(Value::from), 1 => text(&["a", "b", ".", "_", "-", "p", "0", " ", "é", "\n"]), 1 => long];
    let topic = object(vec![
        ("name", name.boxed(), 0.99),
        ("partitions", number().boxed(), 0.99),
        ("retention", retention, 0.5),
        ("schema_ref", path.boxed(), 0.3),
    ]);
    let topics = prop_oneof![20 => prop::collection::vec(topic, 1..4).prop_map(Value::from), 1 => Just(json!({})), 1 => Just(json!([]))];
    let version = prop_oneof![20 => Just(json!(1)), 1 => number()];
    object(vec![
        ("manifest_version", version.boxed(), 0.98),
        ("name", text(&["a", "edge", "b", "e", " ", "&", "* ", "é", "\n", "'", ":", "#"]).boxed(), 0.98),
        ("replication_factor", number().boxed(), 0.3),
        ("topics", topics.boxed(), 0.98),
    ])
}

#[test]
fn the_schema_is_a_schema_and_its_numbers_are_the_limits() {
    let schema = schema();
    assert!(jsonschema::meta::is_valid(&schema));
    let numbers = [
        ("/properties/replication_factor", limits::REPLICATION_FACTOR, true),
        ("/definitions/topic/properties/partitions", limits::PARTITIONS, false),
        ("/definitions/retention/properties/hot_hours", limits::HOT_HOURS, true),
        ("/definitions/retention/properties/dedup_hours", limits::HOT_HOURS, false),
    ];
    for (pointer, limit, has_default) in numbers {
        let field = schema.pointer(pointer).unwrap();
        assert_eq!((&field["minimum"], &field["maximum"]), (&json!(limit.min), &json!(limit.max)), "{pointer}");
        assert!(!has_default || field["default"] == json!(limit.default), "{pointer}");
    }
    let length = schema.pointer("/definitions/topic/properties/name/maxLength").unwrap();
    assert_eq!(length, &json!(latent_core::limits::TOPIC_NAME_BYTES.max));
    assert!(schema["$comment"].as_str().unwrap().contains("262,144") && limits::MANIFEST_BYTES.max == 262_144);
}

#[test]
fn every_field_is_described_for_editors() {
    let schema = schema();
    for pointer in ["/properties", "/definitions/topic/properties", "/definitions/retention/properties"] {
        for (name, field) in schema.pointer(pointer).unwrap().as_object().unwrap() {
            let described = field.get("$ref").and_then(Value::as_str).map_or(field, |to| schema.pointer(&to[1..]).unwrap());
            assert!(described["description"].as_str().is_some_and(|text| !text.is_empty()), "{pointer}/{name}");
        }
    }
}

#[test]
fn schema_and_validator_agree_where_the_property_might_not_look() {
    let topic = |fields: Value| {
        let mut topic = json!({ "name": "a", "partitions": 1 });
        topic.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "manifest_version": 1, "name": "e", "topics": [topic] })
    };
    let paths = [
        "a",
        "a/b",
        "a//b",
        "a/",
        "/a",
        "a/.",
        "a/./b",
        "./a",
        ".",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "...",
        ".a",
        "..a",
        ".a/..b/...",
        ". ",
        ".. ",
        "",
        "a\n",
        "&",
        "* ",
    ];
    let uris = ["a", "/a", "..", "a/..", "/..", "a/../b", "..a", "a..", ".../b", "s3://b/../x", "..://", "", ".", "a//..", " "];
    let cases = paths.map(|path| topic(json!({ "schema_ref": path }))).into_iter();
    let cases = cases.chain(uris.map(|uri| topic(json!({ "retention": { "cold_uri": uri } }))));
    let validator = validator();
    for manifest in cases {
        assert_eq!(judge(&validator, &manifest), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn schema_and_validator_accept_the_same_manifests_but_for_the_rules_no_schema_can_say(manifest in any_manifest()) {
        // Built once for each thread: it is the same for every case.
        thread_local!(static VALIDATOR: Validator = validator());
        prop_assert_eq!(VALIDATOR.with(|validator| judge(validator, &manifest)), Ok(()));
    }
}

#[test]
fn the_property_meets_accepted_refused_and_excepted_manifests() {
    let (mut runner, validator) = (proptest::test_runner::TestRunner::deterministic(), validator());
    let mut met = [0_u32; 3];
    for _ in 0..2_000 {
        let manifest = proptest::strategy::ValueTree::current(&any_manifest().new_tree(&mut runner).unwrap());
        let class = match validator.is_valid(&manifest) {
            false => 0,
            true if breaks_a_rule_beyond_schemas(&manifest) => 1,
            true => 2,
        };
        met[class] += 1;
    }
    assert!(met.iter().all(|count| *count > 20), "{met:?}");
}
