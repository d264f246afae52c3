//! Which types a function may have.

use super::Wit;
use super::types::{TEXT, U8, checked, checked_in, list, option, record, result, variant};
use crate::values::{Place, TypeProblem, TypeRoom};
use Wit::Plain;

fn refusal(wits: &[Wit]) -> (String, TypeProblem) {
    let refusal = checked(wits).unwrap_err();
    assert!(refusal.to_string().len() < 1_000);
    (refusal.path.to_string(), refusal.problem)
}

#[test]
fn types_without_a_json_form_are_refused_with_their_place() {
    let own = || Plain("(own $r)");
    let table = [
        (own(), "$", TypeProblem::Resource),
        (list(own()), "$[]", TypeProblem::Resource),
        (Wit::Tuple(vec![U8, own()]), "$[1]", TypeProblem::Resource),
        (record([("a", U8), ("b", option(own()))]), "$.b.some", TypeProblem::Resource),
        (variant([("a", None), ("b", Some(list(own())))]), "$.b[]", TypeProblem::Resource),
        (result(Some(own()), None), "$.ok", TypeProblem::Resource),
        (result(None, Some(list(own()))), "$.err[]", TypeProblem::Resource),
        (Wit::Map(Box::new(U8)), "$", TypeProblem::Map),
        (list(Wit::FixedLengthList(Box::new(U8))), "$[]", TypeProblem::FixedLengthList),
    ];
    for (wit, path, problem) in table {
        assert_eq!(refusal(std::slice::from_ref(&wit)), (path.to_owned(), problem), "{wit:?}");
    }
}

#[test]
fn a_refusal_names_function_parameter_and_place() {
    let refusal = checked(&[U8, list(Plain("(own $r)"))]).unwrap_err();
    assert_eq!(refusal.place, Place::Parameter("p1".into()));
    let expected = "function `f`, parameter `p1`, at $[]: a resource has no JSON form; pass data instead of a handle";
    assert_eq!(refusal.to_string(), expected);
}

#[test]
fn types_are_bounded_in_depth_at_their_edge() {
    let nested = |levels: usize| (0..levels).fold(U8, |of, _| option(of));
    for levels in [62, 63] {
        assert!(checked(&[nested(levels)]).is_ok(), "{levels}");
    }
    for levels in [64, 65, 90] {
        let (_, problem) = refusal(&[nested(levels)]);
        assert!(matches!(problem, TypeProblem::OverLimit { limit: "values_type_depth", max: 64, .. }), "{levels}: {problem:?}");
    }
}

#[test]
fn types_are_bounded_in_what_they_are_written_out_at_their_edge() {
    // As parameter and as result: one name, and twice a tuple and its parts.
    let parts = |count: usize| [Wit::Tuple(vec![U8; count])];
    for count in [8_189, 8_190] {
        assert!(checked(&parts(count)).is_ok(), "{count}");
    }
    let (_, problem) = refusal(&parts(8_191));
    assert!(matches!(problem, TypeProblem::OverLimit { limit: "values_type_nodes", max: 16_384, .. }), "{problem:?}");
}

#[test]
fn a_small_component_with_a_huge_type_is_refused_after_bounded_work() {
    // Written out, a tuple of two, eighteen levels deep, has half a million parts.
    let (_, problem) = refusal(&[Wit::Doubled(Box::new(TEXT), 18)]);
    assert!(matches!(problem, TypeProblem::OverLimit { limit: "values_type_nodes", .. }), "{problem:?}");
}

#[test]
fn the_functions_of_a_component_are_bounded_together_at_their_edge() {
    // A function of such a tuple, in and out, has 16,383 nodes: after four of them there is room for four nodes. One of a number has
    // three.
    let parts = |count: usize| [Wit::Tuple(vec![U8; count])];
    let mut room = TypeRoom::default();
    (0..4).for_each(|_| drop(checked_in(&parts(8_190), &mut room).unwrap()));
    assert!(checked_in(&[U8], &mut room).is_ok());
    assert_eq!(limit(&checked_in(&[U8], &mut room).unwrap_err().problem), "values_component_nodes");
}

fn limit(problem: &TypeProblem) -> &'static str {
    match problem {
        TypeProblem::OverLimit { limit, .. } => limit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_bounded_at_their_edge() {
    let named = |bytes: usize| checked(&[record([(&*"n".repeat(bytes), U8)])]);
    assert!(named(255).is_ok() && named(256).is_ok());
    for bytes in [257, 10_000] {
        let refusal = named(bytes).unwrap_err();
        assert!(matches!(refusal.problem, TypeProblem::OverLimit { limit: "values_name_bytes", .. }), "{bytes}");
        assert!(refusal.to_string().len() < 400, "{refusal}");
    }
}
