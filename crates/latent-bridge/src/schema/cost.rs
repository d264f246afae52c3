//! What checking can cost, known before anything is checked: the estimated work on one value at each depth of a payload, and how many
//! subschemas can be inside one another.
//!
//! A schema that tries several alternatives which all lead back to it doubles the work with each level of the payload, so that a small
//! payload could keep a processor busy for years. The estimate is the worst case over all payloads of that shape: of the members that a
//! schema names only one is any given member, everything else is added up.

use serde_json::Value;

use super::Flaw;
use super::graph::{Graph, Reach};
use crate::limits;

/// Levels below the root that the JSON parser lets through.
const DEPTH_MAX: usize = 128;

/// See the module. Entry `n` is for values `n` levels below the payload's root.
#[derive(Debug)]
pub(super) struct Cost {
    steps: Vec<u64>,
    recursion: Vec<u64>,
}

/// Estimate for all subschemas at one distance below the value they are applied to.
struct Level {
    steps: Vec<u64>,
    recursion: Vec<u64>,
}

impl Cost {
    pub(super) fn of(graph: &Graph<'_>) -> Result<Self, Flaw> {
        let order = innermost_first(graph)?;
        let count = graph.nodes.len();
        let mut cost = Self { steps: Vec::with_capacity(DEPTH_MAX + 1), recursion: Vec::with_capacity(DEPTH_MAX + 1) };
        let mut above: Option<Level> = None;
        for _ in 0..=DEPTH_MAX {
            let mut level = Level { steps: vec![0; count], recursion: vec![0; count] };
            for at in &order {
                level.estimate(graph, *at, above.as_ref());
            }
            cost.steps.push(level.steps.first().copied().unwrap_or(0));
            let recursion = level.recursion.first().copied().unwrap_or(0);
            if above.is_none() {
                // No payload at all could be checked.
                limits::SCHEMA_RECURSION.check(recursion).map_err(|error| Flaw::new("", error.to_string()))?;
            }
            cost.recursion.push(recursion);
            above = Some(level);
        }
        Ok(cost)
    }

    /// Estimated work on a payload with this many values at each depth.
    pub(super) fn steps(&self, values_at: &[u64]) -> u64 {
        values_at.iter().zip(&self.steps).fold(0, |sum, (count, steps)| sum.saturating_add(count.saturating_mul(*steps)))
    }

    /// Subschemas inside one another on a payload of this many levels.
    pub(super) fn recursion(&self, levels: usize) -> u64 {
        self.recursion.get(levels.saturating_sub(1)).copied().unwrap_or(u64::MAX)
    }
}

impl Level {
    /// Estimates one subschema; those it applies to the same value were estimated before.
    fn estimate(&mut self, graph: &Graph<'_>, at: usize, above: Option<&Self>) {
        let Some(node) = graph.nodes.get(at) else { return };
        let own = if above.is_none() { node.weight } else { 0 };
        let (mut here, mut named, mut any, mut placed, mut any_item) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
        let mut recursion = 0;
        for (reach, to) in &node.edges {
            let level = if *reach == Reach::Here { Some(&*self) } else { above };
            let of = |values: fn(&Self) -> &Vec<u64>| level.and_then(|level| values(level).get(*to).copied()).unwrap_or(0);
            let steps = of(|level| &level.steps);
            match reach {
                Reach::Here => here = here.saturating_add(steps),
                Reach::NamedMember => named = named.max(steps),
                Reach::AnyMember => any = any.saturating_add(steps),
                Reach::PlacedItem => placed = placed.max(steps),
                Reach::AnyItem => any_item = any_item.saturating_add(steps),
            }
            recursion = recursion.max(of(|level| &level.recursion));
        }
        let inside = named.saturating_add(any).max(placed.saturating_add(any_item));
        let passes = if node.twice { 2 } else { 1 };
        let steps = own.saturating_add(here.saturating_mul(passes)).saturating_add(inside);
        if let (Some(total), Some(deepest)) = (self.steps.get_mut(at), self.recursion.get_mut(at)) {
            (*total, *deepest) = (steps, 1 + recursion);
        }
    }
}

/// The subschemas, each after those it applies to the same value. A schema that applies itself to the same value has no such order.
fn innermost_first(graph: &Graph<'_>) -> Result<Vec<usize>, Flaw> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Never,
        Open,
        Done,
    }
    let mut seen = vec![Seen::Never; graph.nodes.len()];
    let mut order = Vec::with_capacity(graph.nodes.len());
    // A stack of its own: a chain of references can be longer than a thread's stack allows.
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for start in 0..graph.nodes.len() {
        stack.push((start, 0));
        while let Some((at, edge)) = stack.pop() {
            let (Some(node), Some(state)) = (graph.nodes.get(at), seen.get_mut(at)) else { continue };
            if edge == 0 {
                match *state {
                    Seen::Done => continue,
                    Seen::Open => {
                        let problem =
                            "applies itself to the same value without end; a schema may lead back to itself only for a part of the value";
                        return Err(Flaw::new(&graph.pointer(at), problem.to_owned()));
                    }
                    Seen::Never => *state = Seen::Open,
                }
            }
            match node.edges.get(edge) {
                None => {
                    *state = Seen::Done;
                    order.push(at);
                }
                Some((reach, to)) => {
                    stack.push((at, edge + 1));
                    if *reach == Reach::Here {
                        stack.push((*to, 0));
                    }
                }
            }
        }
    }
    Ok(order)
}

