//! What is a schema, what it lets through, and that neither a hostile schema nor a hostile payload costs more than is allowed.

use serde_json::json;

use super::*;

fn compile(schema: &Value) -> Result<TopicSchema, String> {
    compile_text(schema.to_string().as_bytes())
}

fn compile_text(text: &[u8]) -> Result<TopicSchema, String> {
    TopicSchema::compile("orders", "schemas/order.json", text).map_err(|error| match error {
        BusError::Config { problem } => problem,
        other => panic!("{other:?}"),
    })
}

fn check(schema: &TopicSchema, payload: &Value) -> Result<(), String> {
    check_bytes(schema, "application/json", payload.to_string().as_bytes())
}

fn check_bytes(schema: &TopicSchema, media_type: &str, payload: &[u8]) -> Result<(), String> {
    schema.check(&MediaType::parse(media_type).unwrap(), payload).map_err(|error| match error {
        BusError::Rejected { rule, permanent: true } => rule,
        other => panic!("{other:?}"),
    })
}

fn nested(levels: usize, leaf: Value) -> Value {
    (0..levels).fold(leaf, |inner, _| json!({ "a": inner }))
}

/// Runs on a stack much smaller than any thread of ours has.
fn on_a_small_stack(task: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(512 * 1024).spawn(task).unwrap().join().unwrap();
}

