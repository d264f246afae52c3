//! A schema as a graph: which subschemas exist, which apply to the same value and which to a part of it, and where references lead.
//!
//! Only what can be reached from the root counts. Subschemas that no keyword known here leads to are only reached by a reference.
//! Nothing here validates: the text may break every rule of JSON Schema, and what makes no sense leads nowhere.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Flaw;
use crate::limits;

/// What part of a value a subschema applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The value itself.
    Here,
    /// One member by its name; of all edges of this kind only one applies to any member.
    NamedMember,
    /// Any member, or its name.
    AnyMember,
    /// One item by its position; of all edges of this kind only one applies to any item.
    PlacedItem,
    /// Any item.
    AnyItem,
}

/// How a keyword holds its subschemas.
#[derive(Clone, Copy)]
enum Shape {
    One,
    OneOrList,
    List,
    Map,
}

/// One subschema.
#[derive(Debug, Default)]
pub(super) struct Node<'d> {
    /// Where it stands; nothing for a name that several places have.
    pub(super) value: Option<&'d Value>,
    /// Estimated work of its own keywords on one value.
    pub(super) weight: u64,
    /// True when what it applies to the same value is looked at a second time, to learn what was left unevaluated.
    pub(super) twice: bool,
    pub(super) edges: Vec<(Reach, usize)>,
}

/// See the module. Node 0 is the root.
#[derive(Debug)]
pub(super) struct Graph<'d> {
    document: &'d Value,
    pub(super) nodes: Vec<Node<'d>>,
    /// True when some subschema offers alternatives or negates.
    pub(super) has_alternatives: bool,
    /// Regular expressions.
    pub(super) patterns: u64,
}

fn keyword(name: &str) -> Option<(Shape, Reach)> {
    Some(match name {
        "not" | "if" | "then" | "else" => (Shape::One, Reach::Here),
        "allOf" | "anyOf" | "oneOf" => (Shape::List, Reach::Here),
        "dependentSchemas" | "dependencies" => (Shape::Map, Reach::Here),
        "properties" => (Shape::Map, Reach::NamedMember),
        "additionalProperties" => (Shape::One, Reach::NamedMember),
        "patternProperties" => (Shape::Map, Reach::AnyMember),
        "propertyNames" | "unevaluatedProperties" => (Shape::One, Reach::AnyMember),
        "prefixItems" => (Shape::List, Reach::PlacedItem),
        "items" => (Shape::OneOrList, Reach::PlacedItem),
        "additionalItems" => (Shape::One, Reach::PlacedItem),
        "contains" | "unevaluatedItems" => (Shape::One, Reach::AnyItem),
        _ => return None,
    })
}

/// A value in the document, and the innermost schema with an id of its own around it, which is what `#` means there.
#[derive(Clone, Copy)]
struct Place<'d> {
    value: &'d Value,
    resource: &'d Value,
}

impl<'d> Place<'d> {
    fn root(document: &'d Value) -> Self {
        Self { value: document, resource: document }
    }

    fn inner(self, value: &'d Value) -> Self {
        Self { value, resource: if has_own_id(value) { value } else { self.resource } }
    }

    fn step(self, token: &str) -> Option<Self> {
        let value = match self.value {
            Value::Object(members) => members.get(token)?,
            Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
            _ => return None,
        };
        Some(self.inner(value))
    }
}

fn has_own_id(schema: &Value) -> bool {
    let id = schema.get("$id").or_else(|| schema.get("id")).and_then(Value::as_str);
    id.is_some_and(|id| !id.starts_with('#'))
}

struct Builder<'d> {
    /// Names given with `$anchor` and the like, with every place that has it.
    anchors: BTreeMap<&'d str, Vec<Place<'d>>>,
    /// Node of each value already met, by its address in the document.
    known: BTreeMap<*const Value, usize>,
    /// Node of each anchor already met.
    known_anchors: BTreeMap<&'d str, usize>,
    waiting: Vec<(usize, Place<'d>)>,
    graph: Graph<'d>,
}

