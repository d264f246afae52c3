//! The table of the form, row by row, in both directions.

use super::types::{TEXT, U8, list, names, option, record, result, signature, variant};
use super::{Wit, read, written};
use crate::values::{ValuesLimits, is_declared_failure};
use Wit::Plain;
use wasmtime::component::Val;

fn boxed(value: Val) -> Option<Box<Val>> {
    Some(Box::new(value))
}

/// `json` is what is written for `value`, and reads back as it.
fn same(wit: &Wit, json: &str, value: &Val) {
    assert_eq!(written(wit, value), json, "{wit:?}");
    assert_eq!(&read(wit, json).unwrap(), value, "{wit:?}");
}

#[test]
fn scalars_have_their_forms() {
    let table = [
        ("bool", "true", Val::Bool(true)),
        ("bool", "false", Val::Bool(false)),
        ("u8", "255", Val::U8(u8::MAX)),
        ("u16", "65535", Val::U16(u16::MAX)),
        ("u32", "4294967295", Val::U32(u32::MAX)),
        ("s8", "-128", Val::S8(i8::MIN)),
        ("s16", "-32768", Val::S16(i16::MIN)),
        ("s32", "-2147483648", Val::S32(i32::MIN)),
        ("u64", "\"18446744073709551615\"", Val::U64(u64::MAX)),
        ("s64", "\"-9223372036854775808\"", Val::S64(i64::MIN)),
        ("f32", "\"0.1\"", Val::Float32(0.1)),
        ("f64", "\"-0\"", Val::Float64(-0.0)),
        ("f64", "\"1e300\"", Val::Float64(1e300)),
        ("f64", "\"nan\"", Val::Float64(f64::NAN)),
        ("f32", "\"-inf\"", Val::Float32(f32::NEG_INFINITY)),
        ("char", "\"é\"", Val::Char('é')),
        ("char", "\"\\u0000\"", Val::Char('\0')),
        ("char", "\"\u{10ffff}\"", Val::Char('\u{10ffff}')),
        ("string", "\"\"", Val::String(String::new())),
        ("string", "\"a\\\"b\\\\c\\n\\u0001é\u{1f600}/\"", Val::String("a\"b\\c\n\u{1}é\u{1f600}/".to_owned())),
    ];
    for (name, json, value) in table {
        same(&Plain(name), json, &value);
    }
}

#[test]
fn compounds_have_their_forms() {
    let u8s = |numbers: &[u8]| numbers.iter().copied().map(Val::U8).collect::<Vec<_>>();
    let text = |text: &str| text.to_owned();
    let ab = record([("b-first", U8), ("a", TEXT)]);
    let fields = vec![(text("b-first"), Val::U8(1)), (text("a"), Val::String(text("x")))];
    let cases = variant([("none", None), ("some-text", Some(TEXT))]);
    let four = names(["d", "c", "b", "a"]);
    let table = [
        (list(U8), "[]", Val::List(vec![])),
        (list(U8), "[1,2,255]", Val::List(u8s(&[1, 2, 255]))),
        (Wit::Tuple(vec![U8, TEXT]), "[1,\"x\"]", Val::Tuple(vec![Val::U8(1), Val::String(text("x"))])),
        (ab, r#"{"b-first":1,"a":"x"}"#, Val::Record(fields)),
        (cases.clone(), r#"{"case":"none"}"#, Val::Variant(text("none"), None)),
        (cases, r#"{"case":"some-text","value":"x"}"#, Val::Variant(text("some-text"), boxed(Val::String(text("x"))))),
        (Wit::Enum(four.clone()), "\"c\"", Val::Enum(text("c"))),
        (Wit::Flags(four.clone()), "[]", Val::Flags(vec![])),
        (Wit::Flags(four.clone()), r#"["d","b","a"]"#, Val::Flags(names(["d", "b", "a"]))),
        (option(U8), r#"{"none":null}"#, Val::Option(None)),
        (option(U8), r#"{"some":7}"#, Val::Option(boxed(Val::U8(7)))),
        (option(option(U8)), r#"{"some":{"none":null}}"#, Val::Option(boxed(Val::Option(None)))),
        (result(Some(U8), Some(TEXT)), r#"{"ok":7}"#, Val::Result(Ok(boxed(Val::U8(7))))),
        (result(Some(U8), Some(TEXT)), r#"{"err":"x"}"#, Val::Result(Err(boxed(Val::String(text("x")))))),
        (result(None, Some(TEXT)), r#"{"ok":null}"#, Val::Result(Ok(None))),
        (result(Some(U8), None), r#"{"err":null}"#, Val::Result(Err(None))),
        (result(None, None), r#"{"err":null}"#, Val::Result(Err(None))),
    ];
    for (wit, json, value) in table {
        same(&wit, json, &value);
    }
}

#[test]
fn what_may_stand_in_any_order_is_written_in_the_order_of_its_declaration() {
    let table = [
        (record([("b", U8), ("a", U8)]), r#" { "a" : 1 , "b" : 2 } "#, r#"{"b":2,"a":1}"#),
        (variant([("x", Some(U8))]), r#"{"value":1,"case":"x"}"#, r#"{"case":"x","value":1}"#),
        (Wit::Flags(names(["d", "c", "a"])), r#"["a","d"]"#, r#"["d","a"]"#),
        (record([("a-b", U8)]), r#"{"\u0061\u002Db":1}"#, r#"{"a-b":1}"#),
        (TEXT, r#""\u00e9\ud83d\ude00\/""#, "\"é\u{1f600}/\""),
        (Plain("f64"), "\"1E+2\"", "\"100\""),
    ];
    for (wit, json, expected) in table {
        assert_eq!(written(&wit, &read(&wit, json).unwrap()), expected, "{json}");
    }
    let unordered = Val::Flags(names(["a", "d"]));
    assert_eq!(written(&Wit::Flags(names(["d", "c", "a"])), &unordered), r#"["d","a"]"#);
}

#[test]
fn every_parameter_and_every_result_has_its_place() {
    let signature = signature(&[U8, TEXT]);
    let values = signature.decode(b" [ 1 , \"x\" ] \n", &ValuesLimits::default()).unwrap();
    assert_eq!(values, [Val::U8(1), Val::String("x".to_owned())]);
    assert_eq!(signature.encode(&values, &ValuesLimits::default()).unwrap(), "[1,\"x\"]");
    assert_eq!(signature.results(), 2);
}

#[test]
fn a_function_without_parameters_or_results_has_the_empty_array() {
    let signature = signature(&[]);
    assert_eq!(signature.decode(b"[]", &ValuesLimits::default()), Ok(vec![]));
    assert_eq!(signature.encode(&[], &ValuesLimits::default()).unwrap(), "[]");
}

#[test]
fn only_an_err_that_is_the_sole_result_is_a_declared_failure() {
    let (ok, err) = (|| Val::Result(Ok(None)), || Val::Result(Err(boxed(Val::U8(1)))));
    assert!(is_declared_failure(&[err()]));
    let others = [vec![], vec![ok()], vec![err(), err()], vec![Val::Option(boxed(err()))], vec![Val::Result(Ok(boxed(err())))]];
    assert!(others.iter().all(|results| !is_declared_failure(results)));
}
