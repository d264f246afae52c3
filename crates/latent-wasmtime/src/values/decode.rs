//! From a bounded tree and a signature to values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use wasmtime::component::Val;

use super::ValuesLimits;
use super::document::{self, Node};
use super::error::{Found, ValuesError, ValuesProblem};
use super::number;
use super::path::{Step, shown};
use super::shape::{Named, Shape, Signature};

type Object<'t> = BTreeMap<Cow<'t, str>, Node<'t>>;
type Payload = Option<Box<Val>>;

impl Signature {
    /// Reads the arguments of one call.
    ///
    /// # Errors
    /// [`ValuesError`]: the text is no JSON, is over a limit, or does not fit the parameters.
    pub fn decode(&self, json: &[u8], limits: &ValuesLimits) -> Result<Vec<Val>, ValuesError> {
        let arguments = document::parse(json, limits).and_then(|root| self.arguments(root));
        arguments.map_err(|error| error.naming_parameter(|index| self.params.get(index).map(|(name, _)| &**name)))
    }

    fn arguments(&self, root: Node<'_>) -> Result<Vec<Val>, ValuesError> {
        let Node::Array(arguments) = root else { return Err(mismatch("an array with one value for each parameter", root.found())) };
        let shapes = self.params.iter().map(|(_, shape)| shape);
        items(shapes, arguments, "one for each parameter")
    }
}

fn mismatch(expected: &'static str, found: Found) -> ValuesError {
    ValuesProblem::Mismatch { expected, found }.here()
}

/// Exactly one value for each shape.
fn items<'s>(shapes: impl ExactSizeIterator<Item = &'s Shape>, array: Vec<Node<'_>>, of: &'static str) -> Result<Vec<Val>, ValuesError> {
    if shapes.len() != array.len() {
        return Err(ValuesProblem::Length { expected: shapes.len(), found: array.len(), of }.here());
    }
    let values = shapes.zip(array).enumerate();
    values.map(|(index, (shape, node))| value(shape, node).map_err(|error| error.inside(Step::Index(index)))).collect()
}

/// One value. Recursion is as deep as the shape, which is bounded.
fn value(shape: &Shape, node: Node<'_>) -> Result<Val, ValuesError> {
    let expected = shape.words();
    match (shape, node) {
        (Shape::Bool, Node::Boolean(value)) => Ok(Val::Bool(value)),
        (Shape::S8, Node::Integer(number)) => integer(number, Val::S8, expected),
        (Shape::U8, Node::Integer(number)) => integer(number, Val::U8, expected),
        (Shape::S16, Node::Integer(number)) => integer(number, Val::S16, expected),
        (Shape::U16, Node::Integer(number)) => integer(number, Val::U16, expected),
        (Shape::S32, Node::Integer(number)) => integer(number, Val::S32, expected),
        (Shape::U32, Node::Integer(number)) => integer(number, Val::U32, expected),
        (Shape::S64, Node::Text(text)) => fitting(number::integer(&text).map(Val::S64), expected),
        (Shape::U64, Node::Text(text)) => fitting(number::integer(&text).map(Val::U64), expected),
        (Shape::F32, Node::Text(text)) => fitting(number::float(&text).map(Val::Float32), expected),
        (Shape::F64, Node::Text(text)) => fitting(number::float(&text).map(Val::Float64), expected),
        (Shape::Char, Node::Text(text)) => fitting(only_char(&text).map(Val::Char), expected),
        (Shape::Text, Node::Text(text)) => Ok(Val::String(text.into_owned())),
        (Shape::List(element), Node::Array(array)) => list(element, array).map(Val::List),
        (Shape::Tuple(shapes), Node::Array(array)) => items(shapes.iter(), array, "a tuple").map(Val::Tuple),
        (Shape::Record(fields), Node::Object(object)) => record(fields, object).map(Val::Record),
        (Shape::Variant(cases), Node::Object(object)) => variant(cases, object),
        (Shape::Enum(names), Node::Text(name)) => match names.find(&name) {
            Some(_) => Ok(Val::Enum(name.into_owned())),
            None => Err(ValuesProblem::unknown_name(&name, "enum").here()),
        },
        (Shape::Flags(names), Node::Array(array)) => flags(names, array).map(Val::Flags),
        (Shape::Option(some), Node::Object(object)) => match only_member(object, expected)? {
            ("none", node) => branch(None, node).map(Val::Option).map_err(|error| error.inside(Step::name("none"))),
            ("some", node) => branch(Some(some), node).map(Val::Option).map_err(|error| error.inside(Step::name("some"))),
            _ => Err(mismatch(expected, Found::UnfitObject)),
        },
        (Shape::Result { ok, err }, Node::Object(object)) => match only_member(object, expected)? {
            ("ok", node) => branch(ok.as_deref(), node).map(|ok| Val::Result(Ok(ok))).map_err(|error| error.inside(Step::name("ok"))),
            ("err", node) => branch(err.as_deref(), node).map(|err| Val::Result(Err(err))).map_err(|error| error.inside(Step::name("err"))),
            _ => Err(mismatch(expected, Found::UnfitObject)),
        },
        (_, node) => Err(mismatch(expected, node.found())),
    }
}