impl<'d> Graph<'d> {
    /// Follows everything that can be reached from the root.
    pub(super) fn of(document: &'d Value) -> Result<Self, Flaw> {
        let graph = Self { document, nodes: Vec::new(), has_alternatives: false, patterns: 0 };
        let mut builder =
            Builder { anchors: BTreeMap::new(), known: BTreeMap::new(), known_anchors: BTreeMap::new(), waiting: Vec::new(), graph };
        builder.find_anchors(Place::root(document));
        builder.node_of(Place::root(document));
        while let Some((at, place)) = builder.waiting.pop() {
            builder.visit(at, place)?;
        }
        limits::SCHEMA_PATTERNS.check(builder.graph.patterns).map_err(|error| Flaw::new("", error.to_string()))?;
        Ok(builder.graph)
    }

    /// JSON pointer of a node. Looked for only when it is told, since a long pointer for each of many nodes would be a bomb.
    pub(super) fn pointer(&self, at: usize) -> String {
        self.nodes.get(at).and_then(|node| node.value).and_then(|value| pointer_to(self.document, value)).unwrap_or_default()
    }
}

/// Recursion is bounded by the document's depth.
fn pointer_to(document: &Value, sought: &Value) -> Option<String> {
    if std::ptr::eq(document, sought) {
        return Some(String::new());
    }
    let below = |token: String, value| pointer_to(value, sought).map(|rest| format!("/{token}{rest}"));
    match document {
        Value::Object(members) => members.iter().find_map(|(name, value)| below(name.replace('~', "~0").replace('/', "~1"), value)),
        Value::Array(items) => items.iter().enumerate().find_map(|(at, value)| below(at.to_string(), value)),
        _ => None,
    }
}

impl<'d> Builder<'d> {
    /// Recursion is bounded by the document's depth.
    fn find_anchors(&mut self, place: Place<'d>) {
        match place.value {
            Value::Object(members) => {
                for (name, value) in members {
                    let anchor = match (name.as_str(), value.as_str()) {
                        ("$anchor" | "$dynamicAnchor", Some(anchor)) => Some(anchor),
                        ("$id" | "id", Some(id)) => id.strip_prefix('#'),
                        _ => None,
                    };
                    if let Some(anchor) = anchor {
                        self.anchors.entry(anchor).or_default().push(place);
                    }
                    self.find_anchors(place.inner(value));
                }
            }
            Value::Array(items) => items.iter().for_each(|value| self.find_anchors(place.inner(value))),
            _ => {}
        }
    }

    fn node_of(&mut self, place: Place<'d>) -> usize {
        let address = std::ptr::from_ref(place.value);
        if let Some(at) = self.known.get(&address) {
            return *at;
        }
        let at = self.push(Node { value: Some(place.value), weight: 1, ..Node::default() });
        self.known.insert(address, at);
        self.waiting.push((at, place));
        at
    }

    fn push(&mut self, node: Node<'d>) -> usize {
        self.graph.nodes.push(node);
        self.graph.nodes.len() - 1
    }

    fn visit(&mut self, at: usize, place: Place<'d>) -> Result<(), Flaw> {
        let Value::Object(members) = place.value else { return Ok(()) };
        let mut edges = Vec::new();
        for (name, value) in members {
            if let ("$ref" | "$dynamicRef" | "$recursiveRef", Some(reference)) = (name.as_str(), value.as_str()) {
                let target = self.target(place, reference);
                let target = target.map_err(|problem| Flaw::new(&format!("{}/{name}", self.graph.pointer(at)), problem))?;
                edges.push((Reach::Here, target));
            } else if let Some((shape, reach)) = keyword(name) {
                edges.extend(parts(place.inner(value), shape).into_iter().map(|part| (reach, self.node_of(part))));
            }
        }
        self.graph.patterns += pattern_count(members);
        self.graph.has_alternatives |= ["anyOf", "oneOf", "not", "if", "contains"].iter().any(|name| members.contains_key(*name));
        if let Some(node) = self.graph.nodes.get_mut(at) {
            node.weight = members.values().map(|value| 1 + value.as_array().map_or(0, Vec::len) as u64).sum::<u64>().max(1);
            node.twice = members.keys().any(|name| name.starts_with("unevaluated"));
            node.edges = edges;
        }
        Ok(())
    }

