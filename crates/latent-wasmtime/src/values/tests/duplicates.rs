//! A key that is there twice is refused however it is spelled, wherever it stands.

use super::types::{U8, list, option, record, result, variant};
use super::{ValuesProblem, Wit, read};

/// Spellings of the same key.
fn spellings(key: &str) -> Vec<String> {
    let escaped = |f: fn(u16) -> String| key.encode_utf16().map(f).collect::<String>();
    let first_escaped = key.chars().next().map(|c| c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}")).collect::<String>());
    let rest: String = key.chars().skip(1).collect();
    vec![key.to_owned(), escaped(|unit| format!("\\u{unit:04x}")), escaped(|unit| format!("\\u{unit:04X}")), first_escaped.unwrap() + &rest]
}

fn assert_refused(wit: &Wit, json: &str, key: &str) {
    let refusal = read(wit, json).unwrap_err().problem;
    assert_eq!(refusal, ValuesProblem::DuplicateKey { key: key.to_owned() }, "{json}");
}

#[test]
fn in_every_kind_of_object_and_every_spelling() {
    let kinds = [
        (record([("o-key", U8)]), "o-key", "1"),
        (variant([("x", Some(U8))]), "case", "\"x\""),
        (variant([("x", Some(U8))]), "value", "1"),
        (option(U8), "none", "null"),
        (option(U8), "some", "1"),
        (result(Some(U8), None), "ok", "1"),
        (result(Some(U8), None), "err", "null"),
    ];
    for (wit, key, value) in &kinds {
        for first in spellings(key) {
            for second in spellings(key) {
                let json = format!(r#"{{"{first}":{value},"{second}":{value}}}"#);
                assert_refused(wit, &json, key);
                assert_refused(&list(option(wit.clone())), &format!(r#"[{{"none":null}},{{"some":{json}}}]"#), key);
            }
        }
    }
}

#[test]
fn also_of_keys_that_no_type_has_and_of_characters_beyond_16_bits() {
    for key in ["\u{1f600}", "é", "/"] {
        for first in spellings(key) {
            for second in spellings(key) {
                assert_refused(&record([("a", U8)]), &format!(r#"{{"{first}":1,"b":2,"{second}":3}}"#), key);
            }
        }
    }
    assert_refused(&record([("a", U8)]), r#"{"\/":1,"/":1}"#, "/");
    assert_refused(&record([("a", U8)]), r#"{"\n":1,"\u000a":1}"#, "\\n");
}

#[test]
fn the_place_is_the_object_with_the_key() {
    let refusal = read(&list(record([("a", U8)])), r#"[{"a":1},{"a":1,"\u0061":1}]"#).unwrap_err();
    assert!(refusal.to_string().starts_with("$[0][1] (parameter `p0`): the key `a` is there twice"), "{refusal}");
}

#[test]
fn keys_that_differ_are_no_duplicates() {
    let refusal = read(&record([("a", U8)]), r#"{"a":1,"A":1}"#).unwrap_err().problem;
    assert!(matches!(refusal, ValuesProblem::UnknownKey { .. }), "{refusal:?}");
    // The same letter composed and in two parts: other strings, other keys.
    let refusal = read(&record([("a", U8)]), "{\"é\":1,\"e\u{301}\":1}").unwrap_err().problem;
    assert!(matches!(refusal, ValuesProblem::UnknownKey { .. }), "{refusal:?}");
}