fn integer<T: TryFrom<i128>>(number: i128, of: fn(T) -> Val, expected: &'static str) -> Result<Val, ValuesError> {
    T::try_from(number).map(of).map_err(|_| mismatch(expected, Found::IntegerOutOfRange))
}

fn fitting(value: Option<Val>, expected: &'static str) -> Result<Val, ValuesError> {
    value.ok_or_else(|| mismatch(expected, Found::UnfitText))
}

fn only_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

fn list(element: &Shape, array: Vec<Node<'_>>) -> Result<Vec<Val>, ValuesError> {
    let elements = array.into_iter().enumerate();
    elements.map(|(index, node)| value(element, node).map_err(|error| error.inside(Step::Index(index)))).collect()
}

fn record(fields: &Named<Shape>, mut object: Object<'_>) -> Result<Vec<(String, Val)>, ValuesError> {
    if let Some(key) = object.keys().find(|key| fields.find(key).is_none()) {
        return Err(ValuesProblem::UnknownKey { key: shown(key), of: "this record" }.here());
    }
    let field = |(name, shape): (&str, &Shape)| {
        let Some(node) = object.remove(name) else { return Err(missing(name, "this record")) };
        let value = value(shape, node).map_err(|error| error.inside(Step::name(name)))?;
        Ok((name.to_owned(), value))
    };
    fields.iter().map(field).collect()
}

fn missing(key: &str, of: &'static str) -> ValuesError {
    ValuesProblem::MissingKey { key: shown(key), of }.here()
}

/// Keys of a variant.
const CASE: &str = "case";
const VALUE: &str = "value";

fn variant(cases: &Named<Option<Shape>>, mut object: Object<'_>) -> Result<Val, ValuesError> {
    const OF: &str = "a variant";
    if let Some(key) = object.keys().find(|key| ![CASE, VALUE].contains(&&***key)) {
        return Err(ValuesProblem::UnknownKey { key: shown(key), of: OF }.here());
    }
    let case = match object.remove(CASE) {
        None => return Err(missing(CASE, OF)),
        Some(Node::Text(case)) => case,
        Some(other) => return Err(mismatch("the name of a case (variant)", other.found()).inside(Step::name(CASE))),
    };
    let Some((_, shape)) = cases.find(&case) else {
        return Err(ValuesProblem::unknown_name(&case, "variant").here().inside(Step::name(CASE)));
    };
    let payload = match (shape, object.remove(VALUE)) {
        (None, None) => None,
        (None, Some(_)) => return Err(ValuesProblem::UnexpectedPayload { case: shown(&case) }.here()),
        (Some(_), None) => return Err(missing(VALUE, "a variant whose case has a payload")),
        (Some(shape), Some(node)) => Some(Box::new(value(shape, node).map_err(|error| error.inside(Step::name(VALUE)))?)),
    };
    Ok(Val::Variant(case.into_owned(), payload))
}

fn flags(names: &Named<()>, array: Vec<Node<'_>>) -> Result<Vec<String>, ValuesError> {
    let mut set = BTreeMap::new();
    for (at, node) in array.into_iter().enumerate() {
        let refused = |problem: ValuesProblem| Err(problem.here().inside(Step::Index(at)));
        let Node::Text(name) = node else {
            return refused(ValuesProblem::Mismatch { expected: "the name of a flag", found: node.found() });
        };
        let Some((place, ())) = names.find(&name) else { return refused(ValuesProblem::unknown_name(&name, "flags")) };
        if set.contains_key(&place) {
            return refused(ValuesProblem::RepeatedFlag { name: shown(&name) });
        }
        set.insert(place, name.into_owned());
    }
    Ok(set.into_values().collect())
}

/// The one member of an option's or result's object. The key is given as one of the known ones, so that it borrows nothing.
fn only_member<'t>(mut object: Object<'t>, expected: &'static str) -> Result<(&'static str, Node<'t>), ValuesError> {
    match (object.pop_first(), object.is_empty()) {
        (Some((key, node)), true) => Ok((BRANCHES.into_iter().find(|known| *known == key).unwrap_or_default(), node)),
        _ => Err(mismatch(expected, Found::UnfitObject)),
    }
}

const BRANCHES: [&str; 4] = ["none", "some", "ok", "err"];

/// The payload of a branch; `null` where it has none.
fn branch(shape: Option<&Shape>, node: Node<'_>) -> Result<Payload, ValuesError> {
    match (shape, node) {
        (Some(shape), node) => Ok(Some(Box::new(value(shape, node)?))),
        (None, Node::Null) => Ok(None),
        (None, node) => Err(mismatch("null, because there is no payload", node.found())),
    }
}
