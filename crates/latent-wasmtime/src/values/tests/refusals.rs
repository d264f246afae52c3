//! What is refused, and that the refusal says where, what and what instead.

use wasmtime::component::Val;

use super::types::{TEXT, U8, list, names, option, record, result, signature, variant};
use super::{Found, ValuesLimits, ValuesProblem, Wit, read};
use Wit::Plain;

fn found(wit: &Wit, json: &str) -> Found {
    match read(wit, json).map_err(|error| error.problem) {
        Err(ValuesProblem::Mismatch { found, .. }) => found,
        other => panic!("{json} for {wit:?}: {other:?}"),
    }
}

#[test]
fn small_integers_are_integer_tokens_in_range() {
    for (name, below, above) in [
        ("u8", "-1", "256"),
        ("u16", "-1", "65536"),
        ("u32", "-1", "4294967296"),
        ("s8", "-129", "128"),
        ("s16", "-32769", "32768"),
        ("s32", "-2147483649", "2147483648"),
    ] {
        for json in [below, above, "18446744073709551615", "-9223372036854775808"] {
            assert_eq!(found(&Plain(name), json), Found::IntegerOutOfRange, "{json} for {name}");
        }
        for json in ["1.0", "1e0", "1E2", "-0", "-0.0", "0.5", "18446744073709551616", "-9223372036854775809"] {
            assert_eq!(found(&Plain(name), json), Found::OtherNumber, "{json} for {name}");
        }
        assert_eq!(found(&Plain(name), "\"1\""), Found::Text);
    }
}

#[test]
fn a_number_beyond_every_float_is_no_json_to_the_parser_and_refused_too() {
    for json in ["1e999", "-1e999", "1e99999999999999999999"] {
        let refusal = read(&U8, json).unwrap_err().problem;
        assert!(matches!(refusal, ValuesProblem::NotJson { .. }), "{json}: {refusal:?}");
    }
}

#[test]
fn large_integers_and_floats_are_strings_only() {
    for name in ["u64", "s64", "f32", "f64"] {
        assert_eq!(found(&Plain(name), "1"), Found::Integer, "{name}");
        assert_eq!(found(&Plain(name), "1.5"), Found::OtherNumber, "{name}");
        assert_eq!(found(&Plain(name), "null"), Found::Null, "{name}");
        for json in ["\"\"", "\"+1\"", "\" 1\"", "\"0x1\"", "\"one\"", "\"1\\u0000\""] {
            assert_eq!(found(&Plain(name), json), Found::UnfitText, "{json} for {name}");
        }
    }
    for json in ["\"01\"", "\"1.0\"", "\"1e0\"", "\"-0\"", "\"nan\""] {
        assert_eq!(found(&Plain("s64"), json), Found::UnfitText, "{json}");
    }
}

#[test]
fn a_char_is_exactly_one_scalar() {
    for json in ["\"\"", "\"ab\"", "\"e\u{301}\""] {
        assert_eq!(found(&Plain("char"), json), Found::UnfitText, "{json}");
    }
}

#[test]
fn each_type_refuses_every_other_kind() {
    let kinds = [
        ("null", Found::Null),
        ("true", Found::Boolean),
        ("1", Found::Integer),
        ("1.5", Found::OtherNumber),
        ("\"x\"", Found::Text),
        ("[]", Found::Array),
        ("{}", Found::Object),
    ];
    let table = [
        (Plain("bool"), "true"),
        (U8, "1"),
        (Plain("s32"), "1"),
        (Plain("u64"), "\"x\""),
        (Plain("f64"), "\"x\""),
        (Plain("char"), "\"x\""),
        (TEXT, "\"x\""),
        (list(U8), "[]"),
        (Wit::Tuple(vec![U8]), "[]"),
        (record([("a", U8)]), "{}"),
        (variant([("a", None)]), "{}"),
        (Wit::Enum(names(["a"])), "\"x\""),
        (Wit::Flags(names(["a"])), "[]"),
        (option(U8), "{}"),
        (result(None, None), "{}"),
    ];
    for (wit, own) in &table {
        for (json, kind) in kinds.iter().filter(|(json, _)| json != own) {
            let number_for_integer = matches!(wit, Plain("u8" | "s32")) && *json == "1.5";
            assert_eq!(found(wit, json), if number_for_integer { Found::OtherNumber } else { *kind }, "{json} for {wit:?}");
        }
    }
}

