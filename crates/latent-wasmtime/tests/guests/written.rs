//! Components written as text: shapes that no toolchain would build.

use latent_core::{ActivationOutcome, BudgetKind, TrapCode};
use latent_test_guests::BEHAVE;
use latent_wasmtime::{EngineOptions, ImportRefusal, WasmEngine, WasmError};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::bench::Bench;

/// A component with the core module `module` for the world `test` of `wit`, which may name the packages of `wit/`.
pub(crate) fn component(wit: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    for package in ["context", "log", "events"] {
        resolve.push_path(format!("{}/../../wit/latent-{package}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    }
    component_in(resolve, wit, module)
}

fn component_in(mut resolve: Resolve, wit: &str, module: &str) -> Vec<u8> {
    let package = resolve.push_str("test.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("test")).unwrap();
    let mut module = wat::parse_str(module).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

/// A handler whose `handle` is `body` and returns a pointer to its result; memory from 1024 on is zero, which is `ok`.
fn handler(items: &str, body: &str) -> Vec<u8> {
    let wit = "package acme:test; world test { export latent:events/handler@0.2.0; }";
    let module = format!(
        r#"(module
            (memory (export "memory") 1)
            {items}
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 2048))
            (func (export "latent:events/handler@0.2.0#handle") (param i32) (result i32) {body}))"#
    );
    component(wit, &module)
}

fn one_cell() -> WasmEngine {
    WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() }).unwrap()
}

fn refused(wit: &str, module: &str) -> WasmError {
    one_cell().prepare(&component(wit, module)).err().unwrap()
}

/// The same for a `wit` that puts a package of its own in the place of one of ours.
fn refused_alone(wit: &str, module: &str) -> WasmError {
    one_cell().prepare(&component_in(Resolve::default(), wit, module)).err().unwrap()
}

#[tokio::test]
async fn a_handler_in_a_page_of_text_handles_an_event() {
    let bench = Bench::of(&handler("", "(i32.const 1024)"));
    assert_eq!(bench.run("").await.outcome, ActivationOutcome::Success);
}

#[tokio::test]
async fn a_refused_table_growth_that_ends_in_a_trap_is_table_exhaustion() {
    let grow = |elements: u32| {
        let grow = format!("(if (i32.eq (table.grow 0 (ref.null func) (i32.const {elements})) (i32.const -1)) (then unreachable))");
        handler("(table 1 funcref)", &format!("{grow} (i32.const 1024)"))
    };
    // The table has one element already.
    assert_eq!(Bench::of(&grow(65_535)).run("").await.outcome, ActivationOutcome::Success);
    assert_eq!(Bench::of(&grow(65_536)).run("").await.outcome, ActivationOutcome::BudgetExhausted(BudgetKind::Tables));
}

