//! Components that mean harm by their shape: each is refused when it is prepared, with an error that names what is wrong and is bounded.

use std::fmt::Write as _;

use latent_wasmtime::{EngineOptions, WasmEngine, WasmError};

use crate::bench::Bench;

/// What preparing says. Another component is prepared and run afterwards.
async fn prepared(component: &[u8]) -> Result<(), WasmError> {
    let engine = WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() }).unwrap();
    let prepared = engine.prepare(component).map(drop);
    if let Err(error) = &prepared {
        assert!(error.to_string().len() < 4_096, "{} bytes", error.to_string().len());
    }
    Bench::behave().assert_healthy().await;
    prepared
}

async fn refused(text: &str) -> WasmError {
    prepared(&wat::parse_str(text).unwrap()).await.unwrap_err()
}

fn detail(error: WasmError) -> String {
    match error {
        WasmError::Invalid { detail } => detail,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn memories_and_tables_that_are_huge_from_the_start() {
    for (module, named) in [
        ("(memory 65536)", "memory"),
        ("(memory 4097)", "memory"),
        ("(table 4294967295 funcref)", "table"),
        ("(table 65537 funcref)", "table"),
    ] {
        let refusal = detail(refused(&format!("(component (core module $m {module}) (core instance (instantiate $m)))")).await);
        assert!(refusal.contains(named), "{module}: {refusal}");
    }
}

#[tokio::test]
async fn proposals_that_the_engine_does_not_have() {
    for module in ["(memory 1 2 shared)", "(type (struct (field i32)))", "(tag)"] {
        detail(refused(&format!("(component (core module $m {module}))")).await);
    }
    let types = ["(stream u8)", "(future u8)", "error-context", "(map string u8)", "(list u8 4)"];
    for ty in types {
        detail(refused(&format!("(component (type $t {ty}) (export \"t\" (type $t)))")).await);
    }
}

#[tokio::test]
async fn imports_with_names_to_harm_or_to_fill_the_memory() {
    for name in ["a".repeat(90_000), format!("a:b/{}", "c".repeat(90_000))] {
        let error = refused(&format!("(component (import \"{name}\" (func)))")).await;
        assert!(matches!(error, WasmError::ImportRefused { .. }), "{error:?}");
    }
    let mut many = String::from("(component ");
    (0..20_000).for_each(|index| write!(many, "(import \"a{index}\" (func))").unwrap());
    let error = refused(&(many + ")")).await;
    assert!(matches!(&error, WasmError::ImportRefused { name, .. } if name == "a0"), "{error:?}");
}

#[tokio::test]
async fn components_inside_each_other() {
    for (depth, expected) in [(32, None), (33, Some("component_depth")), (100_000, Some("component_depth"))] {
        let refused = prepared(&nested(depth)).await.err().map(|error| match error {
            WasmError::Limit(limit) => limit.name,
            other => panic!("{other:?}"),
        });
        assert_eq!(refused, expected, "{depth}");
    }
}

/// Components, each the only content of the one around it. The text format does not go as deep.
fn nested(depth: usize) -> Vec<u8> {
    const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";
    // Written from the inside out, back to front.
    let mut backwards: Vec<u8> = COMPONENT.iter().rev().copied().collect();
    for _ in 1..depth {
        let mut length = Vec::new();
        let mut left = backwards.len();
        while left >= 0x80 {
            length.push(u8::try_from(left & 0x7f).unwrap() | 0x80);
            left >>= 7;
        }
        length.push(u8::try_from(left).unwrap());
        backwards.extend(length.iter().rev());
        backwards.push(4);
        backwards.extend(COMPONENT.iter().rev());
    }
    backwards.reverse();
    backwards
}

/// A type that refers to the one before, so many times.
fn chain(first: &str, next: impl Fn(usize) -> String, count: usize) -> String {
    let mut text = format!("(component (type $t0 {first})");
    (1..=count).for_each(|index| write!(text, "(type $t{index} {})", next(index - 1)).unwrap());
    write!(text, "(export \"t\" (type $t{count})))").unwrap();
    text
}

#[tokio::test]
async fn types_that_are_deep() {
    for count in [90, 1_000, 100_000] {
        let component = wat::parse_str(chain("u8", |before| format!("(option $t{before})"), count)).unwrap();
        match prepared(&component).await {
            Ok(()) => assert!(count < 100),
            Err(error) => assert!(detail(error).contains("too deep"), "{count}"),
        }
    }
}

#[tokio::test]
async fn types_that_double_at_each_step() {
    let text = chain("u8", |before| format!("(tuple $t{before} $t{before})"), 60);
    assert!(detail(refused(&text).await).contains("size"));
}

/// A component that instantiates the one inside it twice, which does the same, so many times: a kilobyte that would take all memory.
#[tokio::test]
async fn instances_that_double_at_each_level() {
    let mut component = "(component $c)".to_owned();
    for _ in 0..31 {
        component = format!("(component $c {component} (instance (instantiate $c)) (instance (instantiate $c)))");
    }
    let refused = refused(&component).await;
    assert!(matches!(&refused, WasmError::Limit(limit) if limit.name == "component_items"), "{refused:?}");
}