#[test]
fn keys_and_names_that_a_type_does_not_have_are_refused() {
    let (ab, vs) = (record([("a", U8), ("b", U8)]), variant([("x", None), ("y", Some(U8))]));
    let (en, fl) = (Wit::Enum(names(["x"])), Wit::Flags(names(["x", "y"])));
    let (op, re) = (option(U8), result(None, Some(U8)));
    let table = [
        (&ab, r#"{"a":1}"#, "$[0] (parameter `p0`): the key `b` is missing in this record"),
        (&ab, r#"{"a":1,"b":2,"c":3}"#, "$[0] (parameter `p0`): unknown key `c` in this record"),
        (&ab, r#"{"a":1,"B":2}"#, "$[0] (parameter `p0`): unknown key `B` in this record"),
        (&vs, r#"{"value":1}"#, "$[0] (parameter `p0`): the key `case` is missing in a variant"),
        (&vs, r#"{"case":"z"}"#, "$[0].case (parameter `p0`): `z` is no name of this variant"),
        (&vs, r#"{"case":"x","value":null}"#, "$[0] (parameter `p0`): the case `x` has no payload; leave `value` out"),
        (&vs, r#"{"case":"y"}"#, "$[0] (parameter `p0`): the key `value` is missing in a variant whose case has a payload"),
        (&vs, r#"{"case":"y","value":1,"more":1}"#, "$[0] (parameter `p0`): unknown key `more` in a variant"),
        (&vs, r#"{"case":1}"#, "$[0].case (parameter `p0`): expected the name of a case (variant), found an integer"),
        (&en, r#""y""#, "$[0] (parameter `p0`): `y` is no name of this enum"),
        (&fl, r#"["x","z"]"#, "$[0][1] (parameter `p0`): `z` is no name of this flags"),
        (&fl, r#"["x","y","x"]"#, "$[0][2] (parameter `p0`): the flag `x` is named twice"),
        (&fl, r#"[1]"#, "$[0][0] (parameter `p0`): expected the name of a flag, found an integer"),
        (&op, r#"{"none":0}"#, "$[0].none (parameter `p0`): expected null, because there is no payload, found an integer"),
        (&re, r#"{"ok":{}}"#, "$[0].ok (parameter `p0`): expected null, because there is no payload, found an object"),
        (&re, r#"{"err":null}"#, "$[0].err (parameter `p0`): expected an integer from 0 to 255 (u8), found null"),
    ];
    for (wit, json, expected) in table {
        assert_eq!(read(wit, json).unwrap_err().to_string(), expected, "{json}");
    }
    for json in ["{}", r#"{"some":1,"none":null}"#, r#"{"ok":1}"#, r#"{"Some":1}"#, r#"{"":1}"#] {
        assert_eq!(found(&op, json), Found::UnfitObject, "{json}");
    }
    for json in ["{}", r#"{"ok":null,"err":1}"#, r#"{"some":1}"#] {
        assert_eq!(found(&re, json), Found::UnfitObject, "{json}");
    }
}

#[test]
fn an_array_of_fixed_length_has_exactly_that_length() {
    let refusal = |wits: &[Wit], json: &str| signature(wits).decode(json.as_bytes(), &ValuesLimits::default()).unwrap_err().to_string();
    let pair = [Wit::Tuple(vec![U8, U8])];
    assert_eq!(refusal(&pair, "[[1]]"), "$[0] (parameter `p0`): expected exactly 2 values (a tuple), found 1");
    assert_eq!(refusal(&pair, "[[1,2,3]]"), "$[0] (parameter `p0`): expected exactly 2 values (a tuple), found 3");
    assert_eq!(refusal(&[U8, U8], "[1]"), "$: expected exactly 2 values (one for each parameter), found 1");
    assert_eq!(refusal(&[], "[1]"), "$: expected exactly 0 values (one for each parameter), found 1");
    assert_eq!(refusal(&[], "{}"), "$: expected an array with one value for each parameter, found an object");
}

#[test]
fn a_refusal_says_where_it_is() {
    let wit = list(record([("payload", option(list(Plain("s8"))))]));
    let json = r#"[{"payload":{"none":null}},{"payload":{"some":[1,2,3,400]}}]"#;
    let refusal = read(&wit, json).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "$[0][1].payload.some[3] (parameter `p0`): expected an integer from -128 to 127 (s8), found an integer out of this range"
    );
}

#[test]
fn what_is_not_one_json_document_in_utf_8_is_refused() {
    let texts: [&[u8]; 22] = [
        b"",
        b" ",
        b"[1",
        b"[1]]",
        b"[1][1]",
        b"[1] x",
        b"[1,]",
        b"[,1]",
        b"[01]",
        b"[+1]",
        b"[.5]",
        b"[NaN]",
        b"['x']",
        b"[\"\x01\"]",
        b"[\"\\x\"]",
        b"[\"\\ud800\"]",
        b"[\"\\udc00\"]",
        b"[\"\\ud800\\u0041\"]",
        b"[\"\xff\"]",
        b"[\"\xed\xa0\x80\"]",
        b"\xef\xbb\xbf[1]",
        b"[1 // one\n]",
    ];
    for text in texts {
        let refusal = signature(&[TEXT]).decode(text, &ValuesLimits::default()).unwrap_err().problem;
        assert!(matches!(refusal, ValuesProblem::NotJson { .. }), "{:?}: {refusal:?}", String::from_utf8_lossy(text));
    }
}

#[test]
fn no_refusal_shows_more_of_a_document_than_one_bounded_harmless_name() {
    let long = "x\u{1b}[31m".repeat(10_000);
    let escaped = serde_json::to_string(&long).unwrap();
    let wits = [record([("a", U8)]), variant([("a", None)]), Wit::Enum(names(["a"])), Wit::Flags(names(["a"])), option(U8), U8];
    for wit in &wits {
        for json in [format!("{{{escaped}:1}}"), format!("{{\"case\":{escaped}}}"), format!("[{escaped}]"), escaped.clone()] {
            let refusal = read(wit, &json).unwrap_err().to_string();
            assert!(refusal.len() < 400 && !refusal.contains('\u{1b}'), "{} bytes", refusal.len());
        }
    }
}

#[test]
fn a_value_of_another_type_is_never_written() {
    let text = || "b".to_owned();
    let table = [
        (U8, Val::U16(1)),
        (list(U8), Val::Tuple(vec![])),
        (record([("a", U8), ("b", U8)]), Val::Record(vec![("b".into(), Val::U8(1)), ("a".into(), Val::U8(1))])),
        (record([("a", U8)]), Val::Record(vec![])),
        (variant([("a", None)]), Val::Variant(text(), None)),
        (variant([("b", Some(U8))]), Val::Variant(text(), None)),
        (variant([("b", None)]), Val::Variant(text(), Some(Box::new(Val::U8(1))))),
        (Wit::Enum(names(["a"])), Val::Enum(text())),
        (Wit::Flags(names(["a"])), Val::Flags(vec![text()])),
        (Wit::Flags(names(["b"])), Val::Flags(vec![text(), text()])),
        (result(None, None), Val::Result(Ok(Some(Box::new(Val::U8(1)))))),
        (result(Some(U8), None), Val::Result(Ok(None))),
    ];
    for (wit, value) in table {
        let refusal = signature(std::slice::from_ref(&wit)).encode(std::slice::from_ref(&value), &ValuesLimits::default()).unwrap_err();
        assert!(matches!(refusal.problem, ValuesProblem::ForeignValue { .. }), "{wit:?}: {refusal:?}");
    }
    let refusal = signature(&[Wit::Tuple(vec![U8, U8])]).encode(&[Val::Tuple(vec![])], &ValuesLimits::default()).unwrap_err();
    assert!(matches!(refusal.problem, ValuesProblem::Length { expected: 2, found: 0, .. }), "{refusal:?}");
}
