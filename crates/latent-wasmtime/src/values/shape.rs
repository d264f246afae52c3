//! The types of a function as a tree of our own: what the table of the form knows, written out, bounded, with names found fast.
//!
//! A component's types share structure, so a few hundred bytes can describe a type that written out would fill the memory. The walk
//! counts what it writes out and how deep it is, and stops at a bound; that is why everything after it may recurse and need not count
//! types. Invariant: a [`Signature`] has at most `values_type_nodes` shapes and names, and is at most `values_type_depth` deep; those of
//! one component have at most `values_component_nodes` together.

use std::fmt;

use latent_core::Limit;
use wasmtime::component::Type;
use wasmtime::component::types::ComponentFunc;

use super::path::{Path, Step, shown};
use crate::limits;

/// One type of the table.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Bool,
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
    S64,
    U64,
    F32,
    F64,
    Char,
    Text,
    List(Box<Shape>),
    Tuple(Vec<Shape>),
    Record(Named<Shape>),
    Variant(Named<Option<Shape>>),
    Enum(Named<()>),
    Flags(Named<()>),
    Option(Box<Shape>),
    Result { ok: Option<Box<Shape>>, err: Option<Box<Shape>> },
}

impl Shape {
    /// The type in words, with the form that it takes.
    pub(super) fn words(&self) -> &'static str {
        match self {
            Self::Bool => "true or false (bool)",
            Self::S8 => "an integer from -128 to 127 (s8)",
            Self::U8 => "an integer from 0 to 255 (u8)",
            Self::S16 => "an integer from -32768 to 32767 (s16)",
            Self::U16 => "an integer from 0 to 65535 (u16)",
            Self::S32 => "an integer from -2147483648 to 2147483647 (s32)",
            Self::U32 => "an integer from 0 to 4294967295 (u32)",
            Self::S64 => "a string with a decimal integer from -9223372036854775808 to 9223372036854775807, such as \"-7\" (s64)",
            Self::U64 => "a string with a decimal integer from 0 to 18446744073709551615, such as \"7\" (u64)",
            Self::F32 => "a string with a finite decimal, \"nan\", \"inf\" or \"-inf\" (f32)",
            Self::F64 => "a string with a finite decimal, \"nan\", \"inf\" or \"-inf\" (f64)",
            Self::Char => "a string of exactly one Unicode scalar value (char)",
            Self::Text => "a string (string)",
            Self::List(_) => "an array (list)",
            Self::Tuple(_) => "an array (tuple)",
            Self::Record(_) => "an object with exactly the declared fields (record)",
            Self::Variant(_) => "an object with `case` and, where the case has a payload, `value` (variant)",
            Self::Enum(_) => "a string with a declared name (enum)",
            Self::Flags(_) => "an array of distinct declared names (flags)",
            Self::Option(_) => "an object that is {\"none\":null} or {\"some\":…} (option)",
            Self::Result { .. } => "an object that is {\"ok\":…} or {\"err\":…} (result)",
        }
    }
}

/// Distinct names in declaration order, each found without a walk over all of them.
#[derive(Debug, Clone)]
pub(super) struct Named<T> {
    entries: Vec<(Box<str>, T)>,
    /// Indices of `entries`, by name.
    by_name: Vec<usize>,
}

impl<T> Named<T> {
    pub(super) fn new(entries: Vec<(Box<str>, T)>) -> Self {
        let mut by_name: Vec<usize> = (0..entries.len()).collect();
        by_name.sort_unstable_by_key(|index| entries.get(*index).map(|(name, _)| name));
        Self { entries, by_name }
    }

    /// In declaration order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.entries.iter().map(|(name, entry)| (&**name, entry))
    }

    /// The place of a name in declaration order, and what it stands for.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &T)> {
        let named = |index: &usize| self.entries.get(*index).map_or("", |(name, _)| name);
        let index = *self.by_name.get(self.by_name.binary_search_by(|index| named(index).cmp(name)).ok()?)?;
        self.entries.get(index).map(|(_, entry)| (index, entry))
    }
}

/// A function that can be called with JSON: its parameters and results, checked.
#[derive(Debug, Clone)]
pub struct Signature {
    pub(super) params: Vec<(Box<str>, Shape)>,
    pub(super) results: Vec<Shape>,
}