    /// The node a reference leads to, or what is wrong with it. Whatever leaves the document is refused here, before anything could
    /// want to fetch it.
    fn target(&mut self, from: Place<'d>, reference: &'d str) -> Result<usize, String> {
        let fragment = if reference.is_empty() { Some("") } else { reference.strip_prefix('#') };
        let fragment = fragment.ok_or_else(|| {
            format!(
                "it leaves the document, and nothing is ever fetched; put what it names under $defs and say #/$defs/<name> ({reference:?})"
            )
        })?;
        let resource = Place { value: from.resource, resource: from.resource };
        let found = match fragment {
            "" => Some(self.node_of(resource)),
            pointer if pointer.starts_with('/') => {
                let found = pointer.split('/').skip(1).try_fold(resource, |at, token| at.step(&unescape(token)?));
                found.map(|found| self.node_of(found))
            }
            name => self.anchor(name),
        };
        found.ok_or_else(|| format!("it names nothing in the document ({reference:?})"))
    }

    /// A node that stands for every place with this name: which one it is can depend on how it was reached.
    fn anchor(&mut self, name: &'d str) -> Option<usize> {
        if let Some(at) = self.known_anchors.get(name) {
            return Some(*at);
        }
        let places = self.anchors.get(name)?.clone();
        let at = self.push(Node::default());
        self.known_anchors.insert(name, at);
        let edges = places.into_iter().map(|place| (Reach::Here, self.node_of(place))).collect();
        if let Some(node) = self.graph.nodes.get_mut(at) {
            node.edges = edges;
        }
        Some(at)
    }
}

fn parts<'d>(held: Place<'d>, shape: Shape) -> Vec<Place<'d>> {
    let values: Vec<&Value> = match (shape, held.value) {
        (Shape::One | Shape::OneOrList, Value::Object(_) | Value::Bool(_)) => return vec![held],
        (Shape::List | Shape::OneOrList, Value::Array(items)) => items.iter().collect(),
        (Shape::Map, Value::Object(members)) => members.values().collect(),
        _ => Vec::new(),
    };
    let schemas = values.into_iter().filter(|value| matches!(value, Value::Object(_) | Value::Bool(_)));
    schemas.map(|value| held.inner(value)).collect()
}

fn pattern_count(members: &Map<String, Value>) -> u64 {
    let named = members.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len) as u64;
    named + u64::from(members.get("pattern").is_some_and(Value::is_string))
}

