//! JSON text as a tree, with every limit checked before what it bounds is read.
//!
//! The grammar is `serde_json`'s; what it would take and we do not is refused here: duplicate keys, and numbers that are no integers
//! (kept as such, so that the refusal names their place). Invariant: a tree's nodes, depth, keys and strings are within the limits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use latent_core::Limit;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::ValuesLimits;
use super::error::{Found, ValuesError, ValuesProblem};
use super::path::{Step, shown};
use crate::activation_log::harmless;
use crate::limits;

/// One JSON value. Strings without escapes are those of the text.
#[derive(Debug)]
pub(super) enum Node<'t> {
    Null,
    Boolean(bool),
    Integer(i128),
    /// With a fraction or exponent, minus zero, or beyond 64 bits.
    OtherNumber,
    Text(Cow<'t, str>),
    Array(Vec<Node<'t>>),
    Object(BTreeMap<Cow<'t, str>, Node<'t>>),
}

impl Node<'_> {
    /// Its kind, for an error where another kind belongs.
    pub(super) fn found(&self) -> Found {
        match self {
            Self::Null => Found::Null,
            Self::Boolean(_) => Found::Boolean,
            Self::Integer(_) => Found::Integer,
            Self::OtherNumber => Found::OtherNumber,
            Self::Text(_) => Found::Text,
            Self::Array(_) => Found::Array,
            Self::Object(_) => Found::Object,
        }
    }
}

/// Parses the one document that `json` must be.
pub(super) fn parse<'t>(json: &'t [u8], limits: &ValuesLimits) -> Result<Node<'t>, ValuesError> {
    if json.len() as u64 > limits.document_bytes {
        return Err(ValuesProblem::over(&limits::VALUES_DOCUMENT_BYTES, limits.document_bytes).here());
    }
    let mut parser = serde_json::Deserializer::from_slice(json);
    let mut reader = Reader { limits, nodes: 0, refusal: None };
    let root = Seed { reader: &mut reader, depth: 0, index: 0 }.deserialize(&mut parser);
    if let Some(refusal) = reader.refusal {
        return Err(refusal);
    }
    root.and_then(|root| parser.end().map(|()| root)).map_err(|error| not_json(&error))
}

fn not_json(error: &serde_json::Error) -> ValuesError {
    let detail = harmless(&error.to_string(), limits::VALUES_PATH_BYTES.max_usize()).0;
    ValuesProblem::NotJson { detail }.here()
}

/// What is counted over the whole document, and the refusal that ends it: the parser's own error has no room for one.
struct Reader<'l> {
    limits: &'l ValuesLimits,
    nodes: u64,
    refusal: Option<ValuesError>,
}

impl Reader<'_> {
    fn refuse<E: Error>(&mut self, problem: ValuesProblem) -> E {
        self.refusal = Some(problem.here());
        E::custom("refused")
    }

    /// Puts a refusal from further in one level further out; errors of the parser have line and column instead.
    fn inside<E>(&mut self, step: impl FnOnce() -> Step, error: E) -> E {
        self.refusal = self.refusal.take().map(|refusal| refusal.inside(step()));
        error
    }

    fn check<E: Error>(&mut self, value: u64, limit: &Limit, max: u64) -> Result<(), E> {
        if value > max { Err(self.refuse(ValuesProblem::over(limit, max))) } else { Ok(()) }
    }

    fn count_node<E: Error>(&mut self) -> Result<(), E> {
        self.nodes += 1;
        self.check(self.nodes, &limits::VALUES_NODES, self.limits.nodes)
    }

    fn check_depth<E: Error>(&mut self, depth: u64) -> Result<(), E> {
        self.check(depth, &limits::VALUES_DEPTH, self.limits.depth)
    }

    fn check_element<E: Error>(&mut self, index: usize) -> Result<(), E> {
        self.check(index as u64 + 1, &limits::VALUES_ELEMENTS, self.limits.elements)
    }

    fn check_text<E: Error>(&mut self, text: &str) -> Result<(), E> {
        self.check(text.len() as u64, &limits::VALUES_STRING_BYTES, self.limits.string_bytes)
    }
}

/// Reads one value that lies `depth` levels deep, as element `index` of its array or member of its object.
struct Seed<'r, 'l> {
    reader: &'r mut Reader<'l>,
    depth: u64,
    index: usize,
}

impl<'t> DeserializeSeed<'t> for Seed<'_, '_> {
    type Value = Node<'t>;

    fn deserialize<D: Deserializer<'t>>(self, parser: D) -> Result<Node<'t>, D::Error> {
        self.reader.check_element(self.index)?;
        self.reader.count_node()?;
        parser.deserialize_any(self)
    }
}

impl<'t> Visitor<'t> for Seed<'_, '_> {
    type Value = Node<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node<'t>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node<'t>, E> {
        Ok(Node::Boolean(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node<'t>, E> {
        Ok(Node::Integer(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node<'t>, E> {
        Ok(Node::Integer(value.into()))
    }

    fn visit_f64<E: Error>(self, _value: f64) -> Result<Node<'t>, E> {
        Ok(Node::OtherNumber)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'t str) -> Result<Node<'t>, E> {
        self.reader.check_text(text)?;
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node<'t>, E> {
        self.reader.check_text(text)?;
        Ok(Node::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut elements: A) -> Result<Node<'t>, A::Error> {
        let (reader, depth) = (self.reader, self.depth + 1);
        reader.check_depth(depth)?;
        let mut array = Vec::new();
        loop {
            let index = array.len();
            let element = elements.next_element_seed(Seed { reader: &mut *reader, depth, index });
            match element.map_err(|error| reader.inside(|| Step::Index(index), error))? {
                Some(element) => array.push(element),
                None => return Ok(Node::Array(array)),
            }
        }
    }

    fn visit_map<A: MapAccess<'t>>(self, mut members: A) -> Result<Node<'t>, A::Error> {
        let (reader, depth) = (self.reader, self.depth + 1);
        reader.check_depth(depth)?;
        let mut object = BTreeMap::new();
        loop {
            let index = object.len();
            let Some(key) = members.next_key_seed(KeySeed { reader: &mut *reader, index })? else { return Ok(Node::Object(object)) };
            if object.contains_key(&key) {
                return Err(reader.refuse(ValuesProblem::DuplicateKey { key: shown(&key) }));
            }
            let value = members.next_value_seed(Seed { reader: &mut *reader, depth, index });
            let value = value.map_err(|error| reader.inside(|| Step::name(&key), error))?;
            object.insert(key, value);
        }
    }
}

/// Reads one key.
struct KeySeed<'r, 'l> {
    reader: &'r mut Reader<'l>,
    index: usize,
}

impl<'t> DeserializeSeed<'t> for KeySeed<'_, '_> {
    type Value = Cow<'t, str>;

    fn deserialize<D: Deserializer<'t>>(self, parser: D) -> Result<Cow<'t, str>, D::Error> {
        self.reader.check_element(self.index)?;
        parser.deserialize_str(self)
    }
}

impl<'t> Visitor<'t> for KeySeed<'_, '_> {
    type Value = Cow<'t, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'t str) -> Result<Cow<'t, str>, E> {
        self.reader.check_text(text)?;
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'t, str>, E> {
        self.reader.check_text(text)?;
        Ok(Cow::Owned(text.to_owned()))
    }
}