#[test]
fn what_is_no_usable_schema_is_refused_with_topic_name_place_and_reason() {
    let deep = format!("{}1{}", "[".repeat(64), "]".repeat(64));
    let cases: [(&str, &[&str]); 21] = [
        ("", &["not JSON", "EOF"]),
        ("{\"type\":\n \"string\"", &["not JSON", "line 2"]),
        ("{\"type\": 1, \"type\": 2}", &["stands twice: \"type\""]),
        ("[]", &["[] is not of types"]),
        ("17", &["17 is not of types"]),
        (r#"{"type": "strin"}"#, &["/type: ", "strin"]),
        (r#"{"properties": {"a": {"minLength": -1}}}"#, &["/properties/a/minLength: ", "-1"]),
        (r#"{"required": "a"}"#, &["/required: ", "array"]),
        (r#"{"pattern": "("}"#, &["/pattern: ", "\"(\"", "regular expression"]),
        (r#"{"pattern": "a(?=b)"}"#, &["/pattern: ", "looks around"]),
        (r#"{"pattern": "(a)\\1"}"#, &["/pattern: ", "or back"]),
        (r#"{"pattern": "(a{1000}){1000}"}"#, &["/pattern: ", "1048576 bytes"]),
        (r#"{"$schema": "http://example.com/x"}"#, &["Unknown meta-schema", "http://example.com/x"]),
        (r#"{"$ref": "http://127.0.0.1:1/x.json"}"#, &["/$ref: ", "leaves the document", "#/$defs"]),
        (r#"{"$defs": {"unused": {"$ref": "http://127.0.0.1:1/x.json"}}}"#, &["http://127.0.0.1:1/x.json"]),
        (r#"{"items": {"$ref": "other.json"}}"#, &["/items/$ref: ", "leaves the document"]),
        (r#"{"items": {"$ref": "file:///etc/hostname"}}"#, &["/items/$ref: ", "leaves the document"]),
        (r##"{"items": {"$dynamicRef": "x#n"}}"##, &["/items/$dynamicRef: ", "leaves the document"]),
        (r##"{"items": {"$ref": "#/$defs/none"}}"##, &["/items/$ref: ", "names nothing"]),
        (r##"{"allOf": [{"$ref": "#"}]}"##, &["without end"]),
        (&deep, &["schema_depth is 65"]),
    ];
    for (text, expected) in cases {
        let problem = compile_text(text.as_bytes()).unwrap_err();
        assert!(problem.starts_with("topic \"orders\": schema \"schemas/order.json\" cannot be used: "), "{problem}");
        assert!(expected.iter().all(|part| problem.contains(part)), "{text}: {problem}");
    }
}

#[test]
fn a_schema_of_exactly_the_limits_is_taken() {
    let levels = |levels: usize| format!("{}{{}}{}", "{\"not\":".repeat(levels - 1), "}".repeat(levels - 1));
    assert!(compile_text(levels(63).as_bytes()).is_ok() && compile_text(levels(64).as_bytes()).is_ok());
    assert!(compile_text(levels(65).as_bytes()).unwrap_err().contains("schema_depth is 65 count, outside 1 to 64"));
    let max = limits::CONTROL_FILE_BYTES.max_usize();
    let padded = |bytes: usize| format!("{{}}{}", " ".repeat(bytes - 2)).into_bytes();
    assert!(compile_text(&padded(max - 1)).is_ok() && compile_text(&padded(max)).is_ok());
    assert!(compile_text(&padded(max + 1)).unwrap_err().contains("1048577 bytes"));
}

#[test]
fn each_known_draft_is_honoured_and_the_latest_is_the_default() {
    // `items` as a list means positions before 2020-12 and is no schema in it; `$ref` hides its siblings before 2019-09.
    let positions = |draft: &str| compile(&json!({ "$schema": draft, "items": [{ "type": "string" }] }));
    for draft in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
    ] {
        let schema = positions(draft).unwrap();
        assert!(check(&schema, &json!(["a", 1])).is_ok() && check(&schema, &json!([1])).is_err(), "{draft}");
    }
    assert!(positions("https://json-schema.org/draft/2020-12/schema").is_err());
    assert!(compile(&json!({ "items": [{}] })).is_err());
}

#[test]
fn an_event_passes_when_it_is_json_and_fits() {
    let schema = compile(&json!({ "type": "object", "required": ["id"], "properties": { "id": { "type": "integer" } } })).unwrap();
    for media_type in ["application/json", "application/json;charset=utf-8", "application/cloudevents+json"] {
        assert_eq!(check_bytes(&schema, media_type, b" {\"id\": 1, \"x\": null} "), Ok(()));
    }
    let cases: [(&str, &[u8], &str); 8] = [
        ("application/octet-stream", b"{\"id\": 1}", "media type \"application/octet-stream\" is not JSON"),
        ("text/plain", b"{\"id\": 1}", "not JSON"),
        ("application/json", b"", "cannot be read as JSON: EOF"),
        ("application/json", b"{\"id\": 1", "cannot be read as JSON: EOF"),
        ("application/json", b"\xff", "cannot be read as JSON"),
        ("application/json", b"{\"id\": 1, \"id\": 2}", "stands twice: \"id\""),
        ("application/json", b"{}", "the payload: \"id\" is a required property"),
        ("application/json", b"{\"id\": \"x\"}", "/id: \"x\" is not of type \"integer\""),
    ];
    for (media_type, payload, problem) in cases {
        let rule = check_bytes(&schema, media_type, payload).unwrap_err();
        assert!(rule.starts_with("event rejected by schema schemas/order.json: ") && rule.contains(problem), "{rule}");
    }
}

#[test]
fn the_first_three_violations_are_told_and_the_others_counted() {
    let schema = compile(&json!({ "items": { "type": "string" } })).unwrap();
    for (violations, more) in [(1, None), (2, None), (3, None), (4, Some("; and 1 more")), (1_000, Some("; and 997 more"))] {
        let rule = check(&schema, &Value::from(vec![1; violations])).unwrap_err();
        assert_eq!(rule.matches("is not of type").count(), violations.min(3), "{rule}");
        assert_eq!(rule.split_once("; and ").map(|(_, rest)| format!("; and {rest}")).as_deref(), more, "{rule}");
        assert!((0..violations.min(3)).all(|at| rule.contains(&format!("/{at}: 1 is not"))), "{rule}");
    }
}

#[test]
fn a_refusal_is_short_and_on_one_line_whatever_the_payload_holds() {
    let schema = compile(&json!({
        "type": "integer", "enum": [1], "const": 1, "additionalProperties": false, "propertyNames": { "maxLength": 3 },
        "not": { "type": "object" }
    }));
    let (schema, long) = (schema.unwrap(), "x\n\u{1b}[31m".repeat(20_000));
    let names: serde_json::Map<_, _> = (0..3).map(|n| (format!("{n}{long}"), Value::from(long.clone()))).collect();
    for payload in [Value::Object(names), Value::from(long.clone()), json!([[[long]]])] {
        let rule = check(&schema, &payload).unwrap_err();
        assert!(rule.len() < 1_200 && !rule.contains(char::is_control), "{} bytes: {rule}", rule.len());
        assert!(rule.matches("x\\n").count() < 40, "{rule}");
    }
    let doubled = format!("{{\"{0}\": 1, \"{0}\": 2}}", "k".repeat(100_000));
    assert!(check_bytes(&schema, "application/json", doubled.as_bytes()).unwrap_err().len() < 400);
    let keyed = compile(&json!({ "additionalProperties": { "type": "null" } })).unwrap();
    let rule = check(&keyed, &json!({ "k".repeat(100_000): 1 })).unwrap_err();
    assert!(rule.len() < 400 && rule.contains("1 is not of type \"null\""), "{rule}");
    let many = Value::from(vec![0; 200_000]);
    let rule = check(&compile(&json!({ "items": { "type": "string" } })).unwrap(), &many).unwrap_err();
    assert!(rule.contains("/0: 0 is not of type") && rule.ends_with("too large to look for more"), "{rule}");
}

#[test]
fn the_deepest_chain_and_the_deepest_payload_fit_a_small_stack() {
    on_a_small_stack(|| {
        let hops = limits::SCHEMA_RECURSION.max_usize() / 2 - 1;
        let definition = |at: usize| {
            let next = if at + 1 < hops { json!({ "$ref": format!("#/$defs/{}", at + 1) }) } else { json!({ "type": "string" }) };
            (at.to_string(), json!({ "anyOf": [next] }))
        };
        let definitions: serde_json::Map<_, _> = (0..hops).map(definition).collect();
        let chain = compile(&json!({ "$defs": definitions, "$ref": "#/$defs/0" })).unwrap();
        assert!(check(&chain, &json!("x")).is_ok() && check(&chain, &json!(1)).is_err());
        let tree = compile(&json!({ "properties": { "a": { "$ref": "#" } }, "required": ["b"], "unevaluatedProperties": false }));
        assert!(check(&tree.unwrap(), &nested(126, json!({}))).unwrap_err().contains("required"));
        let deep = check_bytes(&chain, "application/json", "[".repeat(100_000).as_bytes());
        assert!(deep.unwrap_err().contains("recursion limit"));
    });
}

#[test]
fn a_payload_nested_beyond_what_its_schema_can_recurse_is_refused() {
    let hop = (0..30).fold(json!({ "$ref": "#" }), |inner, _| json!({ "allOf": [inner] }));
    let schema = compile(&json!({ "properties": { "a": hop } })).unwrap();
    assert!(check(&schema, &nested(20, json!(1))).is_ok());
    let rule = check(&schema, &nested(100, json!(1))).unwrap_err();
    assert!(rule.contains("101 levels") && rule.contains("1024 (schema_recursion)"), "{rule}");
}

#[test]
fn alternatives_that_lead_back_to_themselves_cannot_be_made_to_run_for_long() {
    let branch = |name: &str| json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/n" } }, "required": [name] });
    let schema =
        compile(&json!({ "$defs": { "n": { "anyOf": [branch("a"), branch("a"), { "type": "null" }] } }, "$ref": "#/$defs/n" })).unwrap();
    assert!(check(&schema, &nested(12, json!(null))).is_ok());
    assert!(check(&schema, &nested(12, json!(1))).is_err());
    for levels in [30, 60, 120] {
        let rule = check(&schema, &nested(levels, json!(1))).unwrap_err();
        assert!(rule.contains("schema_steps") && rule.contains("fewer alternatives"), "{rule}");
    }
}

#[test]
fn a_payload_that_is_costly_to_explain_is_still_refused_with_a_reason() {
    let item = json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] });
    let schema = compile(&json!({ "items": item })).unwrap();
    let rule = check(&schema, &Value::from(vec![0; 100_000])).unwrap_err();
    assert!(rule.ends_with("it does not fit; the payload is too large to look for more"), "{rule}");
    assert!(check(&schema, &Value::from(vec!["x"; 100_000])).is_ok());
}

#[test]
fn a_pattern_cannot_be_made_to_backtrack() {
    let schema = compile(&json!({ "pattern": "^(a*)*b$" })).unwrap();
    assert!(check(&schema, &json!("a".repeat(500_000))).is_err());
    assert!(check(&schema, &json!(format!("{}b", "a".repeat(500_000)))).is_ok());
    let nested = format!("{}a{}", "(".repeat(200_000), ")".repeat(200_000));
    on_a_small_stack(move || assert!(compile(&json!({ "pattern": nested })).unwrap_err().len() < 700));
}

#[test]
fn a_format_is_asserted_where_its_draft_asserts_it() {
    let with = |draft: &str| compile(&json!({ "$schema": draft, "format": "date-time" })).unwrap();
    assert!(check(&with("http://json-schema.org/draft-07/schema#"), &json!("x")).is_err());
    assert!(check(&with("https://json-schema.org/draft/2020-12/schema"), &json!("x")).is_ok());
}

#[test]
fn true_lets_all_json_through_and_false_none() {
    assert!(check(&compile(&json!(true)).unwrap(), &json!([1])).is_ok());
    assert!(check(&compile(&json!(false)).unwrap(), &json!([1])).is_err());
}

#[test]
fn the_work_of_a_check_is_bounded_at_the_edge() {
    // 2^25 - 1 = 601 * 55,831: each of so many items costs an `enum` of 600 values, and the root adds one step.
    assert_eq!(limits::SCHEMA_STEPS.max, 1 + 601 * 55_831);
    let values: Vec<u32> = (0..600).collect();
    let items = Value::from(vec![0; 55_831]);
    let exact = json!({ "items": { "enum": values } });
    let mut above = exact.clone();
    above["title"] = json!("one keyword more");
    let below = Value::from(vec![0; 55_830]);
    assert_eq!(check(&compile(&exact).unwrap(), &below), Ok(()));
    assert_eq!(check(&compile(&exact).unwrap(), &items), Ok(()));
    let rule = check(&compile(&above).unwrap(), &items).unwrap_err();
    assert!(rule.contains("33554433 steps") && rule.contains("33554432 (schema_steps)"), "{rule}");
}

#[test]
fn every_violation_is_looked_for_up_to_the_edge() {
    let schema = compile(&json!({ "items": { "type": "string" } })).unwrap();
    let max = limits::SCHEMA_REPORT_STEPS.max_usize();
    // The array itself is one step.
    for (items, tells_all) in [(max - 2, true), (max - 1, true), (max, false)] {
        let rule = check(&schema, &Value::from(vec![0; items])).unwrap_err();
        assert_eq!(rule.ends_with(&format!("; and {} more", items - 3)), tells_all, "{rule}");
        assert_eq!(rule.ends_with("too large to look for more"), !tells_all, "{rule}");
    }
}
