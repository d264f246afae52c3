//! From values and a signature to bounded text, written once, front to back.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use latent_core::Limit;
use wasmtime::component::Val;

use super::ValuesLimits;
use super::error::{ValuesError, ValuesProblem};
use super::number;
use super::path::Step;
use super::shape::{Named, Shape, Signature};
use crate::limits;

impl Signature {
    /// Writes the results of one call.
    ///
    /// # Errors
    /// [`ValuesError`]: the results are over a limit, or are not of the function's types.
    pub fn encode(&self, values: &[Val], limits: &ValuesLimits) -> Result<Bytes, ValuesError> {
        let mut writer = Writer { text: Vec::new(), limits, nodes: 0, depth: 0 };
        writer.items(self.results.iter(), values, "one for each result")?;
        Ok(writer.text.into())
    }
}

/// The text so far and what is counted. Invariant: never more text than the limit.
struct Writer<'l> {
    text: Vec<u8>,
    limits: &'l ValuesLimits,
    nodes: u64,
    depth: u64,
}

type Written = Result<(), ValuesError>;

fn foreign(expected: &'static str) -> ValuesError {
    ValuesProblem::ForeignValue { expected }.here()
}

fn check(value: u64, limit: &Limit, max: u64) -> Written {
    if value > max { Err(ValuesProblem::over(limit, max).here()) } else { Ok(()) }
}