#[tokio::test]
async fn arithmetic_and_wild_accesses_have_their_trap_codes() {
    let table = [
        ("(i32.div_u (i32.const 1) (i32.const 0))", TrapCode::Arithmetic),
        ("(i32.load (i32.const -8))", TrapCode::MemoryOutOfBounds),
        ("(call_indirect (result i32) (i32.const 0))", TrapCode::TableAccess),
        ("(call $deeper (i32.const 0))", TrapCode::StackOverflow),
        // A pointer to a result that lies outside the memory.
        ("(i32.const -64)", TrapCode::Unlisted),
    ];
    for (body, expected) in table {
        let deeper = "(func $deeper (param i32) (result i32) (i32.add (call $deeper (local.get 0)) (i32.const 1)))";
        let bench = Bench::of(&handler(&format!("(table 1 funcref) {deeper}"), body));
        let outcome = bench.run("").await.outcome;
        assert!(matches!(outcome, ActivationOutcome::Trap { code, .. } if code == expected), "{body}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_trap_before_the_handler_is_a_trap_too() {
    let bench = Bench::of(&handler("(func $start unreachable) (start $start)", "(i32.const 1024)"));
    assert!(matches!(bench.run("").await.outcome, ActivationOutcome::Trap { code: TrapCode::Unreachable, .. }));
}

#[test]
fn http_is_refused_with_its_name() {
    let wit = "package wasi:http@0.2.0; interface outgoing-handler { send: func(); } world test { import outgoing-handler; }";
    let module = r#"(module (import "wasi:http/outgoing-handler@0.2.0" "send" (func)))"#;
    let name = "wasi:http/outgoing-handler@0.2.0".to_owned();
    assert_eq!(refused(wit, module), WasmError::ImportRefused { name, refusal: ImportRefusal::Http });
}

#[test]
fn an_unknown_interface_is_refused_with_its_name() {
    let wit = "package acme:db@1.0.0; interface sql { run: func(); } world test { import sql; }";
    let module = r#"(module (import "acme:db/sql@1.0.0" "run" (func)))"#;
    let refusal = refused(wit, module);
    assert_eq!(refusal, WasmError::ImportRefused { name: "acme:db/sql@1.0.0".to_owned(), refusal: ImportRefusal::Unknown });
    assert!(refusal.to_string().contains("acme:db/sql@1.0.0"));
}

#[test]
fn a_known_interface_of_another_shape_is_a_mismatch() {
    let wit = "package latent:log@0.1.0; interface log { write: func(); } world test { import log; }";
    let module = r#"(module (import "latent:log/log@0.1.0" "write" (func)))"#;
    let WasmError::InterfaceMismatch { detail } = refused_alone(wit, module) else { panic!("not a mismatch") };
    assert!(detail.contains("latent:log/log@0.1.0"), "{detail}");
}

#[test]
fn a_handler_of_another_shape_is_a_mismatch() {
    for (function, problem) in [("handle", "`handle` has another type"), ("handel", "has no function `handle`")] {
        let wit = format!("package latent:events@0.2.0; interface handler {{ {function}: func(); }} world test {{ export handler; }}");
        let module = format!(r#"(module (func (export "latent:events/handler@0.2.0#{function}")))"#);
        let WasmError::InterfaceMismatch { detail } = refused_alone(&wit, &module) else { panic!("not a mismatch") };
        assert!(detail.contains(problem), "{detail}");
    }
}

#[test]
fn the_parts_of_a_component_are_bounded_at_their_edges() {
    let engine = one_cell();
    let parts = |module: &str, count: usize| {
        let instances = "(core instance (instantiate $m))".repeat(count);
        engine.prepare(&wat::parse_str(format!("(component (core module $m {module}) {instances})")).unwrap()).map(drop)
    };
    for (module, most) in [("(memory 1)", 4), ("(table 1 funcref)", 32), ("", 128)] {
        assert_eq!(parts(module, most), Ok(()), "{module}");
        let Err(WasmError::Invalid { detail }) = parts(module, most + 1) else { panic!("{module} accepted") };
        assert!(detail.contains("exceeds"), "{detail}");
    }
}

#[test]
fn what_is_no_component_is_told_apart() {
    let engine = one_cell();
    let error = |bytes: &[u8]| engine.prepare(bytes).err().unwrap();
    assert_eq!(error(b"garbage"), WasmError::NotWasm);
    assert_eq!(error(&wat::parse_str("(module)").unwrap()), WasmError::CoreModule);
    let torn = &BEHAVE.component[..BEHAVE.component.len() / 2];
    assert!(matches!(error(torn), WasmError::Invalid { .. }));
}

/// A handler that publishes eight random bytes and the time of day, and imports `imported` of the context without calling it.
fn publishing_chance(imported: &str) -> Vec<u8> {
    let wit = r#"
        package acme:test;
        package wasi:random@0.2.0 { interface random { get-random-u64: func() -> u64; } }
        package wasi:clocks@0.2.0 { interface wall-clock { record datetime { seconds: u64, nanoseconds: u32 } now: func() -> datetime; } }
        world test {
            import wasi:random/random@0.2.0;
            import wasi:clocks/wall-clock@0.2.0;
            import latent:context/context@0.1.0;
            import latent:events/publisher@0.2.0;
            export latent:events/handler@0.2.0;
        }"#;
    let texts = r#"(data (i32.const 0) "out") (data (i32.const 16) "text/plain") (data (i32.const 32) "i")"#;
    let fourteen = "i32 ".repeat(14);
    let module = format!(
        r#"(module
            (import "wasi:random/random@0.2.0" "get-random-u64" (func $random (result i64)))
            (import "wasi:clocks/wall-clock@0.2.0" "now" (func $now (param i32)))
            (import "latent:events/publisher@0.2.0" "publish" (func $publish (param {fourteen})))
            {imported}
            (memory (export "memory") 1)
            {texts}
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 2048))
            (func (export "latent:events/handler@0.2.0#handle") (param i32) (result i32)
                (i64.store (i32.const 256) (call $random))
                (call $now (i32.const 264))
                (call $publish
                    (i32.const 0) (i32.const 3)
                    (i32.const 0) (i32.const 0) (i32.const 0)
                    (i32.const 256) (i32.const 20)
                    (i32.const 16) (i32.const 10)
                    (i32.const 0) (i32.const 0)
                    (i32.const 32) (i32.const 1)
                    (i32.const 512))
                (i32.const 1024)))"#
    );
    component(wit, &module)
}

const DERIVE: &str = r#"(import "latent:context/context@0.1.0" "derive" (func (param i32)))"#;
const DERIVE_LABEL: &str = r#"(import "latent:context/context@0.1.0" "derive-label" (func (param i32 i32 i32)))"#;
const ACTIVATION_ID: &str = r#"(import "latent:context/context@0.1.0" "activation-id" (func (param i32)))"#;

#[tokio::test]
async fn only_a_component_that_can_derive_keys_finds_chance_and_time_of_its_event() {
    for (imported, derives) in [(DERIVE, true), (DERIVE_LABEL, true), (ACTIVATION_ID, false), ("", false)] {
        let bench = Bench::of(&publishing_chance(imported));
        assert_eq!(bench.component.derives_keys(), derives, "{imported}");
        for _ in 0..2 {
            assert_eq!(bench.run("").await.outcome, ActivationOutcome::Success);
        }
        let given = bench.provider.given.lock().unwrap();
        let parts = |at: usize| {
            let payload: [u8; 20] = given[at].payload()[..].try_into().unwrap();
            let (random, time) = payload.split_at(8);
            (random.to_vec(), u64::from_le_bytes(time[..8].try_into().unwrap()))
        };
        let ((random, seconds), again) = (parts(0), parts(1));
        assert_eq!(random == again.0, derives, "{imported}");
        // The event was stored a second after 1970.
        assert_eq!(seconds == 1 && again.1 == 1, derives, "{imported}");
    }
}