/// A token of a pointer in a reference: percent-encoded, then `~1` for `/` and `~0` for `~`.
fn unescape(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = tail else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = tail;
    }
    Some(String::from_utf8(bytes).ok()?.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edges(document: &Value) -> Vec<(String, Reach, String)> {
        let graph = Graph::of(document).unwrap();
        let named = |at: usize| graph.nodes[at].value.map_or_else(|| "a name".to_owned(), |_| graph.pointer(at));
        let mut edges: Vec<_> =
            (0..graph.nodes.len()).flat_map(|at| graph.nodes[at].edges.iter().map(move |(reach, to)| (at, *reach, *to))).collect();
        edges.sort_by_key(|(from, _, to)| (*from, *to));
        edges.into_iter().map(|(from, reach, to)| (named(from), reach, named(to))).collect()
    }

    #[test]
    fn a_keyword_leads_to_what_it_applies_and_data_leads_nowhere() {
        let document = json!({
            "properties": { "a/b": { "items": [{}, true] }, "$ref": { "const": { "$ref": "http://data" } } },
            "allOf": [{ "not": false }],
            "enum": [{ "anyOf": [{}] }],
            "$defs": { "unused": { "not": {} } }
        });
        let expected = [
            ("", Reach::Here, "/allOf/0"),
            ("", Reach::NamedMember, "/properties/$ref"),
            ("", Reach::NamedMember, "/properties/a~1b"),
            ("/properties/a~1b", Reach::PlacedItem, "/properties/a~1b/items/0"),
            ("/properties/a~1b", Reach::PlacedItem, "/properties/a~1b/items/1"),
            ("/allOf/0", Reach::Here, "/allOf/0/not"),
        ];
        let mut found = edges(&document);
        let mut expected: Vec<_> = expected.iter().map(|(from, reach, to)| ((*from).to_owned(), *reach, (*to).to_owned())).collect();
        let key = |edge: &(String, Reach, String)| (edge.0.clone(), edge.2.clone());
        found.sort_by_key(key);
        expected.sort_by_key(key);
        assert_eq!(found, expected);
    }

    #[test]
    fn references_inside_the_document_are_followed() {
        let cases = [
            (json!({ "items": { "$ref": "#" } }), ""),
            (json!({ "items": { "$ref": "#/$defs/a~1%25" }, "$defs": { "a/%": {} } }), "/$defs/a~1%"),
            (json!({ "items": { "$ref": "#n" }, "$defs": { "x": { "$anchor": "n" } } }), "a name"),
            (json!({ "items": { "$dynamicRef": "#n" }, "$defs": { "x": { "$dynamicAnchor": "n" } } }), "a name"),
            (json!({ "items": { "$ref": "#n" }, "definitions": { "x": { "$id": "#n" } } }), "a name"),
            (json!({ "items": { "$ref": "#/elsewhere/0" }, "elsewhere": [{}] }), "/elsewhere/0"),
        ];
        for (document, target) in cases {
            assert!(edges(&document).contains(&("/items".to_owned(), Reach::Here, target.to_owned())), "{document}");
        }
        let nested =
            json!({ "items": { "$id": "https://a.example/b", "not": { "$ref": "#/$defs/x" }, "$defs": { "x": {} } }, "$defs": {} });
        assert!(Graph::of(&nested).is_ok(), "a schema with an id of its own is what `#` means inside it");
    }

    #[test]
    fn what_leaves_the_document_or_names_nothing_is_refused_with_its_place() {
        for reference in [
            "http://a.example/s",
            "https://json-schema.org/draft/2020-12/schema",
            "file:///etc/passwd",
            "other.json",
            "other.json#/a",
            "//host/x",
            "urn:x:y",
        ] {
            let flaw = Graph::of(&json!({ "properties": { "a": { "$ref": reference } } })).unwrap_err().to_string();
            assert!(flaw.contains("/properties/a/$ref") && flaw.contains("leaves the document"), "{flaw}");
        }
        for reference in ["#/missing", "#missing", "#/properties/b", "#/%zz", "#/%"] {
            let flaw = Graph::of(&json!({ "properties": { "a": { "$ref": reference } } })).unwrap_err().to_string();
            assert!(flaw.contains("names nothing"), "{flaw}");
        }
    }

    #[test]
    fn patterns_are_counted_up_to_their_limit() {
        let with = |count: u64| {
            let named: Map<_, _> = (1..count).map(|n| (format!("p{n}"), json!({}))).collect();
            Graph::of(&json!({ "patternProperties": named, "pattern": "x" })).map(|graph| graph.patterns)
        };
        let max = limits::SCHEMA_PATTERNS.max;
        assert_eq!((with(max - 1).unwrap(), with(max).unwrap()), (max - 1, max));
        assert!(with(max + 1).unwrap_err().to_string().contains(limits::SCHEMA_PATTERNS.name));
    }
}
