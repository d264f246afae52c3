//! Random values of random types, and random damage to sound documents.

use proptest::prelude::*;
use wasmtime::component::Val;

use super::types::{Wit, signature};
use crate::values::ValuesLimits;

fn name() -> impl Strategy<Value = String> {
    "[a-z]{1,6}(-[a-z]{1,3})?"
}

fn distinct_names() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::btree_set(name(), 1..5).prop_map(|names| names.into_iter().rev().collect())
}

fn wit() -> impl Strategy<Value = Wit> {
    const PLAIN: [&str; 13] = ["bool", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64", "char", "string"];
    let leaf = prop_oneof![
        6 => proptest::sample::select(&PLAIN[..]).prop_map(Wit::Plain),
        1 => distinct_names().prop_map(Wit::Enum),
        1 => distinct_names().prop_map(Wit::Flags),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        let maybe = || proptest::option::of(boxed());
        let named = |names: Vec<String>, parts: Vec<Wit>| names.into_iter().zip(parts);
        let parts = || proptest::collection::vec(inner.clone(), 5);
        prop_oneof![
            boxed().prop_map(Wit::List),
            boxed().prop_map(Wit::Option),
            (maybe(), maybe()).prop_map(|(ok, err)| Wit::Result(ok, err)),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Wit::Tuple),
            (distinct_names(), parts()).prop_map(move |(names, parts)| Wit::Record(named(names, parts).collect())),
            (distinct_names(), parts(), proptest::collection::vec(any::<bool>(), 5)).prop_map(move |(names, parts, has)| {
                let cases = named(names, parts).zip(has);
                Wit::Variant(cases.map(|((name, wit), has)| (name, has.then_some(wit))).collect())
            }),
        ]
    })
}

fn some(value: BoxedStrategy<Val>) -> BoxedStrategy<Option<Box<Val>>> {
    value.prop_map(|value| Some(Box::new(value))).boxed()
}

fn branch(wit: Option<&Wit>) -> BoxedStrategy<Option<Box<Val>>> {
    wit.map_or_else(|| Just(None).boxed(), |wit| some(value(wit)))
}

fn value(wit: &Wit) -> BoxedStrategy<Val> {
    match wit {
        Wit::Plain("bool") => any::<bool>().prop_map(Val::Bool).boxed(),
        Wit::Plain("s8") => any::<i8>().prop_map(Val::S8).boxed(),
        Wit::Plain("u8") => any::<u8>().prop_map(Val::U8).boxed(),
        Wit::Plain("s16") => any::<i16>().prop_map(Val::S16).boxed(),
        Wit::Plain("u16") => any::<u16>().prop_map(Val::U16).boxed(),
        Wit::Plain("s32") => any::<i32>().prop_map(Val::S32).boxed(),
        Wit::Plain("u32") => any::<u32>().prop_map(Val::U32).boxed(),
        Wit::Plain("s64") => any::<i64>().prop_map(Val::S64).boxed(),
        Wit::Plain("u64") => any::<u64>().prop_map(Val::U64).boxed(),
        Wit::Plain("f32") => any::<u32>().prop_map(|bits| Val::Float32(f32::from_bits(bits))).boxed(),
        Wit::Plain("f64") => any::<u64>().prop_map(|bits| Val::Float64(f64::from_bits(bits))).boxed(),
        Wit::Plain("char") => any::<char>().prop_map(Val::Char).boxed(),
        Wit::Plain(_) => any::<String>().prop_map(Val::String).boxed(),
        Wit::List(of) => proptest::collection::vec(value(of), 0..4).prop_map(Val::List).boxed(),
        Wit::Tuple(parts) => parts.iter().map(value).collect::<Vec<_>>().prop_map(Val::Tuple).boxed(),
        Wit::Record(fields) => {
            let fields = fields.iter().map(|(name, wit)| (Just(name.clone()), value(wit)));
            fields.collect::<Vec<_>>().prop_map(Val::Record).boxed()
        }
        Wit::Variant(cases) => {
            let case = |(name, wit): &(String, Option<Wit>)| (Just(name.clone()), branch(wit.as_ref())).boxed();
            let cases: Vec<_> = cases.iter().map(case).collect();
            proptest::strategy::Union::new(cases).prop_map(|(name, payload)| Val::Variant(name, payload)).boxed()
        }
        Wit::Enum(names) => proptest::sample::select(names.clone()).prop_map(Val::Enum).boxed(),
        Wit::Flags(names) => {
            let count = names.len();
            proptest::sample::subsequence(names.clone(), 0..=count).prop_map(Val::Flags).boxed()
        }
        Wit::Option(of) => prop_oneof![Just(None), some(value(of))].prop_map(Val::Option).boxed(),
        Wit::Result(ok, err) => {
            let (ok, err) = (branch(ok.as_deref()), branch(err.as_deref()));
            prop_oneof![ok.prop_map(|ok| Val::Result(Ok(ok))), err.prop_map(|err| Val::Result(Err(err)))].boxed()
        }
        Wit::FixedLengthList(_) | Wit::Map(_) | Wit::Doubled(..) => unreachable!("not made here"),
    }
}

/// Types, and one value of each.
fn call() -> impl Strategy<Value = (Vec<Wit>, Vec<Val>)> {
    proptest::collection::vec(wit(), 0..4).prop_flat_map(|wits| {
        let values: Vec<_> = wits.iter().map(value).collect();
        (Just(wits), values)
    })
}

/// Room for everything that the strategies make.
fn wide() -> ValuesLimits {
    ValuesLimits { document_bytes: u64::MAX, depth: 64, ..ValuesLimits::default() }
}

proptest! {
    #[test]
    fn what_is_written_reads_back_as_the_same((wits, values) in call()) {
        let signature = signature(&wits);
        let text = signature.encode(&values, &wide()).unwrap();
        prop_assert_eq!(&signature.decode(&text, &wide()).unwrap(), &values);
        // An independent parser agrees that it is one JSON array.
        let parsed: serde_json::Value = serde_json::from_slice(&text).unwrap();
        prop_assert_eq!(parsed.as_array().map(Vec::len), Some(values.len()));
    }

    #[test]
    fn a_damaged_document_is_refused_or_means_something_that_can_be_written(
        (wits, values) in call(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..4_u8), 1..32),
    ) {
        let signature = signature(&wits);
        let sound = signature.encode(&values, &wide()).unwrap();
        for (at, byte, kind) in damage {
            let mut text = sound.to_vec();
            let at = at.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => text[at] ^= 1 << (byte % 8),
                2 => drop(text.remove(at)),
                _ => text.insert(at, byte),
            }
            match signature.decode(&text, &wide()) {
                Ok(values) => {
                    let again = signature.encode(&values, &wide()).unwrap();
                    prop_assert_eq!(signature.decode(&again, &wide()).unwrap(), values);
                }
                Err(refusal) => prop_assert!(refusal.to_string().len() < 2_000),
            }
        }
    }
}