/// How many values a payload has at each depth, the root first. Recursion is bounded by the parser's depth.
pub(super) fn values_at_each_depth(payload: &Value) -> Vec<u64> {
    let mut counts = Vec::new();
    count(payload, 0, &mut counts);
    counts
}

fn count(value: &Value, depth: usize, counts: &mut Vec<u64>) {
    match counts.get_mut(depth) {
        Some(count) => *count += 1,
        None => counts.push(1),
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| count(item, depth + 1, counts)),
        Value::Object(members) => members.values().for_each(|member| count(member, depth + 1, counts)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cost(schema: &Value) -> Result<Cost, String> {
        Graph::of(schema).and_then(|graph| Cost::of(&graph)).map_err(|flaw| flaw.to_string())
    }

    fn chain(length: usize, hop: fn(Value) -> Value) -> Value {
        let definition = |at: usize| {
            let next = if at + 1 < length { json!({ "$ref": format!("#/$defs/{}", at + 1) }) } else { json!({ "type": "string" }) };
            (at.to_string(), hop(next))
        };
        let definitions: serde_json::Map<_, _> = (0..length).map(definition).collect();
        json!({ "$defs": definitions, "$ref": "#/$defs/0" })
    }

    #[test]
    fn a_list_or_a_tree_costs_the_same_at_every_depth() {
        for schema in [
            json!({ "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" } }, "required": ["v"] }),
            json!({ "items": { "$ref": "#" } }),
            json!({ "additionalProperties": { "$ref": "#" } }),
            json!({ "properties": { "a": { "$ref": "#" } }, "unevaluatedProperties": false }),
        ] {
            let cost = cost(&schema).unwrap();
            assert!(cost.steps.iter().skip(1).all(|steps| steps == &cost.steps[1]), "{schema}: {:?}", cost.steps);
        }
    }

    #[test]
    fn alternatives_that_lead_back_multiply_with_each_level() {
        let branch = || json!({ "properties": { "a": { "$ref": "#/$defs/n" } } });
        let schema = json!({ "$defs": { "n": { "anyOf": [branch(), branch()] } }, "$ref": "#/$defs/n" });
        let cost = cost(&schema).unwrap();
        assert!((1..20).all(|depth| cost.steps[depth + 1] == 2 * cost.steps[depth]), "{:?}", cost.steps);
        assert_eq!(cost.steps.last(), Some(&u64::MAX), "it does not wrap around");
    }

    #[test]
    fn looking_for_what_was_left_unevaluated_counts_twice() {
        let once = cost(&json!({ "allOf": [{ "properties": { "a": { "type": "string" } } }] })).unwrap();
        let twice = cost(&json!({ "allOf": [{ "properties": { "a": { "type": "string" } } }], "unevaluatedProperties": false })).unwrap();
        assert!(twice.steps[1] >= 2 * once.steps[1]);
    }

    #[test]
    fn a_schema_that_applies_itself_to_the_same_value_is_refused() {
        let endless = [
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "not": { "$ref": "#" } }] }),
            json!({ "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/b" }] }, "b": { "$ref": "#/$defs/a" } } }),
            json!({ "$dynamicAnchor": "n", "allOf": [{ "$dynamicRef": "#n" }] }),
        ];
        for schema in endless {
            assert!(cost(&schema).unwrap_err().contains("without end"), "{schema}");
        }
        assert!(cost(&json!({ "not": { "properties": { "a": { "$ref": "#" } } } })).is_ok());
    }

    #[test]
    fn subschemas_inside_one_another_are_bounded_at_the_edge_whatever_the_length_of_the_chain() {
        let max = usize::try_from(limits::SCHEMA_RECURSION.max).unwrap();
        // The root is one more.
        assert!(cost(&chain(max - 1, |next| next)).is_ok() && cost(&chain(max - 2, |next| next)).is_ok());
        assert!(cost(&chain(max, |next| next)).unwrap_err().contains(limits::SCHEMA_RECURSION.name));
        assert!(cost(&chain(50_000, |next| json!({ "allOf": [next] }))).unwrap_err().contains(limits::SCHEMA_RECURSION.name));
        assert_eq!(cost(&chain(10, |next| json!({ "properties": { "a": next } }))).unwrap().recursion(1), 2);
    }

    #[test]
    fn values_are_counted_by_depth() {
        assert_eq!(values_at_each_depth(&json!({ "a": [1, { "b": 2 }], "c": null })), [1, 2, 2, 1]);
    }
}
