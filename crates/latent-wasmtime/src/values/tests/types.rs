//! Types for tests: described here, written as a component, and taken from the prepared component as the engine gives them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Type};
use wasmtime::{Config, Engine};

use super::super::{Signature, TypeRefusal, TypeRoom};

/// Every proposal that can be switched on, so that also the types that no component of ours may have can be made.
static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let mut config = Config::new();
    config.wasm_component_model_map(true).wasm_component_model_fixed_length_lists(true);
    Engine::new(&config).unwrap()
});

/// A WIT type.
#[derive(Debug, Clone)]
pub(super) enum Wit {
    /// A type without parts, by its name; also `own`, of a resource.
    Plain(&'static str),
    List(Box<Wit>),
    FixedLengthList(Box<Wit>),
    Map(Box<Wit>),
    Tuple(Vec<Wit>),
    Record(Vec<(String, Wit)>),
    Variant(Vec<(String, Option<Wit>)>),
    Enum(Vec<String>),
    Flags(Vec<String>),
    Option(Box<Wit>),
    Result(Option<Box<Wit>>, Option<Box<Wit>>),
    /// A tuple of the same type, defined once, so many times inside each other.
    Doubled(Box<Wit>, usize),
}

use Wit::Plain;

pub(super) const U8: Wit = Plain("u8");
pub(super) const TEXT: Wit = Plain("string");

pub(super) fn list(of: Wit) -> Wit {
    Wit::List(Box::new(of))
}

pub(super) fn option(of: Wit) -> Wit {
    Wit::Option(Box::new(of))
}

pub(super) fn result(ok: Option<Wit>, err: Option<Wit>) -> Wit {
    Wit::Result(ok.map(Box::new), err.map(Box::new))
}

pub(super) fn record<const N: usize>(fields: [(&str, Wit); N]) -> Wit {
    Wit::Record(fields.into_iter().map(|(name, wit)| (name.to_owned(), wit)).collect())
}

pub(super) fn variant<const N: usize>(cases: [(&str, Option<Wit>); N]) -> Wit {
    Wit::Variant(cases.into_iter().map(|(name, wit)| (name.to_owned(), wit)).collect())
}

pub(super) fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

/// The types as the engine gives them.
fn types_of(wits: &[Wit]) -> Vec<Type> {
    let mut component = Definitions::default();
    for (index, wit) in wits.iter().enumerate() {
        let wit = component.define(wit);
        let _ = write!(component.text, "(export \"root{index}\" (type {wit}))");
    }
    let text = format!("(component (type $res (resource (rep i32))) (export $r \"r\" (type $res)) {})", component.text);
    let component = Component::new(&ENGINE, wat::parse_str(text).unwrap()).unwrap();
    let kind = component.component_type();
    let type_at = |index| match kind.get_export(&ENGINE, &format!("root{index}")).unwrap().ty {
        ComponentItem::Type(ty) => ty,
        other => panic!("{other:?} is no type"),
    };
    (0..wits.len()).map(type_at).collect()
}

/// The signature of a function that takes these types and returns them.
pub(super) fn signature(wits: &[Wit]) -> Signature {
    checked(wits).unwrap()
}

pub(super) fn checked(wits: &[Wit]) -> Result<Signature, TypeRefusal> {
    checked_in(wits, &mut TypeRoom::default())
}

pub(super) fn checked_in(wits: &[Wit], room: &mut TypeRoom) -> Result<Signature, TypeRefusal> {
    let types = types_of(wits);
    let params: Vec<_> = types.iter().enumerate().map(|(index, ty)| (format!("p{index}"), ty.clone())).collect();
    Signature::of_types("f", params.iter().map(|(name, ty)| (&**name, ty.clone())), types, room)
}

/// Type definitions as text. Compound types are defined one by one, because those with names must be exported before they are used.
#[derive(Default)]
struct Definitions {
    text: String,
    count: usize,
}

impl Definitions {
    /// Defines `wit`; returns what to call it.
    fn define(&mut self, wit: &Wit) -> String {
        let (ty, has_names) = match wit {
            Plain(name) => ((*name).to_owned(), false),
            Wit::List(of) => (format!("(list {})", self.define(of)), false),
            Wit::FixedLengthList(of) => (format!("(list {} 3)", self.define(of)), false),
            Wit::Map(of) => (format!("(map string {})", self.define(of)), false),
            Wit::Option(of) => (format!("(option {})", self.define(of)), false),
            Wit::Tuple(parts) => (format!("(tuple {})", parts.iter().map(|part| self.define(part) + " ").collect::<String>()), false),
            Wit::Result(ok, err) => {
                let ok = ok.as_ref().map_or(String::new(), |wit| self.define(wit));
                let err = err.as_ref().map_or(String::new(), |wit| format!("(error {})", self.define(wit)));
                (format!("(result {ok} {err})"), false)
            }
            Wit::Record(fields) => {
                let fields: String = fields.iter().map(|(name, wit)| format!("(field \"{name}\" {})", self.define(wit))).collect();
                (format!("(record {fields})"), true)
            }
            Wit::Variant(cases) => {
                let mut payload = |wit: &Option<Wit>| wit.as_ref().map_or(String::new(), |wit| self.define(wit));
                let cases: String = cases.iter().map(|(name, wit)| format!("(case \"{name}\" {})", payload(wit))).collect();
                (format!("(variant {cases})"), true)
            }
            Wit::Enum(names) => (format!("(enum {})", quoted(names)), true),
            Wit::Flags(names) => (format!("(flags {})", quoted(names)), true),
            Wit::Doubled(of, times) => {
                let first = self.define(of);
                return (0..*times).fold(first, |of, _| self.named(&format!("(tuple {of} {of})"), false));
            }
        };
        self.named(&ty, has_names)
    }

    fn named(&mut self, ty: &str, has_names: bool) -> String {
        let index = self.count;
        self.count += 1;
        let _ = if has_names {
            write!(self.text, "(type $d{index} {ty}) (export $t{index} \"t{index}\" (type $d{index}))")
        } else {
            write!(self.text, "(type $t{index} {ty})")
        };
        format!("$t{index}")
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{name}\" ")).collect()
}