impl Writer<'_> {
    /// Recursion is as deep as the shape, which is bounded.
    fn value(&mut self, shape: &Shape, value: &Val) -> Written {
        match (shape, value) {
            (Shape::Bool, Val::Bool(value)) => self.token(if *value { "true" } else { "false" }),
            (Shape::S8, Val::S8(number)) => self.token(&number.to_string()),
            (Shape::U8, Val::U8(number)) => self.token(&number.to_string()),
            (Shape::S16, Val::S16(number)) => self.token(&number.to_string()),
            (Shape::U16, Val::U16(number)) => self.token(&number.to_string()),
            (Shape::S32, Val::S32(number)) => self.token(&number.to_string()),
            (Shape::U32, Val::U32(number)) => self.token(&number.to_string()),
            (Shape::S64, Val::S64(number)) => self.string(&number.to_string()),
            (Shape::U64, Val::U64(number)) => self.string(&number.to_string()),
            (Shape::F32, Val::Float32(number)) => self.string(&number::float_text(*number)),
            (Shape::F64, Val::Float64(number)) => self.string(&number::float_text(*number)),
            (Shape::Char, Val::Char(char)) => self.string(char.encode_utf8(&mut [0; 4])),
            (Shape::Text, Val::String(text)) => self.string(text),
            (Shape::List(element), Val::List(values)) => self.array(values, |writer, _, value| writer.value(element, value)),
            (Shape::Tuple(shapes), Val::Tuple(values)) => self.items(shapes.iter(), values, "a tuple"),
            (Shape::Record(fields), Val::Record(values)) => self.record(fields, values),
            (Shape::Variant(cases), Val::Variant(case, payload)) => self.variant(cases, case, payload.as_deref()),
            (Shape::Enum(names), Val::Enum(name)) if names.find(name).is_some() => self.string(name),
            (Shape::Flags(names), Val::Flags(set)) => self.flags(names, set),
            (Shape::Option(_), Val::Option(None)) => self.branch("none", None, None),
            (Shape::Option(some), Val::Option(Some(value))) => self.branch("some", Some(some), Some(value)),
            (Shape::Result { ok, .. }, Val::Result(Ok(value))) => self.branch("ok", ok.as_deref(), value.as_deref()),
            (Shape::Result { err, .. }, Val::Result(Err(value))) => self.branch("err", err.as_deref(), value.as_deref()),
            _ => Err(foreign(shape.words())),
        }
    }

    /// Exactly one value for each shape.
    fn items<'s>(&mut self, mut shapes: impl ExactSizeIterator<Item = &'s Shape>, values: &[Val], of: &'static str) -> Written {
        if shapes.len() != values.len() {
            return Err(ValuesProblem::Length { expected: shapes.len(), found: values.len(), of }.here());
        }
        self.array(values, |writer, _, value| shapes.next().map_or(Ok(()), |shape| writer.value(shape, value)))
    }

    fn array<T>(&mut self, elements: &[T], mut write: impl FnMut(&mut Self, usize, &T) -> Written) -> Written {
        self.open("[", elements.len())?;
        for (index, element) in elements.iter().enumerate() {
            if index > 0 {
                self.put(",")?;
            }
            write(self, index, element).map_err(|error| error.inside(Step::Index(index)))?;
        }
        self.close("]")
    }

    fn record(&mut self, fields: &Named<Shape>, values: &[(String, Val)]) -> Written {
        // The engine lifts fields in declaration order.
        if !fields.iter().map(|(name, _)| name).eq(values.iter().map(|(name, _)| &**name)) {
            return Err(foreign("record"));
        }
        self.open("{", values.len())?;
        for (index, ((name, shape), (_, value))) in fields.iter().zip(values).enumerate() {
            if index > 0 {
                self.put(",")?;
            }
            self.member(name, |writer| writer.value(shape, value))?;
        }
        self.close("}")
    }

    fn variant(&mut self, cases: &Named<Option<Shape>>, case: &str, payload: Option<&Val>) -> Written {
        let (shape, members) = match (cases.find(case), payload) {
            (Some((_, None)), None) => (None, 1),
            (Some((_, Some(shape))), Some(payload)) => (Some((shape, payload)), 2),
            _ => return Err(foreign("variant")),
        };
        self.open("{", members)?;
        self.member("case", |writer| writer.string(case))?;
        if let Some((shape, payload)) = shape {
            self.put(",")?;
            self.member("value", |writer| writer.value(shape, payload))?;
        }
        self.close("}")
    }

    fn flags(&mut self, names: &Named<()>, set: &[String]) -> Written {
        let places: Option<BTreeMap<usize, &str>> = set.iter().map(|name| Some((names.find(name)?.0, &**name))).collect();
        let in_order: Vec<&str> = places.unwrap_or_default().into_values().collect();
        if in_order.len() != set.len() {
            return Err(foreign("flags"));
        }
        self.array(&in_order, |writer, _, name| writer.string(name))
    }

    fn branch(&mut self, name: &str, shape: Option<&Shape>, value: Option<&Val>) -> Written {
        self.open("{", 1)?;
        self.member(name, |writer| match (shape, value) {
            (None, None) => writer.token("null"),
            (Some(shape), Some(value)) => writer.value(shape, value),
            _ => Err(foreign("option or result")),
        })?;
        self.close("}")
    }

    fn member(&mut self, name: &str, write: impl FnOnce(&mut Self) -> Written) -> Written {
        self.quoted(name)?;
        self.put(":")?;
        write(self).map_err(|error| error.inside(Step::name(name)))
    }

    fn open(&mut self, bracket: &str, elements: usize) -> Written {
        self.depth += 1;
        check(self.depth, &limits::VALUES_DEPTH, self.limits.depth)?;
        check(elements as u64, &limits::VALUES_ELEMENTS, self.limits.elements)?;
        self.token(bracket)
    }

    fn close(&mut self, bracket: &str) -> Written {
        self.depth -= 1;
        self.put(bracket)
    }

    /// A value, or the bracket that begins one.
    fn token(&mut self, token: &str) -> Written {
        self.count_node()?;
        self.put(token)
    }

    fn string(&mut self, text: &str) -> Written {
        self.count_node()?;
        self.quoted(text)
    }

    fn quoted(&mut self, text: &str) -> Written {
        check(text.len() as u64, &limits::VALUES_STRING_BYTES, self.limits.string_bytes)?;
        // Writing fails for one reason alone, and loses it on the way.
        let over = ValuesProblem::over(&limits::VALUES_DOCUMENT_BYTES, self.limits.document_bytes);
        serde_json::to_writer(self, text).map_err(|_| over.here())
    }

    fn count_node(&mut self) -> Written {
        self.nodes += 1;
        check(self.nodes, &limits::VALUES_NODES, self.limits.nodes)
    }

    fn put(&mut self, piece: &str) -> Written {
        check((self.text.len() + piece.len()) as u64, &limits::VALUES_DOCUMENT_BYTES, self.limits.document_bytes)?;
        self.text.extend_from_slice(piece.as_bytes());
        Ok(())
    }
}

/// Takes escaped text from the JSON serialiser.
impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.text.len() + bytes.len()) as u64 > self.limits.document_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