/// Why a function cannot be called with JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("function `{function}`, {place}, at {path}: {problem}")]
pub struct TypeRefusal {
    /// The function, bounded.
    pub function: Box<str>,
    /// Parameter or result.
    pub place: Place,
    /// Where in its type: `[]` is a list's element, `[0]` a tuple's, `.name` a field's, case's or branch's type.
    pub path: Path,
    /// What is there.
    pub problem: TypeProblem,
}

/// Parameter or result of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The parameter of this name, bounded.
    Parameter(Box<str>),
    /// The result.
    Result,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter(name) => write!(f, "parameter `{name}`"),
            Self::Result => f.write_str("result"),
        }
    }
}

/// A type that has no JSON form, or is out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeProblem {
    /// `own` or `borrow`.
    #[error("a resource has no JSON form; pass data instead of a handle")]
    Resource,
    /// `stream`.
    #[error("a stream has no JSON form; pass a list")]
    Stream,
    /// `future`.
    #[error("a future has no JSON form; pass the value")]
    Future,
    /// `error-context`.
    #[error("an error-context has no JSON form; pass a string or a variant")]
    ErrorContext,
    /// `map`.
    #[error("a map has no JSON form; pass a list of tuples")]
    Map,
    /// A list of fixed length.
    #[error("a list of fixed length has no JSON form; pass a list or a tuple")]
    FixedLengthList,
    /// More than a limit allows.
    #[error("more than {max}, the limit `{limit}`; split or flatten the type")]
    OverLimit {
        /// The limit's name.
        limit: &'static str,
        /// The number in force.
        max: u64,
    },
}

/// What the signatures of one component may still hold together (`limits::VALUES_COMPONENT_NODES`): a thousand functions of one large
/// type are small as a component too.
#[derive(Debug)]
pub struct TypeRoom {
    nodes_left: u64,
}

impl Default for TypeRoom {
    fn default() -> Self {
        Self { nodes_left: limits::VALUES_COMPONENT_NODES.default }
    }
}

impl Signature {
    /// The signature of an exported function, which takes its part of `room`; `function` is its name in an error.
    ///
    /// # Errors
    /// [`TypeRefusal`] for the first type that has no JSON form, and for types that are too deep, too large or too long in a name.
    pub fn of(function: &str, ty: &ComponentFunc, room: &mut TypeRoom) -> Result<Self, TypeRefusal> {
        Self::of_types(function, ty.params(), ty.results(), room)
    }

    pub(super) fn of_types<'a>(
        function: &str,
        params: impl IntoIterator<Item = (&'a str, Type)>,
        results: impl IntoIterator<Item = Type>,
        room: &mut TypeRoom,
    ) -> Result<Self, TypeRefusal> {
        let mut writer = Writer { nodes: 0, room };
        let refused = |place| {
            let function = shown(function).into();
            move |refusal: Refusal| TypeRefusal { function, place, path: refusal.path, problem: refusal.problem }
        };
        let params = params.into_iter().map(|(name, ty)| {
            let place = || refused(Place::Parameter(shown(name).into()));
            let name = writer.name(name).map_err(|problem| place()(problem.into()))?;
            Ok((name, writer.shape(&ty, 1).map_err(place())?))
        });
        let params = params.collect::<Result<_, _>>()?;
        let results = results.into_iter().map(|ty| writer.shape(&ty, 1).map_err(refused(Place::Result)));
        Ok(Self { params, results: results.collect::<Result<_, _>>()? })
    }

    /// How many values a call of the function returns.
    pub fn results(&self) -> usize {
        self.results.len()
    }
}

/// A problem with its path so far.
struct Refusal {
    path: Path,
    problem: TypeProblem,
}

impl From<TypeProblem> for Refusal {
    fn from(problem: TypeProblem) -> Self {
        Self { path: Path::default(), problem }
    }
}

impl Refusal {
    fn inside(mut self, step: Step) -> Self {
        self.path.push_outer(step);
        self
    }
}

/// Writes types out and counts.
struct Writer<'r> {
    nodes: u64,
    room: &'r mut TypeRoom,
}

