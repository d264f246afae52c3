//! Each limit at its edge, in both directions.

use super::types::{TEXT, U8, list, option, record, signature};
use super::{Signature, ValuesLimits, ValuesProblem, Wit, both_ways};
use crate::limits;

/// Over this limit, of which `max` is in force; or not.
type Refused = Option<(&'static str, u64)>;

fn over(problem: Option<ValuesProblem>) -> Refused {
    problem.map(|problem| match problem {
        ValuesProblem::OverLimit { limit, max, .. } => (limit, max),
        other => panic!("{other:?}"),
    })
}

/// `json` needs exactly `needs` of what `set` sets: it passes at that and above and is refused below, in both directions.
fn check(signature: &Signature, json: &str, limit: &'static str, needs: u64, set: fn(&mut ValuesLimits, u64)) {
    for (max, expected) in [(needs - 1, Some((limit, needs - 1))), (needs, None), (needs + 1, None)] {
        let mut limits = ValuesLimits::default();
        set(&mut limits, max);
        let (read, written) = both_ways(signature, json, &limits);
        assert_eq!((over(read), over(written)), (expected, expected), "{limit} of {max} on {json}");
    }
}

#[test]
fn document_bytes_count_the_text() {
    let set: fn(&mut ValuesLimits, u64) = |limits, max| limits.document_bytes = max;
    for json in [r#"["abc"]"#, r#"["a\nb"]"#, r#"["é"]"#, r#"["\u0001"]"#] {
        check(&signature(&[TEXT]), json, "values_document_bytes", json.len() as u64, set);
    }
    let json = "[[1,2,33]]";
    check(&signature(&[list(U8)]), json, "values_document_bytes", json.len() as u64, set);
}

#[test]
fn a_document_of_exactly_the_default_is_read_and_one_byte_more_is_not() {
    let signature = signature(&[]);
    let padded = |bytes: usize| signature.decode(&[b"[]", &*vec![b' '; bytes - 2]].concat(), &ValuesLimits::default()).err();
    for bytes in [1_048_575, 1_048_576] {
        assert_eq!(padded(bytes), None, "{bytes}");
    }
    for bytes in [1_048_577, 8_000_000] {
        assert_eq!(over(padded(bytes).map(|error| error.problem)), Some(("values_document_bytes", 1_048_576)), "{bytes}");
    }
}

#[test]
fn depth_counts_arrays_and_objects_from_the_outer_array_on() {
    let set: fn(&mut ValuesLimits, u64) = |limits, max| limits.depth = max;
    check(&signature(&[list(U8)]), "[[1]]", "values_depth", 2, set);
    check(&signature(&[option(list(record([("a", TEXT)])))]), r#"[{"some":[{"a":"x"}]}]"#, "values_depth", 4, set);
}

#[test]
fn a_document_may_be_as_deep_as_the_default_and_no_deeper() {
    let nested = |levels: usize| (0..levels).fold(U8, |of, _| list(of));
    for (levels, expected) in [(30, None), (31, None), (32, Some(("values_depth", 32)))] {
        let json = format!("{}1{}", "[".repeat(levels + 1), "]".repeat(levels + 1));
        let read = signature(&[nested(levels)]).decode(json.as_bytes(), &ValuesLimits::default()).err();
        assert_eq!(over(read.map(|error| error.problem)), expected, "{levels}");
    }
    // However deep the text is and whatever the type says: the parser does not go there.
    let absurd = "[".repeat(1_000_000);
    let read = signature(&[U8]).decode(absurd.as_bytes(), &ValuesLimits::default()).unwrap_err();
    assert_eq!(over(Some(read.problem)), Some(("values_depth", 32)));
}

#[test]
fn nodes_count_every_value_and_no_key() {
    let set: fn(&mut ValuesLimits, u64) = |limits, max| limits.nodes = max;
    check(&signature(&[list(U8)]), "[[1,2,3]]", "values_nodes", 5, set);
    check(&signature(&[record([("a", TEXT), ("b", option(U8))])]), r#"[{"a":"x","b":{"none":null}}]"#, "values_nodes", 5, set);
    check(&signature(&[Wit::Plain("u64")]), r#"["1"]"#, "values_nodes", 2, set);
}

#[test]
fn a_document_may_have_as_many_nodes_as_the_default_and_not_one_more() {
    // The outer array, five lists, and the rest elements.
    let lists = |elements: usize| {
        let list = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        let mut left = elements;
        let lists = (0..5).map(|_| {
            let count = left.min(4_000);
            left -= count;
            list(count)
        });
        format!("[[{}]]", lists.collect::<Vec<_>>().join(","))
    };
    let signature = signature(&[list(list(U8))]);
    for (elements, expected) in [(16_376, None), (16_377, None), (16_378, Some(("values_nodes", 16_384)))] {
        let read = signature.decode(lists(elements).as_bytes(), &ValuesLimits::default()).err();
        assert_eq!(over(read.map(|error| error.problem)), expected, "{elements}");
    }
}

#[test]
fn elements_count_those_of_each_array_and_the_members_of_each_object() {
    let set: fn(&mut ValuesLimits, u64) = |limits, max| limits.elements = max;
    check(&signature(&[list(U8)]), "[[1,2,3]]", "values_elements", 3, set);
    check(&signature(&[record([("a", U8), ("b", U8), ("c", U8)])]), r#"[{"a":1,"b":2,"c":3}]"#, "values_elements", 3, set);
    check(&signature(&[U8, U8, U8]), "[1,2,3]", "values_elements", 3, set);
    for (count, expected) in [(4_095, None), (4_096, None), (4_097, Some(("values_elements", 4_096)))] {
        let json = format!("[[{}]]", vec!["0"; count].join(","));
        let read = signature(&[list(U8)]).decode(json.as_bytes(), &ValuesLimits::default()).err();
        assert_eq!(over(read.map(|error| error.problem)), expected, "{count}");
    }
}

#[test]
fn string_bytes_are_those_of_the_decoded_text_and_keys_are_strings() {
    let set: fn(&mut ValuesLimits, u64) = |limits, max| limits.string_bytes = max;
    for json in [r#"["abcd"]"#, r#"["éé"]"#, "[\"\u{1f600}\"]", r#"["\n\n\n\n"]"#] {
        check(&signature(&[TEXT]), json, "values_string_bytes", 4, set);
    }
    check(&signature(&[record([("abcd", U8)])]), r#"[{"abcd":1}]"#, "values_string_bytes", 4, set);
    for (bytes, expected) in [(262_143, None), (262_144, None), (262_145, Some(("values_string_bytes", 262_144)))] {
        let json = format!("[\"{}\"]", "x".repeat(bytes));
        let read = signature(&[TEXT]).decode(json.as_bytes(), &ValuesLimits::default()).err();
        assert_eq!(over(read.map(|error| error.problem)), expected, "{bytes}");
    }
}

#[test]
fn a_refusal_by_a_limit_says_where_and_what_limit() {
    let limits = ValuesLimits { elements: 2, ..ValuesLimits::default() };
    let refusal = signature(&[option(list(U8))]).decode(br#"[{"some":[1,2,3]}]"#, &limits).unwrap_err();
    let expected = "more than 2, the limit `values_elements`; send less";
    assert_eq!(refusal.to_string(), format!("$[0].some[2] (parameter `p0`): {expected}"));
}

#[test]
fn limits_are_checked_at_their_edges() {
    type Set = fn(&mut ValuesLimits, u64);
    let fields: [(Set, latent_core::Limit); 5] = [
        (|l, v| l.document_bytes = v, limits::VALUES_DOCUMENT_BYTES),
        (|l, v| l.depth = v, limits::VALUES_DEPTH),
        (|l, v| l.nodes = v, limits::VALUES_NODES),
        (|l, v| l.string_bytes = v, limits::VALUES_STRING_BYTES),
        (|l, v| l.elements = v, limits::VALUES_ELEMENTS),
    ];
    assert_eq!(ValuesLimits::default().checked(), Ok(ValuesLimits::default()));
    for (set, limit) in fields {
        let with = |value| {
            let mut limits = ValuesLimits::default();
            set(&mut limits, value);
            limits.checked().err().map(|refused| refused.name)
        };
        assert_eq!((with(limit.min), with(limit.max)), (None, None));
        for bad in [limit.min - 1, limit.max + 1, u64::MAX] {
            assert_eq!(with(bad), Some(limit.name), "{bad}");
        }
    }
}

#[test]
fn a_text_over_its_limit_is_not_even_parsed() {
    let limits = ValuesLimits { document_bytes: 3, ..ValuesLimits::default() };
    let refusal = signature(&[]).decode(b"no json at all", &limits).unwrap_err();
    assert_eq!(over(Some(refusal.problem)), Some(("values_document_bytes", 3)));
}

/// The engine charges the lifting of a result: `size_of::<Val>()` for each value, and its texts and names. What may be written must fit, or
/// a sound result would end in a trap instead.
#[test]
fn what_may_be_written_can_be_lifted() {
    let values = limits::VALUES_NODES.max * size_of::<wasmtime::component::Val>() as u64;
    let needs = values + limits::VALUES_DOCUMENT_BYTES.max;
    assert!(needs <= limits::RESULT_LIFT_BYTES.min, "{values} bytes for values, {needs} in all");
}