impl Writer<'_> {
    fn shape(&mut self, ty: &Type, depth: u64) -> Result<Shape, Refusal> {
        bounded(depth, &limits::VALUES_TYPE_DEPTH)?;
        self.count()?;
        Ok(match ty {
            Type::Bool => Shape::Bool,
            Type::S8 => Shape::S8,
            Type::U8 => Shape::U8,
            Type::S16 => Shape::S16,
            Type::U16 => Shape::U16,
            Type::S32 => Shape::S32,
            Type::U32 => Shape::U32,
            Type::S64 => Shape::S64,
            Type::U64 => Shape::U64,
            Type::Float32 => Shape::F32,
            Type::Float64 => Shape::F64,
            Type::Char => Shape::Char,
            Type::String => Shape::Text,
            Type::List(list) => Shape::List(Box::new(self.part(&list.ty(), depth, || Step::Element)?)),
            Type::Tuple(tuple) => {
                let items = tuple.types().enumerate().map(|(index, ty)| self.part(&ty, depth, || Step::Index(index)));
                Shape::Tuple(items.collect::<Result<_, _>>()?)
            }
            Type::Record(record) => {
                Shape::Record(self.named(record.fields().map(|field| (field.name, field.ty)), |writer, name, ty| {
                    writer.part(&ty, depth, || Step::name(name))
                })?)
            }
            Type::Variant(variant) => {
                Shape::Variant(self.named(variant.cases().map(|case| (case.name, case.ty)), |writer, name, ty| {
                    ty.map(|ty| writer.part(&ty, depth, || Step::name(name))).transpose()
                })?)
            }
            Type::Enum(names) => Shape::Enum(self.named(names.names().map(|name| (name, ())), |_, _, ()| Ok(()))?),
            Type::Flags(names) => Shape::Flags(self.named(names.names().map(|name| (name, ())), |_, _, ()| Ok(()))?),
            Type::Option(option) => Shape::Option(Box::new(self.part(&option.ty(), depth, || Step::name("some"))?)),
            Type::Result(result) => {
                Shape::Result { ok: self.branch(result.ok(), depth, "ok")?, err: self.branch(result.err(), depth, "err")? }
            }
            Type::Own(_) | Type::Borrow(_) => return Err(TypeProblem::Resource.into()),
            Type::Stream(_) => return Err(TypeProblem::Stream.into()),
            Type::Future(_) => return Err(TypeProblem::Future.into()),
            Type::ErrorContext => return Err(TypeProblem::ErrorContext.into()),
            Type::Map(_) => return Err(TypeProblem::Map.into()),
            Type::FixedLengthList(_) => return Err(TypeProblem::FixedLengthList.into()),
        })
    }

    fn part(&mut self, ty: &Type, depth: u64, step: impl FnOnce() -> Step) -> Result<Shape, Refusal> {
        self.shape(ty, depth + 1).map_err(|refusal| refusal.inside(step()))
    }

    fn branch(&mut self, ty: Option<Type>, depth: u64, name: &str) -> Result<Option<Box<Shape>>, Refusal> {
        ty.map(|ty| self.part(&ty, depth, || Step::name(name)).map(Box::new)).transpose()
    }

    fn named<'n, P, T>(
        &mut self,
        parts: impl Iterator<Item = (&'n str, P)>,
        mut of: impl FnMut(&mut Self, &str, P) -> Result<T, Refusal>,
    ) -> Result<Named<T>, Refusal> {
        let entry = |(name, part): (&'n str, P)| {
            let owned = self.name(name).map_err(|problem| Refusal::from(problem).inside(Step::name(name)))?;
            Ok((owned, of(self, name, part)?))
        };
        parts.map(entry).collect::<Result<_, _>>().map(Named::new)
    }

    fn name(&mut self, name: &str) -> Result<Box<str>, TypeProblem> {
        bounded(name.len() as u64, &limits::VALUES_NAME_BYTES)?;
        self.count()?;
        Ok(name.into())
    }

    fn count(&mut self) -> Result<(), TypeProblem> {
        self.nodes += 1;
        bounded(self.nodes, &limits::VALUES_TYPE_NODES)?;
        self.room.nodes_left = self.room.nodes_left.checked_sub(1).ok_or_else(|| over(&limits::VALUES_COMPONENT_NODES))?;
        Ok(())
    }
}

fn bounded(value: u64, limit: &Limit) -> Result<(), TypeProblem> {
    if value > limit.default { Err(over(limit)) } else { Ok(()) }
}

fn over(limit: &Limit) -> TypeProblem {
    TypeProblem::OverLimit { limit: limit.name, max: limit.default }
}
